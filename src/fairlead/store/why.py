"""The facts behind "why is this job not running?"."""

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, TypedQuery
from fairlead.model.why import (
    MOST_AHEAD,
    MOST_HOLDERS,
    SEEN_SECONDS,
    ClosedGate,
    JobSnapshot,
    KeyConditions,
    Limit,
    QueueConditions,
    RateLimit,
    ServingWorker,
    WorkerCounts,
)
from fairlead.model.why_waits import MOST_WAITS, FunctionWait
from fairlead.store import durable

sql = queries_beside(__file__)


async def find_standing(tx: Tx, job_id: UUID, *, tenant_id: UUID | None = None) -> JobSnapshot | None:
    """The state of a job of a tenant, or (None) of any."""
    return await tx.first(JobSnapshot, sql.standing, {"id": job_id, "tenant_id": tenant_id})


async def find_surroundings(tx: Tx, job: JobSnapshot) -> QueueConditions:
    """The gates, limits, workers and jobs that may hold back a queued job."""
    of_job = {"id": job.job_id}
    await tx.prefer_indexes()
    [workers] = await count_workers(tx, [(job.definition_key, job.tenant_id)])
    [(ahead,)] = await tx.values(sql.ahead, {**of_job, "bound": MOST_AHEAD + 1})
    return QueueConditions(
        gates=await tx.all(ClosedGate, sql.gates, of_job),
        limits=await tx.all(Limit, sql.limits, {**of_job, "holders": MOST_HOLDERS}),
        rates=await tx.all(RateLimit, sql.rates, of_job),
        key=await tx.first(KeyConditions, sql.key_limit, {**of_job, "holders": MOST_HOLDERS}),
        workers=workers,
        ahead=ahead,
        prefer_seconds=tx.settings.prefer_seconds,
        waits=await list_waits(tx, job.job_id) if job.is_suspended else (),
    )


async def list_waits(tx: Tx, job_id: UUID) -> list[FunctionWait]:
    """What a durable function waits for: the first MOST_WAITS, with masked secrets."""
    found = await tx.all(FunctionWait, sql.waits, {"id": job_id, "limit": MOST_WAITS})
    mask = await durable.build_mask(tx, job_id) if found else None
    if mask is None:
        return found
    return [
        replace(
            wait,
            name=mask.text(wait.name),
            request=mask.value(wait.request),
            error=durable.mask_error(wait.error, mask),
        )
        for wait in found
    ]


def workers(pairs: Sequence[tuple[str, UUID]]) -> TypedQuery[WorkerCounts]:
    """How many workers serve each of these pairs of definition and tenant, in the same order."""
    values = {
        "definitions": [definition for definition, _ in pairs],
        "tenants": [str(tenant_id) for _, tenant_id in pairs],
        "seconds": SEEN_SECONDS,
    }
    return TypedQuery(WorkerCounts, sql.workers, values)


async def count_workers(tx: Tx, pairs: Sequence[tuple[str, UUID]]) -> list[WorkerCounts]:
    """The rows of `workers`."""
    return await tx.all(*workers(pairs))


async def list_serving(tx: Tx, definition_key: str, *, limit: int) -> list[ServingWorker]:
    """The live workers that serve a definition, for every tenant or for some."""
    values = {"definition_key": definition_key, "seconds": SEEN_SECONDS, "limit": limit}
    return await tx.all(ServingWorker, sql.serving, values)
