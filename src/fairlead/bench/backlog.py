"""Fills the tables by plain SQL as after long use: many finished, queued or later jobs."""

from collections.abc import Sequence
from uuid import UUID

from fairlead.bench.run import TENANT, Progress, check_consistency
from fairlead.db.sql import queries_beside
from fairlead.library.app import Fairlead

sql = queries_beside(__file__)

BATCH = 100_000


async def add_finished(fl: Fairlead, count: int, progress: Progress, *, tenant: str = TENANT) -> None:
    """Add finished jobs."""
    await _fill(fl, sql.finished, count, progress, tenant=tenant, definition="noop")


async def add_later(fl: Fairlead, count: int, progress: Progress, *, tenant: str = TENANT) -> None:
    """Add jobs that are not due for an hour."""
    await _fill(fl, sql.later, count, progress, tenant=tenant, definition="noop")


async def add_sleeping(fl: Fairlead, count: int, progress: Progress, *, tenant: str = TENANT) -> None:
    """Add durable functions that sleep for an hour or longer."""
    await _fill(fl, sql.sleeping, count, progress, tenant=tenant, definition="sleeper")


async def add_queued(
    fl: Fairlead,
    count: int,
    progress: Progress,
    *,
    tenant: str = TENANT,
    definition: str = "noop",
    hosts: Sequence[UUID] | None = None,
) -> None:
    """Add due jobs, of higher priority than those that a workload enqueues."""
    values = {"tenant": tenant, "definition": definition, "hosts": hosts and list(hosts)}
    await _fill(fl, sql.queued, count, progress, **values)


async def _fill(fl: Fairlead, query: str, count: int, progress: Progress, **values: object) -> None:
    for first in range(1, count + 1, BATCH):
        progress(f"filling the tables, {first - 1:,} of {count:,}")
        batch = {"count": count, "first": first, "last": min(first + BATCH - 1, count), **values}
        await fl.database.transact(lambda tx, batch=batch: tx.run(query, batch), unhurried=True)  # type: ignore[misc]


async def add_hosts(fl: Fairlead, count: int, *, tenant: str) -> list[UUID]:
    """Add `count` hosts of a tenant."""
    rows = await fl.database.transact(lambda tx: tx.values(sql.hosts, {"count": count, "tenant": tenant}))
    return [host for (host,) in rows]


async def add_tenants(fl: Fairlead, count: int, *, name: str) -> list[str]:
    """Add `count` tenants; their slugs."""
    rows = await fl.database.transact(lambda tx: tx.values(sql.tenants, {"count": count, "name": name}))
    return [slug for (slug,) in rows]


async def count_waiting(fl: Fairlead) -> int:
    """How many jobs are due and not claimed."""
    [(number,)] = await fl.database.transact(lambda tx: tx.values(sql.waiting))
    return int(number)


async def remove_jobs(fl: Fairlead) -> None:
    """Remove all jobs and their records, except from the audit log, after a consistency check."""
    await check_consistency(fl.database)
    await fl.database.transact(lambda tx: tx.run(sql.emptied))
