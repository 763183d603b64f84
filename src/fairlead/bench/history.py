"""A drain with a million finished jobs, and with a million that are due later, in the tables.

BENCH_ROWS sets another number than a million.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fairlead.bench import backlog
from fairlead.bench.flat_drain import measure_flat
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.library.app import Fairlead
from fairlead.settings import Settings

ROUNDS = 3
JOBS = 20_000
ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))


async def measure_finished(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second with a long history."""
    return await measure_flat(
        url,
        settings,
        progress,
        name="finished",
        cases={f"{ROWS:,} finished": _with_finished},
        jobs=JOBS,
        rounds=ROUNDS,
    )


async def measure_later(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second with many jobs that are due later."""
    return await measure_flat(
        url,
        settings,
        progress,
        name="later",
        cases={f"{ROWS:,} due later": _with_later},
        jobs=JOBS,
        rounds=ROUNDS,
    )


@asynccontextmanager
async def _with_finished(fl: Fairlead, progress: Progress) -> AsyncIterator[Sequence[str]]:
    await backlog.add_finished(fl, ROWS, progress)
    yield (TENANT,)


@asynccontextmanager
async def _with_later(fl: Fairlead, progress: Progress) -> AsyncIterator[Sequence[str]]:
    await backlog.add_later(fl, ROWS, progress)
    yield (TENANT,)
