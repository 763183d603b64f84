"""Viewers read what runs in their tenant, and see none of its secrets; operators also run workflows."""

from typing import Any
from uuid import UUID

import pytest

from fairlead.model.access import Role
from fairlead.runtime.trigger_loops import trigger_due
from fairlead.store import triggers
from tests import given
from tests.server.test_canary import ON_EVENT, SECRETIVE
from tests.server.world import BASE, World

IN_TEMPLATE = "canary-template-1d40"
IN_FILTER = "canary-filter-8e21"
IN_EVENT = "canary-event-66f0"
IN_STEP = "canary-step-09ba"
IN_INPUT = "canary-input-5c5c"
CANARIES = (IN_TEMPLATE, IN_FILTER, IN_EVENT, IN_STEP, IN_INPUT)
FLOW: dict[str, Any] = {
    "key": "secretive-flow",
    "steps": [
        {"name": "first", "definition": "secretive", "payload": {"password": IN_STEP}},
        {"name": "second", "definition": "secretive", "payload": {"password": "{{input.password}}"}},
    ],
}


async def _made(world: World, path: str, who: str = "tenant_admin", **body: Any) -> Any:
    answer = await world.call("POST", path, who=who, json=body)
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()


async def _secrets_everywhere(world: World) -> dict[str, str]:
    """The ids of a trigger, an event, a run and a host; each holds a secret."""
    await _made(world, "/admin/jobs/definitions", "super_admin", **SECRETIVE)
    template = {"password": "{{event.password}}", "smtp": {"key": IN_TEMPLATE}, "note": "plain"}
    rule: dict[str, Any] = {**ON_EVENT, "filter": {"password": {"in": [IN_FILTER, IN_EVENT]}}}
    trigger = await _made(world, "/jobs/triggers", **rule, payload_template=template)
    event = await _made(world, "/events", name=ON_EVENT["event_name"], data={"password": IN_EVENT})
    await trigger_due(world.fl.database)
    await _made(world, "/workflows", **FLOW)
    run = await _made(world, "/workflows/secretive-flow/runs", input={"password": IN_INPUT})
    host = world.hosts[given.TENANT]
    code = await _made(world, f"/hosts/{host}/enrolment")
    return {
        "trigger": trigger["id"],
        "event": event["id"],
        "run": run["id"],
        "host": str(host),
        "code": code["code"],
    }


def _routes(ids: dict[str, str]) -> list[str]:
    trigger, event, run, host = (ids[name] for name in ("trigger", "event", "run", "host"))
    return [
        "/jobs",
        "/jobs/triggers",
        f"/jobs/triggers/{trigger}",
        f"/jobs/triggers/{trigger}/firings",
        "/events",
        f"/events/{event}",
        "/workflows",
        "/workflows/secretive-flow",
        "/workflows/runs",
        f"/workflows/runs/{run}",
        "/hosts",
        f"/hosts/{host}",
        "/resources",
        "/audit",
    ]


def _pages(ids: dict[str, str]) -> list[str]:
    trigger, event, run, host = (ids[name] for name in ("trigger", "event", "run", "host"))
    return [
        "/triggers",
        f"/triggers/{trigger}",
        "/events",
        f"/events/{event}",
        "/workflows",
        "/workflows/secretive-flow",
        "/workflow-runs",
        f"/workflow-runs/{run}",
        f"/workflow-runs/{run}/step?place=1",
        "/hosts",
        f"/hosts/{host}",
        "/audit",
    ]


async def test_a_viewer_reads_everything_of_its_tenant_and_no_secret(world: World) -> None:
    ids = await _secrets_everywhere(world)
    hidden = [*CANARIES, ids["code"], *world.secrets.values()]
    cookie = await world.signed_in(Role.VIEWER)

    for path in _routes(ids):
        answer = await world.call("GET", path, who="viewer")
        assert answer.status_code == 200, (path, answer.text)
        assert [one for one in hidden if one in answer.text] == [], path
    for path in _pages(ids):
        page = await world.call("GET", f"{BASE}/console{path}", who=None, headers={"Cookie": cookie})
        assert page.status_code == 200, (path, page.status_code)
        assert [one for one in hidden if one in page.text] == [], path


async def test_a_viewer_cannot_test_guesses_of_a_secret_with_a_filter(world: World) -> None:
    ids = await _secrets_everywhere(world)
    guess = {"trigger_id": ids["trigger"], "event_id": ids["event"], "filter": {"password": IN_EVENT}}

    for who in ("viewer", "operator"):
        answer = await world.call("POST", "/jobs/triggers/preview", who=who, json=guess)
        assert answer.status_code == 403
    assert (await world.call("POST", "/jobs/triggers/preview", who="tenant_admin", json=guess)).json()[
        "matches"
    ]


async def test_a_trigger_that_is_sent_back_as_it_was_shown_keeps_the_secrets_of_its_filter(
    world: World,
) -> None:
    ids = await _secrets_everywhere(world)
    path = f"/jobs/triggers/{ids['trigger']}"
    shown = (await world.call("GET", path, who="tenant_admin")).json()
    assert shown["filter"] == {"password": {"in": "[redacted]"}}

    body = {"filter": shown["filter"], "label": "renamed"}
    answer = await world.call("PATCH", path, who="tenant_admin", json=body)

    assert (answer.status_code, answer.json()["label"]) == (200, "renamed")
    async with world.transaction() as tx:
        trigger = await triggers.get(tx, UUID(ids["trigger"]))
    assert trigger is not None
    assert trigger.filter == {"password": {"in": [IN_FILTER, IN_EVENT]}}
    # another template may make the field public
    public = {"payload_template": {"note": "{{event.password}}"}}
    refused = await world.call("PATCH", path, who="tenant_admin", json=public)
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "filter")
    assert (
        await world.call("PATCH", path, who="tenant_admin", json={**public, "filter": {}})
    ).status_code == 200


@pytest.mark.parametrize("who", ["operator", "tenant_admin"])
async def test_an_operator_starts_cancels_and_retries_runs(world: World, who: str) -> None:
    await _made(world, "/workflows", key="flow", steps=[{"name": "one", "definition": "anything"}])

    run = await _made(world, "/workflows/flow/runs", who, input={})
    path = f"/workflows/runs/{run['id']}"
    assert (await world.call("POST", f"{path}/cancel", who=who)).json()["status"] == "canceled"
    assert (await world.call("POST", f"{path}/retry", who=who)).json()["status"] == "running"
