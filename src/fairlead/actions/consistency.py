"""The walk through queue and record: in short transactions, so that no migration and no vacuum waits for it."""

from collections.abc import AsyncIterator
from functools import partial

from fairlead.actions.checks import SLEEPER_SECONDS
from fairlead.db.tx import Database, Tx
from fairlead.model.fault import Fault, Kind
from fairlead.store import checks, consistency

# How many of the newest jobs and runs are looked at, where not all are.
NEWEST = 20_000
NEWEST_RUNS = 1000


async def walk(database: Database, *, full: bool) -> AsyncIterator[Fault]:
    """Every fault, once: of all jobs, or of the newest and of what is not done."""
    seen: set[Fault] = set()
    async for fault in _walk(database, full=full):
        if fault not in seen:
            seen.add(fault)
            yield fault


async def _walk(database: Database, *, full: bool) -> AsyncIterator[Fault]:
    for look in (_sleepers, consistency.leases, consistency.levels):
        for fault in await database.transact(look):
            yield fault
    for walked in (_jobs(database, full=full), _keys(database, full=full), _runs(database, full=full)):
        async for fault in walked:
            yield fault
    if full:
        for tenant_id in await database.transact(consistency.tenants):
            for fault in await database.transact(
                partial(consistency.counts, tenant_id=tenant_id), unhurried=True
            ):
                yield fault


async def _sleepers(tx: Tx) -> list[Fault]:
    return [
        Fault(Kind.SLEEPING_PARENT, one.job_id, f"waits for run {one.run_id}, which is over")
        for one in await checks.sleepers(tx, seconds=SLEEPER_SECONDS)
    ]


async def _jobs(database: Database, *, full: bool) -> AsyncIterator[Fault]:
    place = None if full else await database.transact(partial(consistency.newest_place, look=NEWEST))
    while True:
        piece = await database.transact(partial(consistency.jobs, place=place))
        for fault in piece.faults:
            yield fault
        if (place := piece.place) is None:
            return


async def _keys(database: Database, *, full: bool) -> AsyncIterator[Fault]:
    place = consistency.KeyPlace()
    while True:
        faults, after = await database.transact(partial(consistency.keys, place=place))
        for fault in faults:
            yield fault
        if after is None or not full:
            return
        place = after


async def _runs(database: Database, *, full: bool) -> AsyncIterator[Fault]:
    place = None if full else await database.transact(partial(consistency.newest_run, look=NEWEST_RUNS))
    while True:
        piece = await database.transact(partial(consistency.runs, place=place))
        for fault in piece.faults:
            yield fault
        if (place := piece.place) is None:
            return
