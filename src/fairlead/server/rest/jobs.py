"""Jobs: enqueued, listed, shown, canceled, retried."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from fairlead.actions import enqueue, jobs
from fairlead.actions import why as explanation
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission
from fairlead.model.job import JobStatus, NewJob, Source
from fairlead.server.auth import Caller, Requires
from fairlead.server.once import once
from fairlead.server.views import AttemptView, Body, EnqueuedView, JobsPage, JobView, ListOf, WhyView, plain

router = APIRouter(tags=["jobs"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_JOBS))]
Writer = Annotated[Caller, Depends(Requires(Permission.WRITE_JOBS))]

MOST_IN_BULK = 10_000


class JobBody(Body):
    """A job to enqueue."""

    definition_key: str
    payload: dict[str, Any] = Field(default_factory=dict)
    priority: int | None = None
    scheduled_for: datetime | None = None
    max_attempts: int | None = None
    dedupe_key: str | None = None
    correlation_id: str | None = None

    def new(self, tenant_id: UUID) -> NewJob:
        """The same as a request to enqueue."""
        return NewJob(
            definition=self.definition_key,
            tenant=str(tenant_id),
            payload=self.payload,
            priority=self.priority,
            scheduled_for=self.scheduled_for,
            max_attempts=self.max_attempts,
            dedupe_key=self.dedupe_key,
            correlation_id=self.correlation_id,
        )


class BulkBody(Body):
    """Jobs to enqueue, all or none."""

    jobs: list[JobBody] = Field(min_length=1, max_length=MOST_IN_BULK)


class RetryBody(Body):
    """What to change of a job that is retried."""

    payload: dict[str, Any] | None = None


class FilterQuery(Body):
    """Which jobs to list; what is left out does not matter."""

    status: list[JobStatus] | None = None
    source: Source | None = None
    definition_key: str | None = None
    host_id: UUID | None = None
    dedupe_key: str | None = None
    correlation_id: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def filter(self) -> jobs.Filter:
        """The same as the actions know it."""
        return jobs.Filter(**self.model_dump(include=set(FilterQuery.model_fields)))


class PageQuery(FilterQuery):
    """A page of such jobs."""

    limit: int = Field(50, ge=1, le=jobs.MAX_PAGE)
    offset: int = Field(0, ge=0, le=100_000)
    cursor: str | None = None


@router.post("/jobs", status_code=201, response_model=EnqueuedView, responses={200: {"model": EnqueuedView}})
async def create(request: Request, body: JobBody, caller: Writer) -> JSONResponse:
    """Enqueue a job: 201, or 200 if an active job has the same dedupe key."""
    new = body.new(caller.tenant)

    async def enqueued(tx: Any) -> tuple[int, Any]:
        await jobs.require_room(tx, caller.tenant, caller.fl.settings)
        made = await enqueue.enqueue(tx, caller.principal, caller.fl.catalog, new)
        job, _ = await jobs.show(tx, caller.principal, made.id)
        view = EnqueuedView.of(job, deduplicated=made.deduplicated)
        return (200 if made.deduplicated else 201), plain(view)

    return await once(request, caller, enqueued)


@router.post("/jobs/bulk", status_code=201, response_model=ListOf[dict[str, Any]])
async def create_many(request: Request, body: BulkBody, caller: Writer) -> JSONResponse:
    """Enqueue many jobs, all or none; answered in their order."""
    new = [one.new(caller.tenant) for one in body.jobs]

    async def enqueued(tx: Any) -> tuple[int, Any]:
        await jobs.require_room(tx, caller.tenant, caller.fl.settings, more=len(new))
        made = await enqueue.enqueue_many(tx, caller.principal, caller.fl.catalog, new)
        return 201, {"items": [{"id": str(one.id), "deduplicated": one.deduplicated} for one in made]}

    # COPY does not go with row-level security: the tenant is a checked parameter here
    return await once(request, caller, enqueued, as_system=True)


@router.get("/jobs")
async def listed(query: Annotated[PageQuery, Query()], caller: Reader) -> JobsPage:
    """A page of jobs, newest first."""
    async with caller.transaction() as tx:
        page = await jobs.listed(
            tx, caller.principal, query.filter(), limit=query.limit, offset=query.offset, cursor=query.cursor
        )
    return JobsPage(items=[JobView.of(job) for job in page.items], next_cursor=page.next_cursor)


@router.get("/jobs/{job_id}")
async def show(job_id: UUID, caller: Reader) -> JobView:
    """A job."""
    async with caller.transaction() as tx:
        job, _ = await jobs.show(tx, caller.principal, job_id)
    return JobView.of(job)


@router.get("/jobs/{job_id}/attempts")
async def attempts(job_id: UUID, caller: Reader) -> ListOf[AttemptView]:
    """A job's attempts, the first one first."""
    async with caller.transaction() as tx:
        _, found = await jobs.show(tx, caller.principal, job_id)
    return ListOf(items=[AttemptView.of(one) for one in found])


@router.get("/jobs/{job_id}/why")
async def why(job_id: UUID, caller: Reader) -> WhyView:
    """Why a job is not running."""
    # limits count every tenant's leases; the answer names no other tenant's jobs
    async with caller.transaction(as_system=True) as tx:
        return WhyView.of(await explanation.why(tx, caller.principal, job_id))


@router.post("/jobs/{job_id}/cancel")
async def cancel(job_id: UUID, caller: Writer) -> JobView:
    """Ask a job to stop: at once if it waits, at its owner's next heartbeat if it runs."""
    async with caller.transaction() as tx:
        return JobView.of(await jobs.cancel(tx, caller.principal, job_id))


@router.post("/jobs/{job_id}/retry")
async def retry(job_id: UUID, caller: Writer, body: RetryBody | None = None) -> JobView:
    """Queue a failed, dead-lettered or canceled job again, with a fresh budget."""
    payload = None if body is None else body.payload
    async with caller.transaction() as tx:
        job = await jobs.retry(tx, caller.principal, caller.fl.catalog, job_id, payload=payload)
    return JobView.of(job)


def at_least_one(**given: object) -> None:
    """A change of everything is never meant by leaving everything out."""
    if not any(value is not None for value in given.values()):
        raise InvalidInput("Say which jobs: give at least one filter.", [Fault("", "no filter")])
