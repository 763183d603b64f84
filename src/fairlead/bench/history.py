"""A drain with a million finished jobs, and with a million that are due later, in the tables."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fairlead.app import Fairlead
from fairlead.bench import backlog
from fairlead.bench.flat import flat
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.settings import Settings

ROUNDS = 3
JOBS = 20_000
ROWS = 1_000_000


async def measure_finished(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second with a long history."""
    return await flat(
        url,
        settings,
        progress,
        name="finished",
        cases={f"{ROWS:,} finished": _finished},
        jobs=JOBS,
        rounds=ROUNDS,
    )


async def measure_later(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second with many jobs that are due later."""
    return await flat(
        url, settings, progress, name="later", cases={f"{ROWS:,} due later": _later}, jobs=JOBS, rounds=ROUNDS
    )


@asynccontextmanager
async def _finished(fl: Fairlead, progress: Progress) -> AsyncIterator[Sequence[str]]:
    await backlog.finished(fl, ROWS, progress)
    yield (TENANT,)


@asynccontextmanager
async def _later(fl: Fairlead, progress: Progress) -> AsyncIterator[Sequence[str]]:
    await backlog.later(fl, ROWS, progress)
    yield (TENANT,)
