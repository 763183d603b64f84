"""`GET /queue/depth`: what an autoscaler asks."""

import asyncio
from typing import Any

import pytest

from fairlead.actions import definitions, gates, tenants
from fairlead.store import queue_depth
from tests import given
from tests.acting import act
from tests.server.world import World
from tests.waiting import SECONDS


async def depth(world: World, who: str = "viewer", **query: Any) -> tuple[int, int, int]:
    """What is claimable, what runs, and both."""
    answer = await world.call("GET", "/queue/depth", who=who, params=query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["definition_key"] == query.get("definition")
    return found["claimable"], found["running"], found["depth"]


async def test_a_tenant_counts_its_own_jobs_that_workers_run_or_could_start(world: World) -> None:
    assert await depth(world) == (0, 0, 0)
    async with world.fl.transaction() as tx:
        await given.running_job(tx)
        await given.queued_job(tx)
        await given.queued_job(tx, definition="anything")
        await given.queued_job(tx, delay=3600)
        await given.queued_job(tx, tenant=given.OTHER)

    assert await depth(world) == (2, 1, 3)
    assert await depth(world, definition="greet") == (1, 1, 2)
    assert await depth(world, definition="anything") == (1, 0, 1)


async def test_a_super_admin_counts_all_tenants_or_the_one_it_names(world: World) -> None:
    async with world.fl.transaction() as tx:
        await given.running_job(tx)
        await given.queued_job(tx, tenant=given.OTHER)

    everywhere = (await world.call("GET", "/queue/depth", who="super_admin")).json()
    named = {"X-Tenant": given.OTHER}
    one = (await world.call("GET", "/queue/depth", who="super_admin", headers=named)).json()

    assert (everywhere["claimable"], everywhere["running"]) == (1, 1)
    assert (one["claimable"], one["running"]) == (1, 0)


async def test_a_job_that_is_due_counts_before_a_worker_stages_it(world: World) -> None:
    await given.queued_job(world, delay=0.5)

    async with asyncio.timeout(SECONDS):
        while await depth(world) != (1, 0, 1):
            await asyncio.sleep(0.01)
    assert await given.count(world, "later") == 1


async def test_jobs_that_more_workers_would_not_start_are_left_out(world: World) -> None:
    async with world.fl.transaction() as tx:
        await given.running_job(tx)
        for _ in range(3):
            await given.queued_job(tx)
        await definitions.patch(tx, given.TESTER, "greet", {"max_running_per_tenant": 2, "slots": 4})
    assert await depth(world) == (1, 1, 2)
    assert (await world.call("GET", "/queue/depth", who="viewer")).json()["slots"] == 8

    await act(world.fl, tenants.change, given.TESTER, given.TENANT, {"max_running": 1})
    assert await depth(world) == (0, 1, 1)

    async with world.fl.transaction() as tx:
        await tenants.change(tx, given.TESTER, given.TENANT, {"max_running": None})
        await gates.pause(tx, given.TESTER, definition="greet")
    assert await depth(world) == (0, 1, 1)


async def test_a_queue_is_counted_up_to_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_depth, "MOST_DUE", 2)
    async with world.fl.transaction() as tx:
        for _ in range(4):
            await given.queued_job(tx)

    assert await depth(world) == (2, 0, 2)


async def test_many_tenants_share_the_bound_and_a_long_queue_gets_what_short_ones_leave(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_depth, "LEAST_DUE", 1)
    monkeypatch.setattr(queue_depth, "BUDGET", 4)
    async with world.fl.transaction() as tx:
        for _ in range(10):
            await given.queued_job(tx)
        await given.queued_job(tx, tenant=given.OTHER)
    uneven = (await world.call("GET", "/queue/depth", who="super_admin")).json()
    async with world.fl.transaction() as tx:
        for _ in range(9):
            await given.queued_job(tx, tenant=given.OTHER)
    even = (await world.call("GET", "/queue/depth", who="super_admin")).json()

    # each pair counts 4 / 2; then the pairs that have more count 4 more between them
    assert uneven["claimable"] == (2 + 4) + 1
    assert even["claimable"] == (2 + 2) + (2 + 2)


async def test_an_unknown_definition_is_refused(world: World) -> None:
    answer = await world.call("GET", "/queue/depth", who="viewer", params={"definition": "gret"})

    assert (answer.status_code, answer.json()["code"]) == (422, "definition_unknown")
