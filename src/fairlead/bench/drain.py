"""Drain of no-op jobs with one and with two worker processes, compared with a bare claim-and-update loop."""

import asyncio
from uuid import uuid4

from fairlead.bench.drain_tools import CONCURRENCY, drain_rate, open_drain_bench
from fairlead.bench.run import Measure, Progress, compare
from fairlead.db.scratch import measure_drain
from fairlead.settings import Settings

ROUNDS = 3
JOBS = 20_000


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second with one worker process."""
    return await _drain("drain", 1, url, settings, progress)


async def measure_two(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second with two worker processes."""
    return await _drain("drain2", 2, url, settings, progress)


async def _drain(name: str, processes: int, url: str, settings: Settings, progress: Progress) -> Measure:
    values, limits = [], []
    async with open_drain_bench(settings) as fl:
        for number in range(1, ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            limits.append(await asyncio.to_thread(measure_drain, url, JOBS))
            values.append(await drain_rate(fl, settings, JOBS, uuid4().hex, processes=processes))
    note = f"concurrency {CONCURRENCY}; limit: bare psycopg loop, claims of 100 and updates by key on a narrow table"
    return compare(name, values, limits, unit="jobs/s", note=note)
