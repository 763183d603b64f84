"""A million sleeping durable functions: how late others wake, what an idle worker does, and how fast a drain is.

BENCH_ROWS sets another number than a million.
"""

import asyncio
import os
import statistics
import time
from dataclasses import replace
from typing import NamedTuple
from uuid import uuid4

from fairlead.bench.backlog import add_sleeping
from fairlead.bench.drain_tools import (
    enqueue_jobs,
    open_drain_bench,
    poll_until,
    run_workers,
    wait_until_drained,
)
from fairlead.bench.idle import count_transactions
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.database import Database
from fairlead.db.scratch import settle_server
from fairlead.library.app import Fairlead
from fairlead.model.job import NewJob
from fairlead.settings import Settings

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
JOBS = 20_000
# Functions that sleep and wake, each at another time of these seconds.
SLEEPERS = 100
SHORTEST_SECONDS, MORE_SECONDS = 1.0, 4.0
IDLE_SECONDS = 20.0
# An idle connection reports its transactions to the statistics after ten seconds.
TOLD_SECONDS = 10.5
# Our own bound, in milliseconds.
LIMIT = 250.0

# How late they woke, in milliseconds. The handler's clock is the database's: both are on this machine.
_LATE = """
select 1000 * ((j.output #>> '{}')::float8 - extract(epoch from s.due_at)::float8)
from fairlead.jobs j join fairlead.job_steps s on s.job_id = j.id
where j.correlation_id = %s and j.status = 'succeeded'
"""


class Look(NamedTuple):
    """What was measured."""

    # milliseconds, the 50th and the 95th percentile
    median: float
    high: float
    # transactions per second of an idle worker
    idle: float
    # jobs per second
    drain: float


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """How late functions wake beside a million that sleep, in milliseconds."""
    progress("without sleepers")
    without = await _look(url, settings)
    async with open_drain_bench(settings) as fl:
        await add_sleeping(fl, ROWS, progress)
    progress(f"beside {ROWS:,} sleepers")
    beside = await _look(url, settings)
    note = (
        f"p95; p50 {beside.median:.1f} ms; without the {ROWS:,} sleepers {without.high:.1f} and {without.median:.1f} ms; "
        f"idle worker {beside.idle:.2f} transactions/s, without {without.idle:.2f}; drain {beside.drain:.0f} jobs/s, without "
        f"{without.drain:.0f}; limit: our own bound"
    )
    return Measure("sleepers", round(beside.high, 1), "ms", LIMIT, round(beside.high / LIMIT, 3), note)


async def _look(url: str, settings: Settings) -> Look:
    await settle_server(url)
    async with run_workers(settings):
        async with open_drain_bench(settings) as fl:
            late = await _wake(fl)
            mark = uuid4().hex
            await enqueue_jobs(fl, JOBS, mark)
            drain = await wait_until_drained(fl, mark)
        await settle_server(url)
        idle = await _count_idle(url, settings)
    return Look(statistics.median(late), statistics.quantiles(late, n=20)[18], idle, drain)


async def _wake(fl: Fairlead) -> list[float]:
    """Run functions that sleep; how late they woke, in milliseconds."""
    await (await fl.enqueue("noop", tenant=TENANT)).result(timeout=60)  # the worker is up
    mark = uuid4().hex
    await fl.enqueue_many(
        [
            NewJob(
                definition="sleeper",
                tenant=TENANT,
                correlation_id=mark,
                payload={"seconds": SHORTEST_SECONDS + MORE_SECONDS * number / SLEEPERS},
            )
            for number in range(SLEEPERS)
        ]
    )
    late = list[float]()

    async def is_done() -> bool:
        late[:] = [one for (one,) in await fl.database.transact(lambda tx: tx.values(_LATE, [mark]))]
        return len(late) == SLEEPERS

    await poll_until(is_done)
    return late


async def _count_idle(url: str, settings: Settings) -> float:
    """Transactions per second of the idle worker."""
    async with Database(url, replace(settings, pool_size=1)) as database:
        await asyncio.sleep(TOLD_SECONDS)
        await count_transactions(database)  # after this one, the statistics have all of our transactions
        before, begun = await count_transactions(database), time.perf_counter()
        await asyncio.sleep(IDLE_SECONDS)
        after = await count_transactions(database)
        return (after - before - 1) / (time.perf_counter() - begun)
