"""What a refusal quotes is masked before it is cut: half a secret would be shown."""

from typing import Any

import pytest

from fairlead.runtime.trigger_loops import trigger_due
from tests.server.test_canary import ON_EVENT
from tests.server.world import World

SECRET = "Beadc0de.7f3a.41bc.9d55.0c4e8aa2b791"  # noqa: S105
STRICT = {
    "key": "strict",
    "arg_schema": {
        "properties": {"password": {"type": "string", "x-secret": True}},
        "additionalProperties": {"type": "integer"},
    },
}


@pytest.fixture
async def strict(world: World) -> World:
    made = await world.call("POST", "/admin/jobs/definitions", who="super_admin", json=STRICT)
    assert made.status_code == 201, made.text
    return world


def table(filled: int) -> dict[str, Any]:
    """Fields that are refused, one of them with the secret in its name, behind so many characters: the longest comes last."""
    return {"a": "x", "b" * filled: "x", f"c{SECRET}{'d' * 1000}": "x"}


# The name may be cut at any place, whatever the words around it are.
FILLED = range(300, 1000, 15)


async def test_why_a_step_could_not_begin_holds_no_part_of_a_secret(strict: World) -> None:
    flow = {
        "key": "flow",
        "steps": [{"name": "one", "definition": "strict", "payload": "{{input.table}}"}],
        "input_schema": {"properties": {"password": {"type": "string", "x-secret": True}}},
    }
    assert await strict.status("POST", "/workflows", who="tenant_admin", json=flow) == 201
    for filled in FILLED:
        given_input = {"password": SECRET, "table": table(filled)}
        path = "/workflows/flow/runs"
        made = await strict.call("POST", path, who="tenant_admin", json={"input": given_input})
        run = await strict.call("GET", f"/workflows/runs/{made.json()['id']}", who="tenant_admin")
        [step] = run.json()["steps"]
        assert step["state"] == "failed"
        assert "Bead" not in str(step["error"]), filled


async def test_why_a_trigger_could_not_fire_holds_no_part_of_a_secret(strict: World) -> None:
    trigger = {**ON_EVENT, "definition_key": "strict", "payload_template": "{{event}}"}
    made = await strict.call("POST", "/jobs/triggers", who="tenant_admin", json=trigger)
    assert made.status_code == 201, made.text
    for filled in FILLED:
        event = {"name": "mail.wanted", "data": {"password": SECRET, **table(filled - 250)}}
        await strict.call("POST", "/events", who="application", json=event)
    await trigger_due(strict.fl.database)

    path = f"/jobs/triggers/{made.json()['id']}/firings"
    fired = (await strict.call("GET", path, who="tenant_admin", params={"limit": 100})).json()["items"]

    assert len(fired) == len(FILLED)
    assert {one["outcome"] for one in fired} == {"failed"}
    assert [one["detail"] for one in fired if "Bead" in one["detail"]] == []
