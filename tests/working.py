"""A worker in this process, and jobs that it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from fairlead import EnqueuedJob, Fairlead, JobFunction
from fairlead.model.job import Job, JobStatus
from fairlead.runtime.trigger_loops import run_triggers
from tests import given
from tests.given import TENANT
from tests.waiting import SECONDS


@asynccontextmanager
async def working(fl: Fairlead, *, concurrency: int = 100, **options: Any) -> AsyncIterator[asyncio.Event]:
    """A worker during the block, or until the event is set; then queue and record must agree."""
    stop = asyncio.Event()
    task = asyncio.create_task(fl.work(stop, concurrency=concurrency, **options))
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(task, SECONDS)
        await given.no_inconsistencies(fl.database)


@asynccontextmanager
async def working_and_dispatching(fl: Fairlead) -> AsyncIterator[None]:
    """A worker and a dispatcher, during the block."""
    async with working(fl, concurrency=20), run_triggers(fl.database, fl.database.url):
        yield


async def reopen(fl: Fairlead) -> None:
    """Publish the functions that the test has just added."""
    await fl.close()
    await fl.open()


async def start(fl: Fairlead, function: JobFunction[Any, Any] | str, **options: Any) -> EnqueuedJob:
    """A job of a function that the test has just added."""
    await reopen(fl)
    if isinstance(function, str):
        return await fl.enqueue(function, tenant=TENANT, **options)
    return await function.enqueue(tenant=TENANT, **options)


async def run(fl: Fairlead, function: JobFunction[Any, Any] | str, **options: Any) -> Job:
    """The job of such a function, once a worker and a dispatcher have ended it."""
    job = await start(fl, function, **options)
    async with working_and_dispatching(fl):
        return await ended(job)


async def until_asleep(fl: Fairlead, *jobs: UUID, number: int = 1) -> None:
    """Wait until so many durable functions wait without a worker: of these jobs, or of all."""
    async with asyncio.timeout(SECONDS):
        while await given.count_asleep(fl, *jobs) < number:
            await asyncio.sleep(0.02)


async def tick_until(fl: Fairlead, job_id: UUID | str, status: JobStatus = JobStatus.SUCCEEDED) -> Any:
    """Run what is due until the job has this status. Its output."""
    async with asyncio.timeout(SECONDS):
        while (job := await fl.read(job_id)).status is not status:
            await fl.tick()
    return job.output


async def ended(job: EnqueuedJob) -> Job:
    """The job, once it is over."""
    async with asyncio.timeout(SECONDS):
        while not (job_now := await job.read()).status.terminal:
            await asyncio.sleep(0.01)
    return job_now
