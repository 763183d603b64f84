"""The database's own state of health."""

from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.page import Page
from fairlead.store import bounded

sql = queries_beside(__file__)


class Facts(msgspec.Struct, frozen=True):
    version_num: int
    version: str
    encoding: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    clock: datetime
    role: str


class SystemGate(msgspec.Struct, frozen=True, kw_only=True):
    """Whether jobs are claimed at all, and who last changed that."""

    online: bool
    note: str | None
    changed_by: str | None
    changed_at: datetime


class TenantQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's part of the queue; the oldest is the one that could run for the longest."""

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


async def gate(tx: Tx) -> SystemGate:
    [found] = await tx.all(SystemGate, sql.gate)
    return found


async def queue(tx: Tx, *, after: str, limit: int) -> Page[TenantQueue]:
    """Each tenant's part of the queue, by slug, after this one."""
    await tx.by_index()
    return await bounded.page(tx, TenantQueue, sql.queue, {"after": after}, limit=limit, weighed=("name",))


async def row_security_faults(tx: Tx) -> list[str]:
    """What is wrong with row-level security."""
    return [what for (what,) in await tx.values(sql.row_security)]


async def facts(tx: Tx) -> Facts:
    [found] = await tx.all(Facts, sql.facts)
    return found


async def missing_rights(tx: Tx) -> list[str]:
    """What the role may not do and would have to."""
    return [what for (what,) in await tx.values(sql.rights)]


async def audit_days(tx: Tx) -> int:
    """How many days, today included, the audit log is prepared for."""
    [(days,)] = await tx.values(sql.audit_days)
    return int(days)
