"""Repairs of single rows, each under a lock that it takes first. Takes a Tx, never opens one."""

from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus

sql = queries_beside(__file__)


async def hold(tx: Tx, job_id: UUID) -> UUID | None:
    """Hold a job until the transaction ends: its tenant. None if it is gone, or if somebody else holds it."""
    rows = await tx.values(sql.hold, {"id": job_id})
    return rows[0][0] if rows else None


async def exists(tx: Tx, job_id: UUID) -> bool:
    """Whether there is such a job."""
    return bool(await tx.values(sql.exists, {"id": job_id}))


async def queue_again(tx: Tx, job_id: UUID) -> bool:
    """Put a queued job that is in no hot table where it belongs."""
    return bool(await tx.values(sql.queue_again, {"id": job_id}))


async def lease_again(tx: Tx, job_id: UUID, token: UUID) -> int | None:
    """Take over a job that runs without a lease: the number of its attempt. None if it has one, or does not run."""
    rows = await tx.values(sql.lease_again, {"id": job_id, "token": token})
    return rows[0][0] if rows else None


async def take_key(tx: Tx, job_id: UUID) -> bool:
    """Let an active job hold its dedupe key; False if another job has it."""
    return bool(await tx.run(sql.take_key, {"id": job_id}))


async def free_keys(tx: Tx, job_id: UUID) -> UUID | None:
    """Free the keys of a job that is not active: their tenant."""
    rows = await tx.values(sql.free_keys, {"id": job_id})
    return rows[0][0] if rows else None


async def correct_counts(tx: Tx, tenant_id: UUID) -> bool:
    """Add to a tenant's counts what they lack."""
    await tx.run(sql.hold_counts, {"id": tenant_id})
    return bool(await tx.run(sql.correct_counts, {"id": tenant_id}))


async def recount_run(tx: Tx, run_id: UUID) -> dict[UUID, JobStatus]:
    """Count anew what the steps of a run that we hold wait for. Jobs whose end was never counted, one of each step."""
    rows = await tx.values(sql.recount_run, {"id": run_id})
    return {job_id: JobStatus(status) for job_id, status in rows}
