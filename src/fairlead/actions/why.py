"""Explain why a job is not running."""

from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.errors import Fault, JobUnknown
from fairlead.model.access import Permission, Principal
from fairlead.model.job import JobStatus
from fairlead.model.why import QueueConditions, Why, explain
from fairlead.store import why as store


async def explain_job(tx: Tx, principal: Principal, job_id: UUID) -> Why:
    """Every reason why the job is not running, most decisive first."""
    job = await store.find_standing(tx, job_id, tenant_id=principal.tenant_id)
    if job is None:
        raise JobUnknown(f"There is no job {job_id}.", [Fault("id", "unknown")])
    principal.require(Permission.READ_JOBS, job.tenant_id)
    waits = job.status is JobStatus.QUEUED
    around = await store.find_surroundings(tx, job) if waits else QueueConditions()
    return Why(job_id=job.job_id, status=job.status, at=job.now, reasons=explain(job, around))
