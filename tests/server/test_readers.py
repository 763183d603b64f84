"""Viewers read what runs in their tenant, and see none of its secrets; operators also run workflows."""

from typing import Any
from uuid import UUID

from fairlead.runtime.trigger_loops import trigger_due
from fairlead.store import triggers
from tests import given
from tests.acting import act
from tests.server.test_canary import ON_EVENT, SECRETIVE, everything_shown
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


async def test_a_viewer_reads_everything_of_its_tenant_and_no_secret(world: World) -> None:
    ids = await _secrets_everywhere(world)
    trigger, event, run, host = (ids[name] for name in ("trigger", "event", "run", "host"))
    pages = ["/triggers", f"/triggers/{trigger}", "/events", f"/events/{event}", "/hosts", f"/hosts/{host}"]
    pages += ["/workflows", "/workflows/secretive-flow", "/workflow-runs", "/audit"]
    pages += [f"/workflow-runs/{run}", f"/workflow-runs/{run}/step?place=1"]

    shown = await everything_shown(world, ["viewer"])
    for path in pages:
        page = await world.call("GET", f"{BASE}/console{path}", who="viewer")
        assert page.status_code == 200, (path, page.status_code)
        shown += page.text

    assert [one for one in (*CANARIES, ids["code"], *world.secrets.values()) if one in shown] == []


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
    trigger = await act(world, triggers.get, UUID(ids["trigger"]))
    assert trigger is not None
    assert trigger.filter == {"password": {"in": [IN_FILTER, IN_EVENT]}}
    # another template may make the field public
    public = {"payload_template": {"note": "{{event.password}}"}}
    refused = await world.call("PATCH", path, who="tenant_admin", json=public)
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "filter")
    assert await world.status("PATCH", path, who="tenant_admin", json={**public, "filter": {}}) == 200
