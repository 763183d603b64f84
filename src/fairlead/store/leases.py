"""Single leases: the statements of workers that have no database connection."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.job import Lease
from fairlead.model.outcome import Backoff
from fairlead.store import sealing

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
    found = await tx.first(LeaseOwner, sql.owned, lease_params(lease))
    if found is None or found.payload is None:
        return found
    plain = await sealing.unseal_payload(
        tx, found.payload, tenant_id=found.tenant_id, definition=found.definition_key, job_id=lease.job_id
    )
    return msgspec.structs.replace(found, payload=plain)


async def remaining_seconds(tx: Tx, lease: Lease) -> float | None:
    """The seconds until a lease expires; None if it has ended."""
    rows = await tx.values(sql.remaining, lease_params(lease))
    return float(rows[0][0]) if rows else None


async def find_held(
    tx: Tx, held: Sequence[Lease], *, tenant_id: UUID | None, keys: Sequence[str] | None
) -> dict[Lease, str]:
    """Those of the leases that exist, with their workers: of this tenant and of these definitions; None means any."""
    rows = await tx.values(
        sql.held,
        {
            "jobs": [one.job_id for one in held],
            "attempts": [one.attempt_no for one in held],
            "tokens": [one.token for one in held],
            "tenant_id": tenant_id,
            "keys": None if keys is None else list(keys),
        },
    )
    return {Lease(job_id, attempt_no, token): worker for job_id, attempt_no, token, worker in rows}


async def mark_owners_seen(tx: Tx, workers: Iterable[str]) -> None:
    """Note that workers that renew their leases are alive."""
    await tx.run(sql.owner_seen, {"workers": sorted(set(workers))})


async def has_ready_job(tx: Tx, tenant_id: UUID) -> bool:
    """Whether a tenant has a ready job, gates and limits aside."""
    return bool(await tx.values(sql.any_ready, {"tenant_id": tenant_id}))


def lease_params(lease: Lease) -> dict[str, object]:
    """The parameters that identify a lease in statements."""
    return {"job_id": lease.job_id, "attempt_no": lease.attempt_no, "token": lease.token}
