"""A thing has the same names in every face; the names of earlier versions are taken, too."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests import given
from tests.server import matrix
from tests.server.test_agent_polling import lease
from tests.server.test_agents_api import agent, server_job, session
from tests.server.world import World

EACH = [{"definition_key": "anything"}, {"definition": "anything"}]


@pytest.mark.parametrize("named", EACH, ids=str)
async def test_a_definition_is_named_by_either_name(shared_world: World, named: dict[str, Any]) -> None:
    trigger = {"label": "x", "trigger_type": "schedule", "every_seconds": 3600, **named}
    step = {"key": "w", "steps": [{"name": "only", **named}]}

    job = await shared_world.call("POST", "/jobs", json=named)
    many = await shared_world.call("POST", "/jobs/bulk", json={"jobs": [named]})
    made = await shared_world.call("POST", "/jobs/triggers", who="tenant_admin", json=trigger)
    workflow = await shared_world.call("POST", "/workflows", who="tenant_admin", json=step)
    listed = await shared_world.call("GET", "/jobs", params={**named, "limit": 1})
    counted = await shared_world.call("POST", "/jobs/cancel", json={"filter": named, "dry_run": True})
    triggers = await shared_world.call("GET", "/jobs/triggers", who="tenant_admin", params=named)

    assert (job.status_code, job.json()["definition_key"]) == (201, "anything")
    assert many.status_code == 201
    assert (made.status_code, made.json()["definition_key"]) == (201, "anything")
    assert workflow.json()["spec"]["steps"][0]["definition"] == "anything"
    assert [one["definition_key"] for one in listed.json()["items"]] == ["anything"]
    assert counted.json()["count"] >= 2
    assert triggers.json()["items"]


async def test_both_names_at_once_are_refused(shared_world: World) -> None:
    both = {"definition_key": "anything", "definition": "greet"}

    made = await shared_world.call("POST", "/jobs", json=both)
    listed = await shared_world.call("GET", "/jobs", params=both)

    assert (made.status_code, made.json()["errors"]) == (
        422,
        [{"path": "definition", "message": "unknown field"}],
    )
    assert (listed.status_code, listed.json()["code"]) == (422, "invalid_input")
    assert (
        listed.json()["detail"]
        == "definition_key and definition are names of the same parameter: send only one."
    )


@pytest.mark.parametrize("name", ["delay_seconds", "delay"])
async def test_a_job_is_delayed_over_http_as_in_the_library(shared_world: World, name: str) -> None:
    before = datetime.now(UTC)
    made = await shared_world.call("POST", "/jobs", json={"definition_key": "anything", name: 90})

    due, queued = (datetime.fromisoformat(made.json()[name]) for name in ("scheduled_for", "queued_at"))
    assert before <= due - timedelta(seconds=90) <= queued


@pytest.mark.parametrize(
    "told",
    [
        {"error": {"type": "NoDisk", "message": "no disk", "traceback": "there"}},
        {"error_type": "NoDisk", "error_message": "no disk", "traceback": "there"},
    ],
    ids=["error", "earlier names"],
)
async def test_an_agent_says_and_is_told_what_a_worker_would_be(world: World, told: dict[str, Any]) -> None:
    _, job = await server_job(world)
    mine = await session(world)
    word = await agent(world, "GET", "/jobs", params={"session": mine, "wait": 30})
    [taken] = word["items"]
    await agent(world, "POST", f"/jobs/{job['id']}/accept", json=lease(taken))
    ended = {**lease(taken), "status": "failed", "retryable": False, **told}

    await agent(world, "POST", f"/jobs/{job['id']}/result", json=ended)

    assert word["jobs"] == word["items"]
    error = (await world.call("GET", f"/jobs/{job['id']}")).json()["error"]
    assert (error["type"], error["message"], error["traceback"]) == ("NoDisk", "no disk", "there")


async def test_lists_name_tenants_beside_their_ids(world: World) -> None:
    resource = {"host_id": str(world.hosts[given.TENANT]), "kind": "server", "name": "lobby"}
    person = {"email": "ada@acme.example", "password": "correct horse battery", "role": "viewer"}
    for path, body in (("/resources", resource), ("/users", person), ("/workflows", matrix.WORKFLOW)):
        assert await world.status("POST", path, who="tenant_admin", json=body) == 201
    await world.call("POST", "/jobs", json={"definition_key": "anything"})
    slugs = {str(tenant_id): slug for slug, tenant_id in world.tenants.items()}

    for path in ("/tokens", "/users", "/hosts", "/resources", "/workflows", "/audit", "/jobs"):
        for who in ("tenant_admin", "super_admin"):
            items = (await world.call("GET", path, who=who)).json()["items"]
            assert items, path
            named = {(one["tenant_id"], one["tenant"]) for one in items}
            assert named <= {*slugs.items(), (None, None)}, (path, who)


async def test_a_shared_workflow_is_the_tenant_globals(world: World) -> None:
    await world.call("POST", "/workflows", who="super_admin", json=matrix.WORKFLOW)

    [shared] = (await world.call("GET", "/workflows", who="tenant_admin")).json()["items"]

    assert (shared["is_shared"], shared["tenant"]) == (True, "global")
