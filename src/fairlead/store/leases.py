"""Leases one by one: what a worker without a connection of its own says of them."""

from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.job import Lease
from fairlead.model.outcome import Backoff

sql = queries_beside(__file__)


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    """Whose job a lease is or was of, what the job has used up, and who claimed it."""

    tenant_id: UUID
    host_id: UUID | None
    definition_key: str
    worker_id: str
    max_attempts: int
    failure_count: int
    lost_count: int
    backoff: Backoff
    secret_paths: tuple[str, ...]
    payload: Any  # only where there are secrets in it


async def owned(tx: Tx, lease: Lease) -> Owned | None:
    """What a lease is of, whether or not it still holds; None if nobody ever had it."""
    return await tx.first(Owned, sql.owned, named(lease))


async def remaining(tx: Tx, lease: Lease) -> float | None:
    """Seconds that are left of a lease; None if it is over."""
    rows = await tx.values(sql.remaining, named(lease))
    return float(rows[0][0]) if rows else None


async def owner_seen(tx: Tx, worker_id: str) -> None:
    """Who renews a lease is there."""
    await tx.run(sql.owner_seen, {"worker_id": worker_id})


async def any_ready(tx: Tx, tenant_id: UUID) -> bool:
    """Whether a tenant has a job that could be claimed, as far as the queue itself says."""
    return bool(await tx.values(sql.any_ready, {"tenant_id": tenant_id}))


def named(lease: Lease) -> dict[str, object]:
    """A lease as the statements name it."""
    return {"job_id": lease.job_id, "attempt_no": lease.attempt_no, "token": lease.token}
