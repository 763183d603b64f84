"""What must still work in a mutant: a job is enqueued, run by a worker, and ends."""

import asyncio

from fairlead import Fairlead, Settings
from tests.given import TENANT


async def test_a_job_runs_and_ends(settings: Settings) -> None:
    fl = Fairlead(settings=settings)

    @fl.job
    async def add_one(number: int) -> int:
        return number + 1

    stop = asyncio.Event()
    async with fl:
        working = asyncio.create_task(fl.work(stop))
        made = [await add_one.enqueue(tenant=TENANT, number=number) for number in range(3)]
        results = [await one.result(timeout=60) for one in made]
        stop.set()
        await working

    assert results == [1, 2, 3]
