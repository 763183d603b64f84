"""Events over HTTP: told in our own words or as CloudEvents, listed, replayed."""

from typing import Any
from uuid import uuid4

import pytest

from fairlead.runtime.trigger_loops import trigger_due
from tests import given
from tests.server.test_triggers_api import ask, made, refusal
from tests.server.world import World
from tests.tables import each_case

EVENT: dict[str, Any] = {
    "name": "provider.folder.updated",
    "data": {"provider_id": "p", "folder": {"path": "/a"}},
    "correlation_id": "c",
    "occurred_at": "2026-02-16T10:30:00+01:00",
}
CLOUD_EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "1",
    "source": "/folders",
    "type": "provider.folder.updated",
    "time": "2026-02-16T10:30:00Z",
    "subject": "a",
    "data": {"provider_id": "p"},
}


async def told(world: World, body: dict[str, Any] = EVENT, **more: Any) -> str:
    answer = await ask(world, "POST", "/events", json=body, **more)
    assert answer.status_code == 202, answer.text
    assert list(answer.json()) == ["id"]
    return str(answer.json()["id"])


async def shown(world: World, event_id: str) -> Any:
    answer = await ask(world, "GET", f"/events/{event_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def on_event(world: World, **more: Any) -> Any:
    return await made(
        world, **{"trigger_type": "event", "cron_expr": None, "event_name": EVENT["name"], **more}
    )


async def test_an_event_is_kept_as_it_was_told(world: World) -> None:
    event = await shown(world, await told(world))

    assert (event["name"], event["data"], event["correlation_id"]) == (EVENT["name"], EVENT["data"], "c")
    assert event["occurred_at"] == "2026-02-16T09:30:00Z"
    assert (event["tenant"], event["created_by"]) == (given.TENANT, "token:acme.tenant_admin")
    assert (event["dispatched_at"], event["firings"]) == (None, [])


@pytest.mark.parametrize("kind", ["application/json", "application/cloudevents+json; charset=utf-8"])
async def test_a_cloud_event_is_an_event(world: World, kind: str) -> None:
    event = await shown(world, await told(world, CLOUD_EVENT, headers={"Content-Type": kind}))

    assert (event["name"], event["occurred_at"]) == (CLOUD_EVENT["type"], "2026-02-16T10:30:00Z")
    assert event["data"]["provider_id"] == "p"
    assert event["data"]["cloudevent"]["subject"] == "a"


@each_case(
    ("body", "status", "code", "path"),
    [
        ({**EVENT, "more": 1}, 422, "invalid_input", "more"),
        ({**EVENT, "name": "a b"}, 422, "event_invalid", "name"),
        ({**EVENT, "occurred_at": "3026-02-16T10:30:00Z"}, 422, "event_invalid", "occurred_at"),
        ({**EVENT, "data": {"a": "\x00"}}, 422, "payload_not_json", "/a"),
        ({**EVENT, "data": {"a": "x" * 300_000}}, 413, "payload_too_large", ""),
        ({**CLOUD_EVENT, "time": "soon"}, 422, "event_invalid", "time"),
    ],
)
async def test_an_event_that_cannot_be_is_refused_with_its_fault(
    shared_world: World, body: dict[str, Any], status: int, code: str, path: str
) -> None:
    answer = await ask(shared_world, "POST", "/events", json=body)

    assert refusal(answer) == (status, code), answer.text
    assert answer.json()["errors"][0]["path"] == path
    assert await given.count(shared_world, "events") == 0


async def test_what_says_that_it_is_a_cloud_event_has_to_be_one(world: World) -> None:
    headers = {"Content-Type": "application/cloudevents+json"}
    answer = await ask(world, "POST", "/events", json=EVENT, headers=headers)

    assert refusal(answer) == (422, "event_invalid")
    assert "specversion" in [one["path"] for one in answer.json()["errors"]]


async def test_a_super_admin_says_for_which_tenant(world: World) -> None:
    refused = await ask(world, "POST", "/events", who="super_admin", json=EVENT)
    assert refusal(refused) == (422, "invalid_input")

    answer = await ask(
        world, "POST", "/events", who="super_admin", json=EVENT, headers={"X-Tenant": given.OTHER}
    )

    assert answer.status_code == 202
    path = f"/events/{answer.json()['id']}"
    assert (await ask(world, "GET", path, who="super_admin")).json()["tenant"] == given.OTHER


async def test_the_list_is_filtered_and_paged(world: World) -> None:
    one = await told(world)
    other = await told(world, {"name": "list.created"})

    async def ids(**params: Any) -> list[str]:
        answer = await ask(world, "GET", "/events", params=params)
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["items"]]

    assert await ids() == [other, one]
    assert await ids(name="list.created") == [other]
    assert await ids(correlation_id="c") == [one]
    first = (await ask(world, "GET", "/events", params={"limit": 1})).json()
    assert await ids(cursor=first["next_cursor"]) == [one]
    for params in ({"cursor": "x"}, {"nme": "x"}):
        assert refusal(await ask(world, "GET", "/events", params=params)) == (422, "invalid_input")


async def test_what_is_not_there_is_not_replayed(world: World) -> None:
    event_id = await told(world)

    missing = await ask(world, "POST", f"/events/{uuid4()}/replay")
    for_nobody = await ask(world, "POST", f"/events/{event_id}/replay", json={"trigger_id": str(uuid4())})

    assert refusal(missing) == (404, "event_unknown")
    assert refusal(for_nobody) == (404, "trigger_unknown")


async def test_a_secret_of_an_event_is_masked_in_its_correlation_id_too(world: World) -> None:
    schema = {"type": "object", "properties": {"pin": {"type": "string", "x-secret": True}}}
    secretive = {"key": "secretive", "arg_schema": schema}
    await ask(world, "POST", "/admin/jobs/definitions", who="super_admin", json=secretive)
    await on_event(world, definition_key="secretive", payload_template={"pin": "{{event.pin}}"})
    pin = "canary-pin-of-32-characters-0001"
    said = {**EVENT, "data": {"pin": pin, "note": "mine"}, "correlation_id": f"c-{pin}"}

    event = await shown(world, await told(world, said))

    assert event["correlation_id"] == "c-[redacted]"
    assert event["data"] == {"pin": "[redacted]", "note": "mine"}
    assert "canary" not in (await ask(world, "GET", "/events")).text


async def test_what_was_a_secret_when_it_was_dispatched_stays_one_without_its_trigger(world: World) -> None:
    schema = {"type": "object", "properties": {"pin": {"type": "string", "x-secret": True}}}
    secretive = {"key": "secretive", "arg_schema": schema}
    await ask(world, "POST", "/admin/jobs/definitions", who="super_admin", json=secretive)
    trigger = await on_event(
        world, definition_key="secretive", payload_template={"pin": "{{event.folder.path}}"}
    )
    event_id = await told(world, {**EVENT, "data": {"folder": {"path": "canary-path"}}})
    await trigger_due(world.fl.database)

    await ask(world, "DELETE", f"/jobs/triggers/{trigger['id']}")

    assert (await shown(world, event_id))["data"] == {"folder": {"path": "[redacted]"}}
    again = (await ask(world, "POST", f"/events/{event_id}/replay")).json()["id"]
    assert (await shown(world, again))["data"] == {"folder": {"path": "[redacted]"}}
