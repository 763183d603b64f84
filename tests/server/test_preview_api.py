"""Previews over HTTP: what a trigger would do, without doing it."""

from typing import Any
from uuid import uuid4

from fairlead.runtime.trigger_loops import trigger_due
from tests import given
from tests.server.test_events_api import on_event, told
from tests.server.test_triggers_api import NIGHTLY, ask, made, refusal
from tests.server.world import World
from tests.tables import each_case

ON_EVENT: dict[str, Any] = {
    "label": "Greet",
    "trigger_type": "event",
    "event_name": "user.created",
    "definition_key": "greet",
    "payload_template": {"name": "{{event.name}}"},
}
# Who asks is noted there, but for nothing else.
NOTED = {"tokens"}


async def preview(world: World, **body: Any) -> Any:
    answer = await ask(world, "POST", "/jobs/triggers/preview", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def rows(world: World) -> dict[str, str]:
    """What is in every table, as one word a table."""
    async with world.fl.transaction() as tx:
        names = await tx.values(
            "select c.relname from pg_class c where relnamespace = 'fairlead'::regnamespace and relkind = 'r'"
        )
        found = {}
        for (name,) in names:
            [(number, hashed)] = await tx.values(
                f"select count(*), md5(string_agg(t::text, '' order by t::text)) from fairlead.{name} t"
            )
            found[name] = f"{number} {'' if name in NOTED else hashed}"
    return found


# Schedules


async def test_the_next_runs_are_shown_with_changes_of_clocks(world: World) -> None:
    schedule = {
        **NIGHTLY,
        "cron_expr": "30 2 8-9 3 *",
        "timezone": "America/New_York",
        "payload_template": {"at": "{{schedule.scheduled_for}}", "local": "{{schedule.local_time}}"},
    }
    said = await preview(world, **schedule, count=100)

    assert len(said["runs"]) == 100
    assert said["runs"] == sorted(said["runs"], key=lambda run: run["at"])
    gaps = [run for run in said["runs"] if run["note"] and "does not exist" in run["note"]]
    assert gaps, said["runs"]
    assert gaps[0]["local"].endswith("T03:00:00-04:00")
    assert gaps[0]["offset"] == "UTC-04:00"
    first = said["runs"][0]
    assert said["payload"] == {"at": first["at"].replace("Z", "+00:00"), "local": first["local"]}
    assert (said["would"], said["valid"], said["errors"], said["matches"]) == ("enqueue", True, [], None)
    assert said["in_words"] == "30 2 8-9 3 * (America/New_York)"


async def test_five_runs_are_shown_unless_more_are_asked_for(world: World) -> None:
    trigger = await made(world)

    said = await preview(world, trigger_id=trigger["id"])

    assert len(said["runs"]) == 5
    assert said["runs"][0]["at"] == trigger["next_fire_at"]
    for count in (0, 101, "many"):
        answer = await ask(world, "POST", "/jobs/triggers/preview", json={**NIGHTLY, "count": count})
        assert refusal(answer) == (422, "invalid_input")


async def test_a_schedule_whose_payload_does_not_fit_would_fail(world: World) -> None:
    said = await preview(world, **{**NIGHTLY, "definition_key": "greet", "payload_template": {"n": "x"}})

    assert (said["would"], said["valid"], said["payload"]) == ("fail", False, {"n": "x"})
    assert {one["path"] for one in said["errors"]} == {"", "/n"}


async def test_a_run_that_is_over_comes_to_nothing(world: World) -> None:
    once = {**NIGHTLY, "cron_expr": None, "every_seconds": 0, "start_at": "2020-01-01T00:00:00Z"}

    said = await preview(world, **once)

    assert (said["runs"], said["would"], said["payload"]) == ([], "nothing", None)
    late = await preview(world, **once, catch_up="one")
    assert [run["at"] for run in late["runs"]] == ["2020-01-01T00:00:00Z"], "it is made up for"


async def test_an_interval_that_begins_now_shows_its_beginning(world: World) -> None:
    said = await preview(world, **{**NIGHTLY, "cron_expr": None, "every_seconds": 60})

    times = [run["at"] for run in said["runs"]]
    assert (len(times), said["would"]) == (5, "enqueue")
    assert said["in_words"].startswith("every minute from ")
    assert said["in_words"].removeprefix("every minute from ")[:19] == times[0][:19].replace("T", " ")


async def test_a_stored_trigger_is_previewed_with_changes(world: World) -> None:
    trigger = await made(world, timezone="UTC")

    said = await preview(world, trigger_id=trigger["id"], cron_expr="15 4 * * *", payload_template={"a": 1})

    assert said["runs"][0]["at"].endswith("T04:15:00Z")
    assert said["payload"] == {"a": 1}
    unchanged = (await ask(world, "GET", f"/jobs/triggers/{trigger['id']}")).json()
    assert unchanged["cron_expr"] == NIGHTLY["cron_expr"]


# Events


@each_case(
    ("sample", "changes", "expected"),
    [
        ({"name": "Ada"}, {}, ("enqueue", True, True, {"name": "Ada"})),
        ({"name": 1}, {}, ("fail", True, False, {"name": 1})),
        ({}, {}, ("fail", True, False, None)),
        ({"name": "Ada"}, {"filter": {"name": {"prefix": "B"}}}, ("nothing", False, None, None)),
        ({"name": "Bob"}, {"filter": {"name": {"prefix": "B"}}}, ("enqueue", True, True, {"name": "Bob"})),
    ],
)
async def test_a_sample_shows_what_would_be_enqueued(
    world: World, sample: Any, changes: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    said = await preview(world, **ON_EVENT, **changes, sample=sample)

    assert (said["would"], said["matches"], said["valid"], said["payload"]) == expected
    assert bool(said["errors"]) is (said["valid"] is False)
    assert (said["runs"], said["in_words"]) == ([], None)


async def test_a_past_event_shows_what_it_would_do_and_which_job_stands_for_it(world: World) -> None:
    trigger = await on_event(world, payload_template={"p": "{{event.provider_id}}"})
    event_id = await told(world)

    before = await preview(world, trigger_id=trigger["id"], event_id=event_id)
    await trigger_due(world.fl.database)
    after = await preview(world, trigger_id=trigger["id"], event_id=event_id)
    thought_of = await preview(
        world, trigger_id=trigger["id"], event_id=event_id, payload_template={"q": "{{event.provider_id}}"}
    )
    other = await preview(world, **ON_EVENT, event_id=event_id)

    assert (before["would"], before["job_id"], before["payload"]) == ("enqueue", None, {"p": "p"})
    [firing] = (await ask(world, "GET", f"/events/{event_id}")).json()["firings"]
    assert (after["would"], after["job_id"]) == ("deduplicate", firing["job_id"])
    assert (thought_of["would"], thought_of["payload"]) == ("enqueue", {"q": "p"})
    assert (other["would"], other["matches"]) == ("nothing", False), "it has another name"


async def test_a_trigger_whose_definition_was_retired_would_fail(world: World) -> None:
    trigger = await made(world)
    await ask(
        world, "PATCH", "/admin/jobs/definitions/anything", who="super_admin", json={"is_active": False}
    )

    said = await preview(world, trigger_id=trigger["id"])

    assert (said["would"], said["valid"]) == ("fail", False)
    assert said["errors"] == [{"path": "definition", "message": "not active"}]


@each_case(
    ("body", "status", "code"),
    [
        ({}, 422, "trigger_invalid"),
        ({**ON_EVENT}, 422, "invalid_input"),
        ({**ON_EVENT, "sample": {}, "event_id": str(uuid4())}, 422, "invalid_input"),
        ({**ON_EVENT, "sample": [1]}, 422, "invalid_input"),
        ({**NIGHTLY, "sample": {}}, 422, "invalid_input"),
        ({**ON_EVENT, "event_id": str(uuid4())}, 404, "event_unknown"),
        ({**ON_EVENT, "sample": {"a": "\x00"}}, 422, "payload_not_json"),
        ({**ON_EVENT, "sample": {}, "definition_key": "nothing"}, 422, "definition_unknown"),
        ({**NIGHTLY, "cron_expr": "0 0 30 2 *"}, 422, "cron_invalid"),
        ({"trigger_id": str(uuid4())}, 404, "trigger_unknown"),
        ({**NIGHTLY, "more": 1}, 422, "trigger_invalid"),
    ],
)
async def test_a_preview_of_what_cannot_be_is_refused(
    shared_world: World, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await ask(shared_world, "POST", "/jobs/triggers/preview", json=body)

    assert refusal(answer) == (status, code), answer.text


async def test_nobody_previews_with_what_is_not_theirs(world: World) -> None:
    event_id = await told(world)
    trigger = await on_event(world)

    for who, tenant in (("tenant_admin", given.OTHER), ("super_admin", given.OTHER)):
        headers = {"X-Tenant": given.OTHER}
        for body, code in (
            ({**ON_EVENT, "event_id": event_id}, "event_unknown"),
            ({"trigger_id": trigger["id"], "sample": {}}, "trigger_unknown"),
        ):
            answer = await ask(
                world, "POST", "/jobs/triggers/preview", who=who, tenant=tenant, headers=headers, json=body
            )
            assert refusal(answer) == (404, code)
    everywhere = {"trigger_id": trigger["id"], "event_id": event_id}
    found = await ask(world, "POST", "/jobs/triggers/preview", who="super_admin", json=everywhere)
    assert found.json()["would"] == "enqueue"


async def test_a_preview_writes_nothing(world: World) -> None:
    schedule, event_trigger = await made(world), await on_event(world)
    event_id = await told(world)
    await trigger_due(world.fl.database)
    before = await rows(world)

    for body in (
        NIGHTLY,
        {"trigger_id": schedule["id"]},
        {"trigger_id": schedule["id"], "cron_expr": "@hourly"},
        {**ON_EVENT, "sample": {"name": "Ada"}},
        {"trigger_id": event_trigger["id"], "event_id": event_id},
        {"trigger_id": event_trigger["id"], "sample": {"new": 1}},
    ):
        await preview(world, **body)

    assert await rows(world) == before
    await told(world)
    assert await rows(world) != before, "or this could not fail"
