"""Jobs that wait for a rate go to workers over HTTP and to agents when it opens; nothing polls for them meanwhile."""

import asyncio

import pytest

from fairlead.actions import definitions
from fairlead.server import host_watcher
from tests import given
from tests.acting import act
from tests.server.test_agent_polling import Waiting
from tests.server.test_repeated_claims import claimed, complete
from tests.server.world import World, world_on
from tests.waiting import SECONDS

# Long enough that nothing is found by polling.
NEVER_SECONDS = 3600.0
ONE_A_SECOND = {"limit": 1, "per_seconds": 1, "burst": 1}


async def limit(world: World, key: str, **fields: object) -> None:
    await act(world.fl.database, definitions.patch, given.TESTER, key, {"rate": ONE_A_SECOND, **fields})


async def test_a_waiting_claim_over_http_gets_its_job_when_the_rate_opens(database_url: str) -> None:
    async with world_on(database_url, poll_seconds=NEVER_SECONDS) as world:
        await limit(world, "anything")
        jobs = [(await world.fl.enqueue("anything", tenant=given.TENANT)).id for _ in range(3)]
        async with asyncio.timeout(SECONDS):
            taken = [item for _ in jobs for item in await claimed(world, None, limit=3, wait=30)]
        assert [item["job_id"] for item in taken] == [str(job) for job in jobs]
        for item in taken:
            await complete(world, item)


async def test_an_agent_that_waits_gets_its_job_when_the_rate_opens(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_watcher, "LOOK_SECONDS", NEVER_SECONDS)
    await limit(world, "on_host", kind="host")
    agent = Waiting(world)
    await agent.start()
    jobs = [await agent.enqueue() for _ in range(3)]
    for job in jobs:
        async with asyncio.timeout(SECONDS):
            [taken] = (await agent.poll(wait=30))["jobs"]
        assert taken["job_id"] == str(job)
        await agent.succeed(taken)
