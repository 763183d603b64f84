"""Hosts and resources over HTTP: what a tenant's admin sees and does."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests import given
from tests.server.world import World
from tests.tables import each_case
from tests.waiting import SECONDS


async def admin(world: World, method: str, path: str, *, status: int = 200, **more: Any) -> Any:
    answer = await world.call(method, path, who="tenant_admin", **more)
    assert answer.status_code == status, answer.text
    return answer.json()


async def refused(world: World, method: str, path: str, **more: Any) -> tuple[int, str]:
    answer = await world.call(method, path, **{"who": "tenant_admin", **more})
    return answer.status_code, str(answer.json()["code"])


async def new_host(world: World, name: str = "rack-1", **says: Any) -> Any:
    return await admin(world, "POST", "/hosts", status=201, json={"name": name, **says})


async def new_server(world: World, host: Mapping[str, Any], name: str = "lobby") -> Any:
    body = {"host_id": host["id"], "kind": "server", "name": name}
    return await admin(world, "POST", "/resources", status=201, json=body)


async def agents_token(world: World, host: Mapping[str, Any]) -> dict[str, str]:
    """The headers of a newly enrolled agent."""
    made = await admin(world, "POST", f"/hosts/{host['id']}/enrolment", status=201)
    enrolled = await world.call("POST", "/agent/enrol", who=None, json={"code": made["code"]})
    assert enrolled.status_code == 201, enrolled.text
    return {"Authorization": f"Bearer {enrolled.json()['token']}"}


async def test_a_host_is_registered_read_listed_and_changed(world: World) -> None:
    made = await new_host(world, labels={"zone": "a"})
    assert (made["name"], made["max_running"], made["labels"]) == ("rack-1", 1, {"zone": "a"})
    assert (made["online"], made["running"], made["paused_at"], made["draining"]) == (False, 0, None, False)
    assert (made["tenant_id"], made["created_by"]) == (
        str(world.tenants[given.TENANT]),
        "token:acme.tenant_admin",
    )
    path = f"/hosts/{made['id']}"
    assert await admin(world, "GET", path) == made
    page = await admin(world, "GET", "/hosts", params={"limit": 1})
    rest = await admin(world, "GET", "/hosts", params={"limit": 1, "cursor": page["next_cursor"]})
    assert [one["name"] for one in page["items"] + rest["items"]] == ["host", "rack-1"]

    changed = await admin(world, "PATCH", path, json={"max_running": 4, "name": "rack-one"})
    assert (changed["max_running"], changed["name"], changed["labels"]) == (4, "rack-one", {"zone": "a"})
    assert (await admin(world, "PATCH", path, json={"labels": {}}))["labels"] == {}


async def test_a_host_is_paused_with_a_note_drained_and_let_go_on(world: World) -> None:
    host = await new_host(world)
    path = f"/hosts/{host['id']}"
    paused = await admin(world, "PATCH", path, json={"paused": True, "note": "new disk"})
    assert (paused["pause_note"], paused["paused_by"]) == ("new disk", "token:acme.tenant_admin")
    drained = await admin(world, "PATCH", path, json={"draining": True})
    assert (drained["draining"], drained["pause_note"]) == (True, "new disk")
    free = await admin(world, "PATCH", path, json={"draining": False, "paused": False})
    assert (free["draining"], free["paused_at"], free["pause_note"]) == (False, None, None)


@each_case(
    "body",
    [
        {},
        {"name": ""},
        {"name": "x" * 201},
        {"name": "x", "max_running": 0},
        {"name": "x", "max_running": 10_001},
        {"name": "x", "labels": []},
        {"name": "x", "labels": {"deep": "x" * 20_000}},
        {"name": "x", "nonsense": 1},
    ],
)
async def test_a_host_that_cannot_be_is_refused(shared_world: World, body: Any) -> None:
    status, code = await refused(shared_world, "POST", "/hosts", json=body)

    assert (status, code) in ((422, "invalid_input"), (413, "payload_too_large"))


async def test_a_resource_is_registered_listed_and_moved(world: World) -> None:
    first, second = await new_host(world), await new_host(world, "rack-2")
    lobby = await new_server(world, first)
    assert (lobby["host_id"], lobby["host"], lobby["kind"]) == (first["id"], "rack-1", "server")
    moved = await admin(world, "PATCH", f"/resources/{lobby['id']}", json={"host_id": second["id"]})
    assert (moved["host_id"], moved["host"], moved["name"]) == (second["id"], "rack-2", "lobby")
    assert await admin(world, "GET", f"/resources/{lobby['id']}") == moved

    for query, names in (
        ({"host_id": first["id"]}, []),
        ({"host_id": second["id"]}, ["lobby"]),
        ({"kind": "server"}, ["lobby"]),
        ({"kind": "volume"}, []),
    ):
        found = await admin(world, "GET", "/resources", params=query)
        assert [one["name"] for one in found["items"]] == names


async def test_a_job_goes_to_the_host_that_its_body_or_its_resource_names(world: World) -> None:
    host = await new_host(world)
    lobby = await new_server(world, host)
    for where in ({"host_id": host["id"]}, {"resource_id": lobby["id"]}):
        body = {"definition_key": "anything", **where}
        one = await admin(world, "POST", "/jobs", status=201, json=body)
        [many] = (await admin(world, "POST", "/jobs/bulk", status=201, json={"jobs": [body]}))["items"]
        assert one["host_id"] == host["id"]
        assert (await admin(world, "GET", f"/jobs/{many['id']}"))["host_id"] == host["id"]


async def test_a_code_that_is_too_old_is_refused(world: World) -> None:
    host = await new_host(world)
    code = await admin(world, "POST", f"/hosts/{host['id']}/enrolment", status=201)
    await given.expire(world, "enrolment codes")

    answer = await refused(world, "POST", "/agent/enrol", who=None, json={"code": code["code"]})

    assert answer == (401, "enrolment_refused")


async def test_of_two_who_show_a_code_at_once_one_is_enrolled(world: World) -> None:
    host = await new_host(world)
    code = await admin(world, "POST", f"/hosts/{host['id']}/enrolment", status=201)
    shown = [world.call("POST", "/agent/enrol", who=None, json={"code": code["code"]}) for _ in range(4)]

    answers = await asyncio.gather(*shown)

    assert sorted(one.status_code for one in answers) == [201, 401, 401, 401]


async def queued_here(world: World, host: Mapping[str, Any]) -> str:
    body = {"definition_key": "anything", "host_id": host["id"]}
    return str((await admin(world, "POST", "/jobs", status=201, json=body))["id"])


async def test_a_host_is_removed_when_it_has_no_jobs_and_its_agent_is_cut_off(world: World) -> None:
    host = await new_host(world)
    lobby, path = await new_server(world, host), f"/hosts/{host['id']}"
    bearer = await agents_token(world, host)
    agent = f"/agent{path}"
    code = await admin(world, "POST", f"{path}/enrolment", status=201)
    session = await world.call("POST", f"{agent}/session", who=None, headers=bearer, json={"version": "1"})
    poll = {"session": session.json()["session_id"]}
    job_id = await queued_here(world, host)
    assert await refused(world, "DELETE", path) == (409, "host_in_use")
    params = {**poll, "wait": 30}
    taken = await world.call("GET", f"{agent}/jobs", who=None, headers=bearer, params=params)
    [job] = taken.json()["jobs"]
    answer = await world.call("DELETE", path, who="tenant_admin")
    assert "0 wait for it, and 1 run on it" in answer.json()["detail"]
    ended = {"attempt_no": 1, "lease_token": job["lease_token"], "status": "failed", "retryable": False}
    await world.call("POST", f"{agent}/jobs/{job_id}/result", who=None, headers=bearer, json=ended)
    params = {**poll, "wait": 30}
    waiting = asyncio.create_task(world.call("GET", f"{agent}/jobs", who=None, headers=bearer, params=params))

    assert (await admin(world, "DELETE", path))["name"] == "rack-1"
    async with asyncio.timeout(SECONDS):
        cut = await waiting
    assert cut.status_code in (401, 404)
    again = await world.call("GET", f"{agent}/jobs", who=None, headers=bearer, params=poll)
    assert (again.status_code, again.json()["code"]) == (401, "unauthenticated")
    enrol = await refused(world, "POST", "/agent/enrol", who=None, json={"code": code["code"]})
    assert enrol == (401, "enrolment_refused")
    assert await refused(world, "GET", path) == (404, "host_unknown")
    assert await refused(world, "DELETE", path) == (404, "host_unknown")
    assert await refused(world, "GET", f"/resources/{lobby['id']}") == (404, "resource_unknown")
    assert (await new_host(world))["id"] != host["id"]
