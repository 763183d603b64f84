"""Jobs: enqueue, list, count, show, edit, cancel and retry, one by one and in bulk."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from msgspec.structs import asdict, replace
from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from fairlead import tracing
from fairlead.actions import bulk_jobs, edit_job, enqueue, jobs, logs, replay_job, stats
from fairlead.actions import why as explanation
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput, NotFound
from fairlead.model.access import Permission
from fairlead.model.field import meta_of
from fairlead.model.job import (
    EDITABLE,
    MAX_TAGS,
    OPTIONS,
    Attempt,
    Debounce,
    Job,
    JobEdit,
    JobStatus,
    NewJob,
    Source,
    WaitingFor,
)
from fairlead.model.why import Why
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.concurrency_limits import ConcurrencyLimit
from fairlead.server.idempotency import create_once
from fairlead.server.log_tailing import LONGEST_WAIT_SECONDS, remove_ansi, wait_for_log
from fairlead.server.merged_lists import Part, by_id, read_merged
from fairlead.server.paging import PageQuery, list_page
from fairlead.server.problems import MOST_FAULTS, PREFIX
from fairlead.server.views import (
    DEFINITION_KEY,
    DELAY,
    Body,
    Id,
    Listing,
    OneOf,
    Parameters,
    ReadableText,
    Time,
    choose_alias,
    derive_body,
    to_json,
    view_of,
)
from fairlead.turns.loop_pauses import LoopPauses

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["jobs"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_JOBS))]
Enqueuer = Annotated[Caller, Depends(Requires(Permission.ENQUEUE_JOBS))]
Writer = Annotated[Caller, Depends(Requires(Permission.WRITE_JOBS))]

# Runs jobs in the server process: for super admins.
Ticker = Annotated[Caller, Depends(Requires(Permission.MANAGE_SYSTEM, everywhere=True))]

MOST_IN_BULK = 10_000
MOST_IN_TICK = 1000


def _split_list(given: Any) -> Any:
    """Split `failed,dead_letter` into two values; the parameter may also be repeated."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return given
    return [part.strip() for text in texts for part in text.split(",")]


# `?follow` means `?follow=true`
Flag = Annotated[bool, BeforeValidator(lambda given: given == "" or given)]


def _read_object(given: Any) -> Any:
    """Read a parameter of the address as JSON."""
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return given


PayloadValues = Annotated[
    dict[ReadableText, ReadableText], BeforeValidator(_read_object), Field(max_length=jobs.MOST_VALUES)
]

TagList = Annotated[
    list[ReadableText], BeforeValidator(_split_list), Field(min_length=1, max_length=MAX_TAGS)
]

ContainedValues = Annotated[dict[str, Any], BeforeValidator(_read_object)]

Statuses = Annotated[list[JobStatus], BeforeValidator(_split_list), Field(min_length=1, max_length=100)]


_OPTIONS = [field for name, field in OPTIONS.items() if name not in ("delay", "tags", "debounce")]


class DebounceBody(Body):
    """Moves the waiting job of a key instead of creating another one."""

    key: ReadableText
    seconds: float = Field(description="The job runs when its key was not enqueued for so long.")
    max_seconds: float | None = Field(
        None, description="The job waits no longer than this, counted from its first enqueue."
    )
    payload: Literal["last", "first"] = Field(
        "last", description="Whether the job gets the last payload or keeps the first."
    )


class JobBody(derive_body(_OPTIONS, text=ReadableText)):  # type: ignore[misc] # a class that is made at run time
    """A job to enqueue."""

    definition_key: ReadableText = Field(validation_alias=DEFINITION_KEY)
    payload: dict[str, Any] = Field(default_factory=dict)
    delay_seconds: float | None = Field(
        None, validation_alias=DELAY, description=meta_of(OPTIONS["delay"]).description
    )
    tags: list[ReadableText] | None = Field(None, description=meta_of(OPTIONS["tags"]).description)
    debounce: DebounceBody | None = Field(None, description=meta_of(OPTIONS["debounce"]).description)

    def new(self, tenant_id: UUID) -> NewJob:
        """The NewJob for the action."""
        return NewJob(
            definition=self.definition_key,
            tenant=str(tenant_id),
            payload=self.payload,
            delay=self.delay_seconds,
            tags=None if self.tags is None else tuple(self.tags),
            debounce=None if self.debounce is None else Debounce(**self.debounce.model_dump()),
            **{field.name: getattr(self, field.name) for field in _OPTIONS},
        )


class BulkBody(Body):
    """Jobs to enqueue, all or none."""

    # each is validated by `read`, with pauses for other requests
    jobs: list[Annotated[Any, WithJsonSchema({"$ref": "#/components/schemas/JobBody"})]] = Field(
        min_length=1, max_length=MOST_IN_BULK
    )

    async def read(self, tenant_id: UUID) -> list[NewJob]:
        """The NewJobs for the action, or RequestValidationError."""
        new, faults, pauses = list[NewJob](), list[Any](), LoopPauses()
        for index, job in enumerate(self.jobs):
            try:
                new.append(JobBody.model_validate(job).new(tenant_id))
            except ValidationError as error:
                found = error.errors(include_url=False)
                faults += [{**fault, "loc": ("body", "jobs", index, *fault["loc"])} for fault in found]
                if len(faults) >= MOST_FAULTS:
                    break
            await pauses.pause_if_due()
        if faults:
            raise RequestValidationError(faults[:MOST_FAULTS])
        return new


def _trace_of(request: Request) -> dict[str, list[str]]:
    """The W3C trace context headers of the request."""
    return {name: request.headers.getlist(name) for name in ("traceparent", "tracestate")}


_EDITED = [field for name, field in EDITABLE.items() if name not in ("delay", "tags")]


class EditBody(derive_body(_EDITED)):  # type: ignore[misc] # a class that is made at run time
    """Changes of a waiting job: what is left out stays as it is."""

    payload: dict[str, Any] | None = Field(None, description="The whole new payload.")
    delay_seconds: float | None = Field(
        None, validation_alias=DELAY, description=meta_of(EDITABLE["delay"]).description
    )

    tags: list[ReadableText] | None = Field(None, description="All tags of the job; `[]` removes them.")

    def edit(self) -> JobEdit:
        """The JobEdit for the action."""
        others = {field.name: getattr(self, field.name) for field in _EDITED}
        return JobEdit(payload=self.payload, delay=self.delay_seconds, tags=self.tags, **others)


class RetryBody(Body):
    """The new payload of a retried job, and the step from which a durable function runs again, if any."""

    payload: dict[str, Any] | None = None
    from_step: ReadableText | None = Field(
        None, description="The name or the place of a step: it and all that came after it run again."
    )


class JobReplayBody(Body):
    """The step from which a durable function runs again, if not from its start."""

    from_step: ReadableText | None = Field(
        None, description="The name or the place of a step: the new job has the records before it."
    )


class FilterQuery(Parameters):
    """Filters of jobs. Times must have a time zone."""

    status: Statuses | None = None
    source: OneOf[Source] | None = None
    definition_key: ReadableText | None = None
    definition: ReadableText | None = Field(None, description="Another name of definition_key.")
    host_id: Id | None = None
    dedupe_key: ReadableText | None = None
    correlation_id: ReadableText | None = None
    workflow_run_id: Id | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    waiting_for: OneOf[WaitingFor] | None = Field(
        None,
        description="Queued jobs that wait for a worker, for their time, or for their next attempt after a failure.",
    )
    worker: ReadableText | None = Field(
        None,
        min_length=1,
        description="The worker that runs the job or ran it last: its id, or the beginning of it.",
    )
    error: ReadableText | None = Field(None, min_length=1, description="A part of the last error.")
    duration_over: float | None = Field(
        None, ge=0, description="Seconds: jobs whose last attempt took longer."
    )
    duration_under: float | None = Field(
        None, ge=0, description="Seconds: jobs whose last attempt took less."
    )
    payload: PayloadValues | None = Field(
        None,
        description=(
            'Values of the payload by their paths, as a JSON object of texts: `{"customer.id": "42"}`. '
            "`*` stands for any characters."
        ),
    )
    tags: TagList | None = Field(
        None,
        description="Jobs that have all of these tags: separated by commas, or as a repeated parameter.",
    )
    payload_contains: ContainedValues | None = Field(
        None,
        description=(
            'Values that the payload has, as a JSON object: `{"customer": {"id": 42}}`. They are compared as a whole; '
            "payloads with a secret under one of the compared names do not match."
        ),
    )
    q: ReadableText | None = Field(
        None,
        min_length=1,
        max_length=200,
        description=(
            "A job's id or a part of it; a part of a definition's key, of an error or of a payload; or the beginning "
            "of a correlation id or dedupe key."
        ),
    )

    def filter(self) -> jobs.JobFilter:
        """The filter for the action."""
        given = self.model_dump(include=set(FilterQuery.model_fields))
        key = choose_alias(definition_key=given["definition_key"], definition=given.pop("definition"))
        return jobs.JobFilter(**{**given, "definition_key": key})


class BulkFilterBody(Body):
    """Jobs to change at once: those that match, up to `limit`. With `dry_run` they are only counted."""

    filter: FilterQuery
    dry_run: bool = False
    limit: int = Field(1000, ge=1, le=bulk_jobs.MOST)
    cursor: ReadableText | None = Field(
        None, description="The `next_cursor` of the call before: a long search goes on there."
    )


class TickBody(Body):
    """How many due jobs to run."""

    limit: int = Field(default=100, ge=1, le=MOST_IN_TICK)


class LogsQuery(Parameters):
    """The part of a job's log to read: of one attempt or all, after a position. With `follow` the response waits for output."""

    attempt_no: int | None = Field(None, ge=1, le=2_147_483_647)
    after_seq: int | None = Field(None, ge=-1, le=2_147_483_647)
    cursor: ReadableText | None = None
    limit: int = Field(logs.MAX_PAGE, ge=1, le=logs.MAX_PAGE)
    follow: Flag = Field(default=False, description="Wait for output, or until the log is complete.")
    wait: float = Field(25, ge=0, le=LONGEST_WAIT_SECONDS, description="Seconds that `follow` waits at most.")
    strip_ansi: Flag = Field(default=False, description="Leave out colours and other escape sequences.")


class AttemptsQuery(PageQuery):
    """A page of a job's attempts."""

    limit: int = Field(jobs.MAX_PAGE, ge=1, le=jobs.MAX_PAGE)


class JobsQuery(FilterQuery):
    """Filters of jobs, and the page."""

    limit: int = Field(50, ge=1, le=jobs.MAX_PAGE)
    offset: int = Field(0, ge=0, le=100_000)
    cursor: ReadableText | None = None


class JobAnswer(Job, frozen=True, kw_only=True):
    """A job that was enqueued, or the active one that has its dedupe key."""

    deduplicated: bool


class EnqueuedId(msgspec.Struct, frozen=True):
    """The id of a job that was enqueued, or of the active one that has its dedupe key."""

    id: UUID
    deduplicated: bool


class BulkAnswer(msgspec.Struct, frozen=True):
    """The enqueued jobs, in the order of the request."""

    items: list[EnqueuedId]


class JobsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's jobs by status."""

    counts: dict[JobStatus, int]
    queued: int
    running: int
    oldest_queued_age_seconds: float | None
    oldest_queued_at: datetime | None


class TickResult(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs were run, and their statuses now."""

    ok: bool
    ran: int
    statuses: dict[JobStatus, int]


@router.post(
    "/jobs", status_code=201, response_model=JobAnswer, responses={200: {"model": view_of(JobAnswer)}}
)
async def create(request: Request, body: JobBody, caller: Enqueuer) -> JSONResponse:
    """Enqueue a job: 201, or 200 if an active job has the same dedupe key."""
    new = body.new(caller.tenant)

    async def enqueue_in_tx(tx: Any) -> tuple[int, Any]:
        with tracing.continue_trace(_trace_of(request)):
            made = await enqueue.enqueue(tx, caller.principal, caller.fl.catalog, new)
        job, _ = await jobs.show_job(tx, caller.principal, made.id)
        answer = JobAnswer(**asdict(job), deduplicated=made.deduplicated)
        return (200 if made.deduplicated else 201), to_json(answer)

    return await create_once(request, caller, enqueue_in_tx)


@router.post("/jobs/bulk", status_code=201, response_model=BulkAnswer)
async def create_many(request: Request, body: BulkBody, caller: Enqueuer) -> JSONResponse:
    """Enqueue many jobs, all or none; answered in their order."""
    new = await body.read(caller.tenant)

    async def enqueue_in_tx(tx: Any) -> tuple[int, Any]:
        with tracing.continue_trace(_trace_of(request)):
            made = await enqueue.enqueue_many(tx, caller.principal, caller.fl.catalog, new)
        return 201, msgspec.to_builtins(BulkAnswer([EnqueuedId(one.id, one.deduplicated) for one in made]))

    # COPY does not work with row-level security: the action checks the tenant instead
    return await create_once(request, caller, enqueue_in_tx, as_system=True)


@router.get("/jobs")
async def list_jobs(query: Annotated[JobsQuery, Query()], caller: Reader) -> jobs.JobPage:
    """A page of jobs, newest first."""
    if caller.is_for_all_cells and query.offset:
        raise InvalidInput(
            "The jobs of several cells have no offset: use `cursor`, or name a tenant with X-Tenant.",
            [Fault("offset", "use cursor")],
        )
    searched: list[int] = []

    async def read(tx: Tx, page: JobsQuery) -> Part[Job]:
        found = await jobs.list_jobs(
            tx, caller.principal, page.filter(), limit=page.limit, offset=page.offset, cursor=page.cursor
        )
        searched.extend([] if found.searched is None else [found.searched])
        return Part(found.items, found.next_cursor)

    found = await read_merged(caller, query, read, by_id(newest_first=True))
    return jobs.JobPage(list(found.items), found.next_cursor, sum(searched) if searched else None)


@router.get("/jobs/summary")
async def summary(caller: Reader) -> JobsSummary:
    """Count the jobs of each status, and show how long the oldest ready job has waited."""
    tenant = str(caller.tenant)
    async with caller.transaction() as tx:
        found = await stats.get_summary(tx, caller.principal, tenant=tenant)
    counts = found.counts
    return JobsSummary(
        counts=counts.by_status,
        queued=counts.queued,
        running=counts.running,
        oldest_queued_age_seconds=found.oldest_ready_seconds,
        oldest_queued_at=found.oldest_ready_at,
    )


@router.get("/jobs/times")
async def times(caller: Reader) -> stats.TenantTimes:
    """How long the newest 1,000 jobs waited and ran: percentiles of all of them and by definition."""
    tenant = str(caller.tenant)
    async with caller.transaction() as tx:
        return await stats.get_times(tx, caller.principal, tenant=tenant)


@router.post("/jobs/cancel")
async def cancel_many(body: BulkFilterBody, caller: Writer) -> bulk_jobs.BulkResult:
    """Cancel the jobs that match: queued jobs at once, running jobs at their worker's next heartbeat."""
    return await change_in_all_cells(caller, bulk_jobs.cancel, body)


@router.post("/jobs/retry")
async def retry_many(body: BulkFilterBody, caller: Writer) -> bulk_jobs.BulkResult:
    """Queue the failed, dead-lettered and canceled jobs that match again, with fresh budgets."""
    return await change_in_all_cells(caller, bulk_jobs.retry, body)


async def change_in_all_cells(
    caller: Caller, change: Callable[..., Awaitable[bulk_jobs.BulkResult]], body: BulkFilterBody
) -> bulk_jobs.BulkResult:
    """Change the jobs that match, up to the limit: in the caller's cell, or one cell after the other."""
    total = bulk_jobs.BulkResult(0, more=False)
    async for member in caller.visit_cells():
        async with member.transaction() as tx:
            done = await change(
                tx,
                caller.principal,
                body.filter.filter(),
                limit=body.limit - total.count,
                dry_run=body.dry_run,
                cursor=body.cursor,
            )
        total = total.plus(done)
        if total.count >= body.limit:
            if caller.is_for_all_cells:  # the next call begins with the newest jobs of all cells again
                return replace(total, more=True, next_cursor=None)
            return total
    return total


@router.post("/jobs/tick")
async def tick(caller: Ticker, body: TickBody | None = None) -> TickResult:
    """Run due jobs of functions that this process defines. 404 unless FAIRLEAD_ENABLE_TICK is on."""
    if not caller.fl.settings.enable_tick:
        raise NotFound("There is nothing at this address: FAIRLEAD_ENABLE_TICK is off.")
    did = await caller.fl.tick((body or TickBody()).limit)
    return TickResult(ok=True, ran=did.ran, statuses=did.statuses)


@router.get("/jobs/{job_id}")
async def show(job_id: UUID, caller: Reader) -> Job:
    """A job."""
    async with caller.transaction() as tx:
        return (await jobs.show_job(tx, caller.principal, job_id))[0]


@router.patch("/jobs/{job_id}")
async def edit(job_id: UUID, body: EditBody, caller: Writer) -> Job:
    """Change a queued job: its payload, priority, time or tags. 409 if it runs or has ended."""
    async with caller.transaction() as tx:
        return await edit_job.edit(tx, caller.principal, caller.fl.catalog, job_id, body.edit())


@router.get("/jobs/{job_id}/attempts")
async def attempts(
    job_id: UUID, query: Annotated[AttemptsQuery, Query()], caller: Reader
) -> Listing[Attempt]:
    """A job's attempts, the first one first."""
    async with caller.transaction() as tx:
        found = await jobs.list_attempts(
            tx, caller.principal, job_id, after=query.after_number, limit=query.limit
        )
    return list_page(found, lambda one: one.attempt_no)


@router.get("/jobs/{job_id}/logs")
async def read_logs(
    request: Request, job_id: UUID, query: Annotated[LogsQuery, Query()], caller: Reader
) -> logs.LogPage:
    """A job's log. While it is not `complete`, read on from `next_cursor`."""

    async def look() -> logs.LogPage:
        async with caller.transaction() as tx:
            return await logs.read(
                tx,
                caller.principal,
                job_id,
                attempt_no=query.attempt_no,
                after_seq=query.after_seq,
                cursor=query.cursor,
                limit=query.limit,
            )

    if query.follow:
        followers: ConcurrencyLimit = request.app.state.followers
        async with followers.open(caller.token_id or caller.principal.actor, caller.tenant_id):
            page = await wait_for_log(request, look, seconds=query.wait)
    else:
        page = await look()
    return replace(page, items=remove_ansi(page.items)) if query.strip_ansi else page


@router.get("/jobs/{job_id}/why")
async def why(job_id: UUID, caller: Reader) -> Why:
    """Why a job is not running."""
    # limits count every tenant's leases; the response names no other tenant's jobs
    async with caller.transaction(as_system=True) as tx:
        return await explanation.explain_job(tx, caller.principal, job_id)


@router.post("/jobs/{job_id}/cancel")
async def cancel(job_id: UUID, caller: Writer) -> Job:
    """Cancel a job: at once if it is queued, at its worker's next heartbeat if it is running."""
    async with caller.transaction() as tx:
        return await jobs.cancel(tx, caller.principal, job_id)


@router.post("/jobs/{job_id}/retry")
async def retry(job_id: UUID, caller: Writer, body: RetryBody | None = None) -> Job:
    """Queue a failed, dead-lettered or canceled job again, with a fresh budget."""
    payload, from_step = (None, None) if body is None else (body.payload, body.from_step)
    async with caller.transaction() as tx:
        return await jobs.retry(
            tx, caller.principal, caller.fl.catalog, job_id, payload=payload, from_step=from_step
        )


@router.post("/jobs/{job_id}/replay", status_code=201, response_model=Job)
async def replay(
    request: Request, job_id: UUID, caller: Enqueuer, body: JobReplayBody | None = None
) -> JSONResponse:
    """Enqueue an ended job again as a new job with the same payload, a durable function also from a step on."""
    from_step = None if body is None else body.from_step

    async def replay_in_tx(tx: Any) -> tuple[int, Any]:
        with tracing.continue_trace(_trace_of(request)):
            made = await replay_job.replay(
                tx, caller.principal, caller.fl.catalog, job_id, from_step=from_step
            )
        return 201, to_json(made)

    return await create_once(request, caller, replay_in_tx)
