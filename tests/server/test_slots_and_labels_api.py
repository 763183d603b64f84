"""Slots and labels over the API: of definitions, of workers over HTTP and of agents."""

from typing import Any

from fairlead.actions import definitions, hosts
from tests import given
from tests.acting import act
from tests.server.test_agents_api import agent, session
from tests.server.test_worker_api import claim, enqueued
from tests.server.world import World
from tests.tables import each_case

GPU = {"gpu": "true"}


async def set_fields(world: World, key: str = "anything", **fields: Any) -> None:
    await act(world.fl.database, definitions.patch, given.TESTER, key, fields)


async def test_a_definition_has_slots_and_labels(world: World) -> None:
    body = {"key": "render", "slots": 4, "requires": GPU, "prefers": {"region": "eu"}}
    made = await world.call("POST", "/admin/jobs/definitions", who="super_admin", json=body)
    assert made.status_code == 201, made.text
    assert {name: made.json()[name] for name in body} == body
    path = "/admin/jobs/definitions/render"
    changed = await world.call("PATCH", path, who="super_admin", json={"requires": None, "slots": 1})
    assert (changed.json()["requires"], changed.json()["slots"]) == (None, 1)
    assert changed.json()["prefers"] == {"region": "eu"}


@each_case(
    "fields",
    [
        {"slots": 0},
        {"slots": 10_001},
        {"requires": {"": "x"}},
        {"prefers": {"gpu": "x" * 64}},
        {"requires": {"a": 1}},
    ],
)
async def test_wrong_slots_and_labels_are_refused(shared_world: World, fields: dict[str, Any]) -> None:
    path = "/admin/jobs/definitions/anything"
    refused = await shared_world.call("PATCH", path, who="super_admin", json=fields)
    assert refused.status_code in (400, 422), refused.text
    [name] = fields
    assert name in refused.text


async def test_a_worker_over_http_gets_jobs_for_its_slots_and_labels(world: World) -> None:
    await set_fields(world, slots=3, requires=GPU)
    for _ in range(3):
        await enqueued(world)
    asked = {"worker_id": "box", "definitions": ["anything"]}
    assert (await claim(world, **asked, limit=9, slots=9)).json()["items"] == []
    assert (await claim(world, **asked, limit=2, slots=2, labels=GPU)).json()["items"] == []
    first, second = (await claim(world, **asked, limit=8, slots=9, labels=GPU)).json()["items"]
    assert (first["slots"], second["slots"]) == (3, 3)
    # a worker that counts no slots gets jobs by number
    assert len((await claim(world, **asked, limit=1, labels=GPU)).json()["items"]) == 1

    workers = (await world.call("GET", "/admin/workers", who="super_admin")).json()["items"]
    [box] = [one for one in workers if one["worker_id"].endswith(":box")]
    assert (box["concurrency"], box["labels"]) == (9, {})  # as it said when it was first seen


async def test_the_labels_of_a_worker_are_checked_and_shown(world: World) -> None:
    refused = await claim(world, labels={"no spaces": "x"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input"), refused.text
    await claim(world, worker_id="eu", slots=7, labels={"region": "eu"})
    workers = (await world.call("GET", "/admin/workers", who="super_admin")).json()["items"]
    [box] = [one for one in workers if one["worker_id"].endswith(":eu")]
    assert (box["concurrency"], box["labels"]) == (7, {"region": "eu"})


async def test_an_agent_gets_jobs_for_its_slots_and_its_hosts_labels(world: World) -> None:
    host_id = world.hosts[given.TENANT]
    await set_fields(world, slots=3, requires=GPU)
    await act(world.fl.database, hosts.change, given.TESTER, host_id, {"max_running": 9})
    for _ in range(3):
        await enqueued(world, host_id=host_id)
    asked = {"session": await session(world), "wait": 0}

    async def take(**params: Any) -> list[Any]:
        return list((await agent(world, "GET", "/jobs", params={**asked, **params}))["jobs"])

    assert await take(limit=9, slots=9) == []
    await act(world.fl.database, hosts.change, given.TESTER, host_id, {"labels": {"gpu": True}})
    assert await take(limit=2, slots=9) == []
    taken = await take(limit=8, slots=9)
    assert [one["slots"] for one in taken] == [3, 3]
