"""Repairs of single rows, each under a lock that it takes first."""

from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus

sql = queries_beside(__file__)


async def lock_job(tx: Tx, job_id: UUID) -> UUID | None:
    """Lock a job until the transaction ends. Its tenant; None if it is gone or locked by another transaction."""
    rows = await tx.values(sql.hold, {"id": job_id})
    return rows[0][0] if rows else None


async def exists(tx: Tx, job_id: UUID) -> bool:
    """Whether the job exists."""
    return bool(await tx.values(sql.exists, {"id": job_id}))


async def queue_again(tx: Tx, job_id: UUID) -> bool:
    """Put a queued job that is in no hot table into ready or later."""
    return bool(await tx.values(sql.queue_again, {"id": job_id}))


async def take_key(tx: Tx, job_id: UUID) -> bool:
    """Give an active job its dedupe key; False if another job holds it."""
    return bool(await tx.run(sql.take_key, {"id": job_id}))


async def free_keys(tx: Tx, job_id: UUID) -> UUID | None:
    """Free the dedupe keys of a job that is not active. Their tenant."""
    rows = await tx.values(sql.free_keys, {"id": job_id})
    return rows[0][0] if rows else None


async def correct_counts(tx: Tx, tenant_id: UUID) -> bool:
    """Add the missing differences to a tenant's counts."""
    await tx.run(sql.hold_counts, {"id": tenant_id})
    return bool(await tx.run(sql.correct_counts, {"id": tenant_id}))


async def recount_run(tx: Tx, run_id: UUID) -> dict[UUID, JobStatus]:
    """Recount the steps of a locked run. The jobs whose end was never counted, one of each step."""
    rows = await tx.values(sql.recount_run, {"id": run_id})
    return {job_id: JobStatus(status) for job_id, status in rows}
