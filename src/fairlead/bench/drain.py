"""Drain of no-op jobs with one and with two worker processes, compared with as many bare claim-and-update loops."""

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
    """With the default settings; the note has the figures for the best ones."""
    values, best, limits = [], [], []
    async with open_drain_bench(settings) as fl:

        async def rate(concurrency: int | None) -> float:
            return await drain_rate(
                fl, settings, JOBS, uuid4().hex, processes=processes, concurrency=concurrency
            )

        for number in range(1, ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            limits.append(await asyncio.to_thread(measure_drain, url, JOBS, processes))
            values.append(await rate(None))
            best.append(await rate(CONCURRENCY))
    many = compare(name, best, limits, unit="jobs/s", note="")
    note = (
        f"default settings; with --concurrency {CONCURRENCY}: {many.value:.0f} jobs/s, ratio {many.ratio}; limit: "
        f"{processes} bare psycopg loop(s), claims of 100 and updates by key on a narrow table"
    )
    return compare(name, values, limits, unit="jobs/s", note=note)
