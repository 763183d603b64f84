"""A long drain beside an open transaction, which keeps vacuum from removing dead rows."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fairlead.bench.flat_drain import measure_flat
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.library.app import Fairlead
from fairlead.settings import Settings

ROUNDS = 1
JOBS = 100_000


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second while the xmin horizon is pinned."""
    return await measure_flat(
        url,
        settings,
        progress,
        name="pinned",
        cases={"two open transactions": _pin_horizon},
        jobs=JOBS,
        rounds=ROUNDS,
    )


@asynccontextmanager
async def _pin_horizon(fl: Fairlead, _: Progress) -> AsyncIterator[Sequence[str]]:
    """Hold one transaction with a snapshot and one with a transaction id: each pins the horizon."""
    async with fl.transaction() as reader, fl.transaction() as writer:
        await reader.run("set transaction isolation level repeatable read")
        for tx in (reader, writer):  # ours end after a third of a lease; a pin has to last longer
            await tx.run("set local idle_in_transaction_session_timeout = 0")
        await reader.values("select count(*) from fairlead.jobs")
        await writer.values("select pg_current_xact_id()")
        yield (TENANT,)
