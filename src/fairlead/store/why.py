"""The facts behind "why is this job not running?"."""

from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.why import (
    MOST_AHEAD,
    MOST_HOLDERS,
    SEEN_SECONDS,
    ClosedGate,
    JobSnapshot,
    Limit,
    QueueConditions,
    WorkerCounts,
)

sql = queries_beside(__file__)


async def find_standing(tx: Tx, job_id: UUID, *, tenant_id: UUID | None = None) -> JobSnapshot | None:
    """The state of a job of a tenant, or (None) of any."""
    return await tx.first(JobSnapshot, sql.standing, {"id": job_id, "tenant_id": tenant_id})


async def find_surroundings(tx: Tx, job: JobSnapshot) -> QueueConditions:
    """The gates, limits, workers and jobs that may hold back a queued job."""
    of_job = {"id": job.job_id}
    serving = {"definition_key": job.definition_key, "tenant_id": str(job.tenant_id), "seconds": SEEN_SECONDS}
    await tx.prefer_indexes()
    [workers] = await tx.all(WorkerCounts, sql.workers, serving)
    [(ahead,)] = await tx.values(sql.ahead, {**of_job, "bound": MOST_AHEAD + 1})
    return QueueConditions(
        gates=await tx.all(ClosedGate, sql.gates, of_job),
        limits=await tx.all(Limit, sql.limits, {**of_job, "holders": MOST_HOLDERS}),
        workers=workers,
        ahead=ahead,
    )
