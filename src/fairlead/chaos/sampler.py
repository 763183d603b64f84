"""During a run: count the leases under each limit some times a second, and tell how far the run is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from fairlead.chaos.checks.limit_samples import SAMPLE
from fairlead.chaos.history import SampleRecord, now
from fairlead.chaos.site.open_site import Site
from fairlead.errors import DatabaseBusy, DatabaseUnreachable

SAMPLE_SECONDS = 0.2
TELL_SECONDS = 5.0
PROGRESS = """
select count(*), count(*) filter (where finished_at is not null) from fairlead.job_records
"""


@asynccontextmanager
async def run_sampler(site: Site) -> AsyncIterator[None]:
    """Sample during the block."""
    async with _run_during_block(_sample(site)):
        yield


@asynccontextmanager
async def run_progress(site: Site, tell: Callable[[str], object]) -> AsyncIterator[None]:
    """Tell how far the run is during the block, every few seconds."""
    async with _run_during_block(_tell(site, tell)):
        yield


@asynccontextmanager
async def _run_during_block(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _sample(site: Site) -> None:
    while True:
        rows = await _ask(site, SAMPLE)
        if rows is not None:
            site.history.write(SampleRecord(now(), dict(rows)))
        await asyncio.sleep(SAMPLE_SECONDS)


async def _tell(site: Site, tell: Callable[[str], object]) -> None:
    while True:
        await asyncio.sleep(TELL_SECONDS)
        rows = await _ask(site, PROGRESS)
        faults = f"{site.history.faults} faults"
        if rows is None:
            tell(f"{faults}; the database does not answer")
        else:
            [(jobs, ended)] = rows
            tell(f"{jobs:,} jobs, {ended:,} ended, {faults}")


async def _ask(site: Site, query: str) -> list[tuple[Any, ...]] | None:
    """The rows, or None while the database does not answer."""
    try:
        return await site.rows(query)
    except (DatabaseBusy, DatabaseUnreachable):
        return None
