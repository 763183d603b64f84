"""The state of the database and of the whole system."""

from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.flow import Rate, read_rate
from fairlead.model.page import Page
from fairlead.store import bounded_page

sql = queries_beside(__file__)


class DatabaseFacts(msgspec.Struct, frozen=True):
    version: str
    encoding: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    clock: datetime
    role: str


class SystemGate(msgspec.Struct, frozen=True, kw_only=True):
    """Whether jobs are claimed at all, and the last change of that."""

    online: bool
    note: str | None
    changed_by: str | None
    changed_at: datetime


class TenantQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's part of the queue; the oldest job is the one that has been ready for the longest time."""

    tenant_id: UUID
    tenant: str
    name: str
    weight: int
    max_running: int | None
    paused_at: datetime | None
    queued: int
    running: int
    failed: int
    dead_letter: int
    oldest_queued_seconds: float | None


async def get_gate(tx: Tx) -> SystemGate:
    [found] = await tx.all(SystemGate, sql.gate)
    return found


async def get_rate(tx: Tx) -> Rate | None:
    """How many jobs of the system may start."""
    [(rate,)] = await tx.values(sql.rate)
    return read_rate(rate)


async def set_rate(tx: Tx, rate: Rate | None) -> bool:
    """Set or (None) remove the system's rate. Whether it changed."""
    return bool(await tx.run(sql.set_rate, {"rate": rate and json_text(rate)}))


async def list_queues(tx: Tx, *, after: str, limit: int) -> Page[TenantQueue]:
    """Each tenant's part of the queue, ordered by slug, after the given slug."""
    await tx.prefer_indexes()
    return await bounded_page.fetch_page(
        tx, TenantQueue, sql.queue, {"after": after}, limit=limit, weighed=("name",)
    )


async def list_row_security_faults(tx: Tx) -> list[str]:
    """The faults of row-level security."""
    return [what for (what,) in await tx.values(sql.row_security)]


async def read_facts(tx: Tx) -> DatabaseFacts:
    [found] = await tx.all(DatabaseFacts, sql.facts)
    return found


async def list_missing_rights(tx: Tx) -> list[str]:
    """The rights that the role needs and lacks."""
    return [what for (what,) in await tx.values(sql.rights)]


async def count_audit_days(tx: Tx) -> int:
    """The number of days, today included, that have a partition of the audit log."""
    [(days,)] = await tx.values(sql.audit_days)
    return int(days)
