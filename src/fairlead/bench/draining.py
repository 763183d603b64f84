"""What the drain workloads share: jobs to drain, worker processes to drain them, and the rate from the database's clock."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.app import Fairlead
from fairlead.bench.app import noop, stamp
from fairlead.bench.run import TENANT
from fairlead.model.job import NewJob
from fairlead.settings import Settings

CONCURRENCY = 1000
SECONDS = 300

# The first claim to the last finish of jobs enqueued since, by the database's clock.
_RATE = """
select count(*) / extract(epoch from max(a.finished_at) - min(a.started_at))
from fairlead.job_attempts a join fairlead.jobs j on j.id = a.job_id where j.correlation_id = %s
"""
_LEFT = "select coalesce(sum(queued) + sum(running), 0) from fairlead.counts where definition_id = %s"


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Fairlead]:
    """A Fairlead that knows the benchmarks' jobs, with one tenant."""
    fl = Fairlead(settings=settings, actor="bench")
    for function in (noop, stamp):
        fl.job(key=function.key)(function.function)
    async with fl:
        await fl.add_tenant(TENANT, exist_ok=True)
        yield fl


@asynccontextmanager
async def workers(settings: Settings, processes: int = 1, **env: str) -> AsyncIterator[None]:
    """Worker processes as anybody would start them."""
    argv = [sys.executable, "-m", "fairlead.cli", "worker", "fairlead.bench.app:fl"]
    environment = {**os.environ, "FAIRLEAD_DATABASE_URL": str(settings.database_url), **env}
    environment["FAIRLEAD_SCHEMA"] = settings.schema
    started = [
        await asyncio.create_subprocess_exec(
            *argv, "--concurrency", str(CONCURRENCY), env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in started:
            if process.returncode is None:
                process.terminate()
        for process in started:
            await process.wait()


async def loaded(fl: Fairlead, count: int, mark: str, tenants: list[str] | None = None) -> None:
    """No-op jobs, spread over the tenants."""
    names = tenants or [TENANT]
    await fl.enqueue_many(
        [NewJob(definition="noop", tenant=names[n % len(names)], correlation_id=mark) for n in range(count)]
    )


async def drained(fl: Fairlead, mark: str) -> float:
    """Wait until nothing of ours waits or runs; jobs a second."""
    definition = (
        await fl.database.transact(
            lambda tx: tx.values("select id from fairlead.job_definitions where key = 'noop'")
        )
    )[0][0]
    async with asyncio.timeout(SECONDS):
        while True:
            [(left,)] = await fl.database.transact(lambda tx: tx.values(_LEFT, [definition]))
            if left <= 0:
                break
            await asyncio.sleep(0.05)
    [(rate,)] = await fl.database.transact(lambda tx: tx.values(_RATE, [mark]))
    return float(rate)


async def drain_rate(
    fl: Fairlead,
    settings: Settings,
    count: int,
    mark: str,
    *,
    processes: int = 1,
    tenants: list[str] | None = None,
) -> float:
    """Load so many jobs, then start the workers, and measure."""
    await loaded(fl, count, mark, tenants)
    async with workers(settings, processes):
        return await drained(fl, mark)
