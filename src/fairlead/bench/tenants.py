"""A drain of the jobs of a thousand tenants."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fairlead.bench import backlog
from fairlead.bench.flat_drain import measure_flat
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.library.app import Fairlead
from fairlead.settings import Settings

ROUNDS = 3
JOBS = 20_000
TENANTS = 1000


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second of tenants with equally many jobs, and with one tenant that floods."""
    cases = {f"{TENANTS:,} tenants": _with_equal_tenants, f"{TENANTS:,} and one that floods": _with_flood}
    return await measure_flat(url, settings, progress, name="tenants", cases=cases, jobs=JOBS, rounds=ROUNDS)


@asynccontextmanager
async def _with_equal_tenants(fl: Fairlead, _: Progress) -> AsyncIterator[Sequence[str]]:
    yield await backlog.add_tenants(fl, TENANTS, name="tenant")


@asynccontextmanager
async def _with_flood(fl: Fairlead, _: Progress) -> AsyncIterator[Sequence[str]]:
    slugs = await backlog.add_tenants(fl, TENANTS, name="tenant")
    yield [TENANT] * len(slugs) + slugs  # every other job is the flooder's
