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


async def wake_function(tx: Tx, job_id: UUID) -> UUID | None:
    """Let a durable function that sleeps run now. Its tenant; None if it does not sleep any more."""
    rows = await tx.values(sql.wake_function, {"id": job_id})
    return rows[0][0] if rows else None


async def set_limit_key(tx: Tx, job_id: UUID) -> bool:
    """Give a job's row in the queue the key of its record. Whether it had another one."""
    found = await tx.values(sql.set_limit_key, {"id": job_id})
    for definition_id, tenant_id, other_key in found:
        if other_key is not None:
            await _release_key(tx, definition_id, tenant_id, other_key)
    return bool(found)


async def release_held(tx: Tx, job_id: UUID) -> bool:
    """Let jobs of the job's key go, as many as its limits allow. Whether there were any."""
    return any([await _release_key(tx, *key) for key in await tx.values(sql.key_of_job, {"id": job_id})])


async def _release_key(tx: Tx, definition_id: UUID, tenant_id: UUID, limit_key: UUID) -> int:
    values = {"definition_id": definition_id, "tenant_id": tenant_id, "limit_key": limit_key}
    [(released,)] = await tx.values(sql.release_key, values)
    return int(released)


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
