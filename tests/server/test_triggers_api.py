"""Triggers over HTTP: made, refused, changed, deleted, fired."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import jsonschema_rs
import pytest
from psycopg import errors

from fairlead.runtime.trigger_loops import trigger_due
from tests import given
from tests.server.test_admin import SYNC
from tests.server.world import World, world_on
from tests.tables import each_case

# The examples of the document that the API was asked for in, as they are written there.
ON_EVENT = {
    "label": "Resync on folder change",
    "trigger_type": "event",
    "event_name": "provider.folder.updated",
    "definition_key": "sync-dropbox",
    "payload_template": {
        "provider_id": "{{event.provider_id}}",
        "path_prefix": "{{event.folder_path}}",
    },
    "dedupe_window_seconds": 120,
}
ON_SCHEDULE = {
    "label": "Nightly provider sync",
    "trigger_type": "schedule",
    "cron_expr": "0 2 * * *",
    "timezone": "America/New_York",
    "definition_key": "sync-dropbox",
    "payload_template": {"path_prefix": "/"},
}
NIGHTLY: dict[str, Any] = {
    "label": "Nightly",
    "trigger_type": "schedule",
    "cron_expr": "0 2 * * *",
    "definition_key": "anything",
}


async def ask(world: World, method: str, path: str, who: str = "tenant_admin", **more: Any) -> Any:
    return await world.call(method, path, who=who, **more)


async def made(world: World, **more: Any) -> Any:
    answer = await ask(world, "POST", "/jobs/triggers", json={**NIGHTLY, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def changed(world: World, trigger: Any, **changes: Any) -> Any:
    answer = await ask(world, "PATCH", f"/jobs/triggers/{trigger['id']}", json=changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusal(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


# Making them


async def test_the_examples_are_accepted_as_they_are_written(world: World) -> None:
    defined = await ask(world, "POST", "/admin/jobs/definitions", who="super_admin", json=SYNC)
    assert defined.status_code == 201

    on_event = await ask(world, "POST", "/jobs/triggers", json=ON_EVENT)
    on_schedule = await ask(world, "POST", "/jobs/triggers", json=ON_SCHEDULE)

    assert (on_event.status_code, on_schedule.status_code) == (201, 201)
    for answer, sent in ((on_event.json(), ON_EVENT), (on_schedule.json(), ON_SCHEDULE)):
        assert {name: answer[name] for name in sent} == sent
        assert (answer["tenant"], answer["created_by"]) == (given.TENANT, "token:acme.tenant_admin")
    assert on_event.json()["warnings"] == []
    assert (on_event.json()["in_words"], on_event.json()["next_fire_at"]) == (None, None)
    [warning] = on_schedule.json()["warnings"]
    assert "provider_id" in warning["message"]
    assert on_schedule.json()["in_words"] == "every day at 02:00 (America/New_York)"
    assert moment(on_schedule.json()["next_fire_at"]) > datetime.now(UTC)


@each_case(
    ("changes", "status", "code"),
    [
        ({"cron_expr": "0 0 30 2 *"}, 422, "cron_invalid"),
        ({"timezone": "Mars/Olympus"}, 422, "timezone_unknown"),
        ({"definition_key": "nothing"}, 422, "definition_unknown"),
        ({"definition_key": "retired"}, 422, "definition_inactive"),
        ({"every_seconds": 60}, 422, "trigger_form_invalid"),
        ({"trigger_type": "event", "cron_expr": None, "event_name": "a b"}, 422, "event_invalid"),
        (
            {"trigger_type": "event", "cron_expr": None, "event_name": "a", "filter": {"a": {"near": 1}}},
            422,
            "filter_invalid",
        ),
        ({"cron_expr": None, "every_seconds": -1}, 422, "schedule_invalid"),
        ({"payload_template": {"a": "{{event.a}}"}}, 422, "template_invalid"),
        ({"jitter_seconds": 86_401}, 422, "trigger_invalid"),
        ({"end_at": "1960-01-01T00:00:00Z"}, 422, "schedule_invalid"),
        ({"label": ""}, 422, "trigger_invalid"),
    ],
)
async def test_a_trigger_that_cannot_be_is_refused_with_its_own_code(
    shared_world: World, changes: dict[str, Any], status: int, code: str
) -> None:
    answer = await ask(shared_world, "POST", "/jobs/triggers", json={**NIGHTLY, **changes})

    assert refusal(answer) == (status, code), answer.text
    assert answer.json()["errors"]
    assert await given.count(shared_world, "job_triggers") == 0


async def test_a_super_admin_says_for_which_tenant(world: World) -> None:
    refused = await ask(world, "POST", "/jobs/triggers", who="super_admin", json=NIGHTLY)
    assert refusal(refused) == (422, "invalid_input")

    answer = await ask(
        world, "POST", "/jobs/triggers", who="super_admin", json=NIGHTLY, headers={"X-Tenant": given.OTHER}
    )

    assert (answer.status_code, answer.json()["tenant"]) == (201, given.OTHER)
    seen = [
        (await ask(world, "GET", "/jobs/triggers", who=who)).json()["items"]
        for who in ("super_admin", "tenant_admin")
    ]
    assert [len(items) for items in seen] == [1, 0]


@pytest.mark.thorough
async def test_answers_fit_their_description(world: World) -> None:
    described = world.app.openapi()

    async def check(method: str, path: str, **more: Any) -> Any:
        answer = await ask(world, method, path.format(**ids), **more)
        responses = described["paths"][f"/api/v1{path}"][method.lower()]["responses"]
        schema = responses[str(answer.status_code)]["content"]["application/json"]["schema"]
        whole = {**schema, "components": described["components"]}
        jsonschema_rs.Draft202012Validator(whole, validate_formats=True).validate(answer.json())
        return answer.json()

    ids: dict[str, str] = {}
    event = {**NIGHTLY, "trigger_type": "event", "cron_expr": None, "event_name": "a.b"}
    await check("POST", "/jobs/triggers", json=event)
    ids["event_id"] = (await check("POST", "/events", json={"name": "a.b"}))["id"]
    await trigger_due(world.fl.database)
    assert (await check("GET", "/events/{event_id}"))["firings"]
    await check("GET", "/events")
    await check("POST", "/events/{event_id}/replay")
    await check("POST", "/jobs/triggers/preview", json={**event, "event_id": ids["event_id"]})
    ids["trigger_id"] = (await check("POST", "/jobs/triggers", json=NIGHTLY))["id"]
    await check("POST", "/jobs/triggers/preview", json=NIGHTLY)
    await check("GET", "/jobs/triggers")
    await check("GET", "/jobs/triggers/{trigger_id}")
    await check("PATCH", "/jobs/triggers/{trigger_id}", json={"label": "x"})
    await check("POST", "/jobs/triggers/{trigger_id}/fire")
    assert (await check("GET", "/jobs/triggers/{trigger_id}/firings"))["items"]
    await check("DELETE", "/jobs/triggers/{trigger_id}")


# Reading them


async def test_the_list_is_filtered_and_paged(world: World) -> None:
    nightly = await made(world)
    greeting = await made(world, definition_key="greet", is_enabled=False)
    event = await made(world, trigger_type="event", cron_expr=None, event_name="a.b")

    async def ids(**params: Any) -> list[str]:
        answer = await ask(world, "GET", "/jobs/triggers", params=params)
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()["items"]]

    assert await ids() == [event["id"], greeting["id"], nightly["id"]]
    assert await ids(trigger_type="event") == await ids(event_name="a.b") == [event["id"]]
    assert await ids(definition_key="greet") == await ids(is_enabled=False) == [greeting["id"]]
    assert await ids(trigger_type="schedule", is_enabled=True) == [nightly["id"]]
    first = (await ask(world, "GET", "/jobs/triggers", params={"limit": 2})).json()
    rest = await ids(cursor=first["next_cursor"])
    assert [one["id"] for one in first["items"]] + rest == await ids()
    for params in ({"cursor": "x"}, {"limit": 0}, {"label": "x"}, {"trigger_type": "x"}):
        assert refusal(await ask(world, "GET", "/jobs/triggers", params=params)) == (422, "invalid_input")


async def test_a_trigger_is_shown_as_it_was_made(world: World) -> None:
    trigger = await made(world)

    shown = await ask(world, "GET", f"/jobs/triggers/{trigger['id']}")

    assert shown.json() == {name: value for name, value in trigger.items() if name != "warnings"}


# Changing them


async def test_null_is_as_if_it_had_never_been_said(world: World) -> None:
    trigger = await made(world, timezone="Asia/Kathmandu", catch_up="all", dedupe_window_seconds=9)

    plain = await changed(world, trigger, timezone=None, catch_up=None, dedupe_window_seconds=None)
    every = await changed(world, trigger, cron_expr=None, every_seconds=60)
    event = await changed(
        world,
        trigger,
        trigger_type="event",
        every_seconds=None,
        start_at=None,
        overlap=None,
        event_name="a.b",
    )

    assert (plain["timezone"], plain["catch_up"], plain["dedupe_window_seconds"]) == (None, "skip", 0)
    assert every["in_words"].startswith("every minute from ")
    assert (event["event_name"], event["next_fire_at"], event["in_words"]) == ("a.b", None, None)


@each_case(
    ("changes", "code"),
    [
        ({"timezone": "Nowhere"}, "timezone_unknown"),
        ({"definition_key": "nothing"}, "definition_unknown"),
        ({"id": str(uuid4())}, "trigger_invalid"),
    ],
)
async def test_a_change_that_cannot_be_changes_nothing(
    shared_world: World, changes: dict[str, Any], code: str
) -> None:
    trigger = await made(shared_world)
    path = f"/jobs/triggers/{trigger['id']}"

    assert refusal(await ask(shared_world, "PATCH", path, json=changes)) == (422, code)
    assert (await ask(shared_world, "GET", path)).json()["updated_at"] == trigger["updated_at"]


async def test_a_deleted_trigger_is_gone_and_its_firings_stay(world: World) -> None:
    trigger = await made(world)
    path = f"/jobs/triggers/{trigger['id']}"
    fired = await ask(world, "POST", path + "/fire")

    deleted = await ask(world, "DELETE", path)

    assert (deleted.status_code, deleted.json()["id"], deleted.json()["next_fire_at"]) == (
        200,
        trigger["id"],
        None,
    )
    assert refusal(await ask(world, "GET", path)) == (404, "trigger_unknown")
    assert refusal(await ask(world, "DELETE", path)) == (404, "trigger_unknown")
    assert (await ask(world, "GET", "/jobs/triggers")).json()["items"] == []
    assert fired.json()["job_id"] in await given.stored_text(world, "trigger_firings")


@pytest.mark.postgres_only("it has no triggers")
async def test_a_definition_that_triggers_use_cannot_be_deleted(world: World) -> None:
    await made(world)
    delete = "delete from fairlead.job_definitions where key = %s"

    with pytest.raises(errors.RestrictViolation):  # as none can be
        async with world.fl.transaction() as tx:
            await tx.run(delete, ["anything"])
    with pytest.raises(errors.IntegrityError, match="job_triggers"):
        async with world.fl.transaction() as tx:
            await tx.run("alter table fairlead.job_definitions disable trigger user")
            assert await tx.run(delete, ["greet"]) == 1, "which nothing uses"
            await tx.run(delete, ["anything"])


# Firing them


async def test_firings_are_listed_newest_first_and_say_what_went_wrong(world: World) -> None:
    trigger = await made(
        world,
        trigger_type="event",
        cron_expr=None,
        event_name="a.b",
        definition_key="greet",
        payload_template={"name": "{{event.name}}"},
    )
    for data in ({"name": "Ada"}, {"name": "Ada"}, {"name": 1}, {}):
        told = await ask(world, "POST", "/events", json={"name": "a.b", "data": data})
        assert told.status_code == 202
        await trigger_due(world.fl.database)
    path = f"/jobs/triggers/{trigger['id']}/firings"

    firings = (await ask(world, "GET", path)).json()["items"]

    assert [(one["outcome"], one["reason"]) for one in firings] == [
        ("failed", "template_failed"),
        ("failed", "payload_invalid"),
        ("deduplicated", None),
        ("enqueued", None),
    ]
    assert firings[2]["job_id"] == firings[3]["job_id"]
    assert "event.name is missing" in firings[0]["detail"]
    failed = await ask(world, "GET", path, params={"outcome": "failed", "limit": 1})
    assert [one["id"] for one in failed.json()["items"]] == [firings[0]["id"]]
    rest = await ask(world, "GET", path, params={"outcome": "failed", "cursor": failed.json()["next_cursor"]})
    assert [one["id"] for one in rest.json()["items"]] == [firings[1]["id"]]


async def test_nothing_is_fired_or_told_into_a_full_queue(database_url: str) -> None:
    async with world_on(database_url, max_queued_per_tenant=1) as world:
        trigger = await made(world, overlap="allow")
        event = await ask(world, "POST", "/events", json={"name": "a.b"})
        assert (await ask(world, "POST", f"/jobs/triggers/{trigger['id']}/fire")).status_code == 200

        for path in (f"/jobs/triggers/{trigger['id']}/fire", f"/events/{event.json()['id']}/replay"):
            assert refusal(await ask(world, "POST", path)) == (429, "queue_full")
        assert refusal(await ask(world, "POST", "/events", json={"name": "a.b"})) == (429, "queue_full")


# Secrets: the rest is with the canaries


async def test_secrets_do_not_move_to_a_definition_that_would_show_them(world: World) -> None:
    schema = {"type": "object", "properties": {"pin": {"type": "string", "x-secret": True}}}
    secretive = {"key": "secretive", "arg_schema": schema}
    await ask(world, "POST", "/admin/jobs/definitions", who="super_admin", json=secretive)
    trigger = await made(world, definition_key="secretive", payload_template={"pin": "canary", "n": 1})
    path = f"/jobs/triggers/{trigger['id']}"
    shown = {"pin": "[redacted]", "n": 1}
    assert trigger["payload_template"] == shown

    for template, code in (
        ({}, "trigger_invalid"),
        ({"payload_template": shown}, "trigger_invalid"),
        ({"payload_template": {**shown, "n": 2}}, "secrets_required"),
    ):
        moved = await ask(world, "PATCH", path, json={"definition_key": "anything", **template})
        assert refusal(moved) == (422, code)
        peeked = {"trigger_id": trigger["id"], "definition_key": "anything", **template}
        answer = await ask(world, "POST", "/jobs/triggers/preview", json=peeked)
        assert refusal(answer) == (422, code)
    edited = await changed(world, trigger, payload_template={"pin": "new", "n": 2})
    anew = await changed(world, trigger, definition_key="anything", payload_template={"pin": "seen"})

    assert edited["payload_template"] == {"pin": "[redacted]", "n": 2}
    assert anew["payload_template"] == {"pin": "seen"}
    fired = (await ask(world, "POST", f"/jobs/triggers/{trigger['id']}/fire")).json()
    assert (await ask(world, "GET", f"/jobs/{fired['job_id']}")).json()["payload"] == {"pin": "seen"}


async def test_what_matches_a_pattern_is_hidden_in_templates_and_kept_when_it_is_sent_back(
    database_url: str,
) -> None:
    async with world_on(database_url, redact_patterns=(r"sk-\w+",)) as world:
        trigger = await made(world, payload_template={"url": "https://x/?key=sk-canary"})
        shown = trigger["payload_template"]
        again = await changed(world, trigger, payload_template=shown)
        preview = await ask(world, "POST", "/jobs/triggers/preview", json={"trigger_id": trigger["id"]})

        assert shown == again["payload_template"] == preview.json()["payload"]
        assert shown == {"url": "https://x/?key=[redacted]"}
        stored = await given.stored_template(world, trigger["id"])
        assert stored == {"url": "https://x/?key=sk-canary"}


# An end, jitter, and backfills


async def test_a_schedule_has_an_end_and_jitter(world: World) -> None:
    end = datetime.now(UTC) + timedelta(days=3)
    trigger = await made(world, end_at=end.isoformat(), jitter_seconds=600)
    previewed = await ask(
        world, "POST", "/jobs/triggers/preview", json={"trigger_id": trigger["id"], "count": 10}
    )
    unsaved = await ask(world, "POST", "/jobs/triggers/preview", json={**NIGHTLY, "jitter_seconds": 600})
    over = await changed(world, trigger, end_at="2026-01-01T00:00:00Z")
    endless = await changed(world, trigger, end_at=None, jitter_seconds=0)

    assert (trigger["jitter_seconds"], moment(trigger["end_at"]), trigger["is_over"]) == (600, end, False)
    assert trigger["in_words"].startswith("every day at 02:00 (UTC), up to 10 minutes later, until ")
    runs = previewed.json()["runs"]
    assert len(runs) == 3
    assert (runs[0]["at"], runs[0]["fires_at"]) == (trigger["next_instant"], trigger["next_fire_at"])
    delays = [moment(run["fires_at"]) - moment(run["at"]) for run in runs]
    assert all(timedelta() <= delay < timedelta(minutes=10) for delay in delays)
    assert len(set(delays)) == 3
    assert [run["fires_at"] for run in unsaved.json()["runs"]] == [None] * 5
    assert (over["is_over"], over["next_fire_at"], over["warnings"][0]["path"]) == (True, None, "end_at")
    assert (endless["is_over"], endless["end_at"]) == (False, None)
    assert endless["next_fire_at"] == endless["next_instant"]


async def test_a_range_is_previewed_and_backfilled_once(world: World) -> None:
    trigger = await made(world)
    at = f"/jobs/triggers/{trigger['id']}/backfill"
    week = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-08T00:00:00Z"}

    seen = await ask(world, "POST", f"{at}/preview", json={**week, "count": 2}, who="viewer")
    done = await ask(world, "POST", at, json={**week, "priority": 70})
    again = await ask(world, "POST", at, json=week)
    after = (await ask(world, "POST", f"{at}/preview", json=week)).json()
    listed = await ask(world, "GET", f"/jobs?correlation_id={done.json()['correlation_id']}")

    assert (seen.status_code, seen.json()["count"], len(seen.json()["instants"])) == (200, 7, 2)
    assert seen.json()["instants"][0] == {"at": "2026-03-01T02:00:00Z", "job_id": None}
    assert (done.status_code, done.json()["enqueued"], done.json()["fired"]) == (200, 7, 0)
    assert (again.json()["enqueued"], again.json()["fired"]) == (0, 7)
    assert (after["fired"], after["jobs"]) == (7, {"queued": 7})
    assert len(listed.json()["items"]) == 7
