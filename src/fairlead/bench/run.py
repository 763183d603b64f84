"""Shared by all workloads: a scratch database, medians, and a consistency check."""

import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import msgspec

from fairlead.actions import tenants
from fairlead.db import migrate
from fairlead.db.database import Database
from fairlead.db.scratch import scratch_database
from fairlead.library.app import Fairlead
from fairlead.model.quota import Quota
from fairlead.settings import Settings
from fairlead.store import jobs, workflows

TENANT = "bench"
# some workloads have more than a million jobs
QUOTAS: Mapping[str, int] = {Quota.QUEUED_JOBS: 100_000_000}
Progress = Callable[[str], None]
Workload = Callable[[str, Settings, Progress], Awaitable["Measure"]]


class Measure(msgspec.Struct, frozen=True):
    """A workload's figure, with the limit of the same run."""

    workload: str
    value: float
    unit: str
    limit: float | None = None
    ratio: float | None = None
    note: str = ""


async def run(workload: Workload, url: str, settings: Settings, progress: Progress) -> Measure:
    """Run one workload in a scratch database, dropped afterwards."""
    async with scratch_database(url, f"fairlead_bench_{uuid4().hex[:12]}") as scratch:
        await migrate.up(scratch, settings.schema)
        own = replace(settings, database_url=scratch, direct_url=None)
        measure = await workload(scratch, own, progress)
        progress("checking the consistency of the queue")
        async with Database(scratch, own) as database:
            await check_consistency(database)
        return measure


async def check_consistency(database: Database) -> None:
    """Raise if the queue is inconsistent: its figures would be meaningless."""
    async with database.transaction(unhurried=True) as tx:
        problems = [*await jobs.list_inconsistencies(tx), *await workflows.list_inconsistencies(tx)]
    if problems:
        shown = "; ".join(f"{job_id or 'counts'}: {problem}" for job_id, problem in problems[:5])
        raise RuntimeError(f"the queue is inconsistent in {len(problems)} place(s): {shown}")


@asynccontextmanager
async def open_bench(settings: Settings) -> AsyncIterator[Fairlead]:
    """A Fairlead with one definition and one tenant."""
    fl = Fairlead(settings=settings, actor="bench")

    @fl.job(key="greet")
    async def greet(ctx: object, name: str, n: int = 0) -> None:
        """Do nothing, quickly."""

    async with fl:
        async with fl.transaction() as tx:
            await tenants.add(tx, fl.principal, slug=TENANT, quotas=QUOTAS)
        yield fl


def compare(name: str, values: list[float], limits: list[float], *, unit: str, note: str) -> Measure:
    """The median of the rounds, and the median of their ratios, since both sides of a round saw the same load."""
    ratios = [value / limit for value, limit in zip(values, limits, strict=True)]
    return Measure(
        name,
        round(statistics.median(values), 1),
        unit,
        round(statistics.median(limits), 1),
        round(statistics.median(ratios), 3),
        note,
    )
