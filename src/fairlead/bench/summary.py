"""A tenant's summary and the first page of its jobs, with a million jobs and with a thousand."""

import statistics
import time
from collections.abc import Awaitable, Callable

from fairlead.actions import jobs, stats
from fairlead.app import Fairlead
from fairlead.bench import backlog
from fairlead.bench.draining import opened
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.scratch import settled
from fairlead.db.tx import Tx
from fairlead.settings import Settings

ROWS = 1_000_000
FEW = 1000
LOOKS = 200


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Milliseconds with many jobs, beside those with few: the mean of before and after."""
    async with opened(settings) as fl:
        looks = []
        for count in (FEW, ROWS, FEW):
            await backlog.emptied(fl)
            await backlog.finished(fl, count, progress)
            await settled(url)
            progress(f"looking at {count:,} jobs")
            looks.append(await _look(fl))
    [before, many, after] = looks
    value, limit = sum(many), (sum(before) + sum(after)) / 2
    return Measure(
        "summary",
        round(value, 3),
        "ms",
        round(limit, 3),
        round(value / limit, 3),
        f"{ROWS:,} jobs: summary {many[0]:.2f}, first page {many[1]:.2f}; limit: {FEW:,} jobs, "
        f"before {before[0]:.2f} + {before[1]:.2f}, after {after[0]:.2f} + {after[1]:.2f}",
    )


async def _look(fl: Fairlead) -> tuple[float, float]:
    """The medians of summary and page, in milliseconds."""
    principal, wanted = fl.principal, jobs.Filter(tenant=TENANT)
    return (
        await _median(fl, lambda tx: stats.overview(tx, principal, tenant=TENANT)),
        await _median(fl, lambda tx: jobs.listed(tx, principal, wanted)),
    )


async def _median(fl: Fairlead, look: Callable[[Tx], Awaitable[object]]) -> float:
    took = []
    for _ in range(LOOKS):
        begun = time.perf_counter()
        await fl.database.transact(look)
        took.append((time.perf_counter() - begun) * 1000)
    return statistics.median(took)
