"""Single leases: the statements of workers that have no database connection."""

from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.job import Lease
from fairlead.model.outcome import Backoff

sql = queries_beside(__file__)


class LeaseOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a lease that exists or existed: its tenant, its used retries, and the worker that claimed it."""

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


async def find_job(tx: Tx, lease: Lease) -> LeaseOwner | None:
    """The job of a lease, whether or not the lease still exists; None if it never existed."""
    return await tx.first(LeaseOwner, sql.owned, lease_params(lease))


async def remaining_seconds(tx: Tx, lease: Lease) -> float | None:
    """The seconds until a lease expires; None if it has ended."""
    rows = await tx.values(sql.remaining, lease_params(lease))
    return float(rows[0][0]) if rows else None


async def mark_owner_seen(tx: Tx, worker_id: str) -> None:
    """Note that a worker that renews its leases is alive."""
    await tx.run(sql.owner_seen, {"worker_id": worker_id})


async def has_ready_job(tx: Tx, tenant_id: UUID) -> bool:
    """Whether a tenant has a ready job, gates and limits aside."""
    return bool(await tx.values(sql.any_ready, {"tenant_id": tenant_id}))


def lease_params(lease: Lease) -> dict[str, object]:
    """The parameters that identify a lease in statements."""
    return {"job_id": lease.job_id, "attempt_no": lease.attempt_no, "token": lease.token}
