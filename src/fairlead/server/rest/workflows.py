"""Workflows: publish, show and start them; show, cancel and retry their runs."""

from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from msgspec import Meta
from msgspec.structs import asdict
from pydantic import Field

from fairlead.actions import workflows
from fairlead.actions.workflows import RunRequest
from fairlead.db.tx import Tx
from fairlead.model.access import GLOBAL_TENANT, Permission
from fairlead.model.job import JobStatus
from fairlead.model.page import Page
from fairlead.model.workflow.run import PublishedWorkflow, Run, RunStatus, RunStep, StepState
from fairlead.model.workflow.spec import MAX_ITEMS, MAX_STEPS
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.merged_lists import Order, by_id, list_all
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.views import (
    STEP_DEFINITION,
    Body,
    Listing,
    OneOf,
    Parameters,
    ReadableText,
    to_json,
    view_of,
)

R = TypeVar("R", bound=msgspec.Struct)

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["workflows"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_WORKFLOWS))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_WORKFLOWS))]
RunReader = Annotated[Caller, Depends(Requires(Permission.READ_RUNS))]
Starter = Annotated[Caller, Depends(Requires(Permission.START_WORKFLOWS))]
RunManager = Annotated[Caller, Depends(Requires(Permission.RUN_WORKFLOWS))]


class VersionQuery(Parameters):
    """The version to show; by default the newest."""

    version: int | None = Field(None, ge=1, le=2_147_483_647)


class RunsQuery(PageQuery):
    """Filters of runs."""

    key: ReadableText | None = None
    status: OneOf[RunStatus] | None = None


class StepsQuery(Parameters):
    """The first step to show, of up to 1000."""

    first: int = Field(0, ge=0, le=MAX_STEPS, description="`next_first` of the previous response.")


class CompensateBody(Body):
    """The step that compensates a failed step."""

    compensate: ReadableText


class SleepBody(Body):
    """How long a step sleeps: `seconds`, or `until` a time with its zone; or placeholders for them."""

    seconds: float | ReadableText | None = None
    until: ReadableText | None = None


class EventWaitBody(Body):
    """The event that a step waits for; its output is the event."""

    event: ReadableText
    where: dict[str, Any] | None = Field(None, description="A filter of the event's data.")
    timeout_seconds: float | ReadableText | None = None
    lookback_seconds: float | ReadableText | None = Field(
        None, description="The event may have come so long before; by default since the start of the run."
    )
    on_timeout: ReadableText = Field("fail", description="fail, or continue without output.")


class ApprovalStepBody(Body):
    """What a step asks a person; its output is the answer."""

    title: ReadableText
    description: ReadableText | None = None
    form: dict[str, Any] | None = Field(None, description="JSON Schema of the values that the answer has.")
    roles: list[ReadableText] | None = Field(
        None, description="The roles that may answer; by default operator and tenant_admin."
    )
    timeout_seconds: float | ReadableText | None = None
    escalate: ReadableText | None = Field(
        None, description="The event that is emitted if there is no answer in time."
    )
    escalate_after_seconds: float | ReadableText | None = Field(None, description="By default the timeout.")
    on_timeout: ReadableText = Field("fail", description="fail, or continue without output.")
    on_reject: ReadableText = Field("fail", description="fail, or continue with the answer as output.")


class StepBody(Body):
    """A step, which starts when the steps in `after` have ended: a job of a definition, or a wait."""

    name: ReadableText
    definition: ReadableText | None = Field(
        None,
        validation_alias=STEP_DEFINITION,
        description="The definition of its job, unless the step waits.",
    )
    sleep: SleepBody | None = None
    wait_for_event: EventWaitBody | None = None
    approval: ApprovalStepBody | None = None
    payload: Any = Field(default_factory=dict, description="A template of the job's payload.")
    after: list[ReadableText] = Field(default_factory=list, description="The steps that it waits for.")
    when: dict[str, Any] | None = Field(
        None, description="A filter: if it does not match, the step is skipped."
    )
    for_each: Any = Field(None, description="A list or a reference to one: the step has a job for each item.")
    max_items: int = Field(MAX_ITEMS, description="With more items, the step fails.")
    on_failure: ReadableText | CompensateBody = Field(
        "stop", description="stop, continue, or the step that compensates."
    )
    max_attempts: int | None = None
    timeout_seconds: int | None = None
    expires_in_seconds: float | None = Field(
        None, description="A job of the step that has not started within these seconds is canceled."
    )
    tags: list[ReadableText] = Field(default_factory=list, description="The tags of its jobs.")
    priority: int | None = None
    host_id: ReadableText | None = None
    resource_id: ReadableText | None = None


class WorkflowBody(Body):
    """A workflow to publish."""

    key: ReadableText
    steps: list[StepBody]
    description: ReadableText = ""
    input_schema: dict[str, Any] | bool = Field(default=True, description="JSON Schema of a run's input.")
    output: Any = Field(
        None,
        description="A template of a run's output; by default the outputs of the steps that no other step waits for.",
    )

    def document(self) -> dict[str, Any]:
        """The fields that the request contains; the model validates them."""
        return self.model_dump(exclude_unset=True)


class StartBody(Body):
    """The input and options of a new run."""

    input: Any = Field(default_factory=dict)
    version: int | None = Field(default=None, ge=1, le=2_147_483_647, description="By default the newest.")
    key: ReadableText | None = Field(default=None, description="A tenant has one run with a key.")
    correlation_id: ReadableText | None = None

    def to_start(self, tenant_id: UUID) -> RunRequest:
        """The start request for the action."""
        return RunRequest(
            tenant=str(tenant_id),
            input=self.input,
            version=self.version,
            unique_key=self.key,
            correlation_id=self.correlation_id,
        )


class WorkflowSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The newest version of a workflow; `steps` is the number of steps."""

    id: UUID
    tenant_id: UUID
    tenant: str
    is_shared: bool
    key: str
    version: int
    description: str
    steps: int
    created_by: str | None
    created_at: datetime


class StartAnswer(Run, frozen=True, kw_only=True):
    """A new run, or the existing run with its key."""

    deduplicated: bool


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run. `job_id` is its job; for a step with `items`, the first job that failed."""

    place: int
    name: str
    definition_key: str
    state: StepState
    after: list[str]
    on_failure: Any
    is_compensation: bool
    items: int | None
    remaining: int
    failed: int
    canceled: int
    error: Any
    job_id: UUID | None
    job_status: JobStatus | None
    attempt_count: int | None
    queued_at: Annotated[datetime | None, Meta(description="When the steps before it had ended.")]
    started_at: Annotated[datetime | None, Meta(description="When a worker started its first job.")]
    finished_at: datetime | None
    queue_ms: Annotated[int | None, Meta(description="How long it waited, between attempts too.")]
    duration_ms: Annotated[int | None, Meta(description="How long its attempts ran.")]


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A run, up to 1000 of its steps, and how many steps are in each state. More of them are at ?first=`next_first`."""

    run: Run
    steps: list[StepAnswer]
    counts: dict[StepState, int]
    next_first: int | None


@router.get("/workflows")
async def list_workflows(query: Annotated[PageQuery, Query()], caller: Reader) -> Listing[WorkflowSummary]:
    """The workflows that the tenant can start, by key: its own, and shared ones that it does not replace."""

    async def read(tx: Tx, page: PageQuery) -> Page[PublishedWorkflow]:
        key, tenant_id = workflows.decode_place(page.after)
        return await workflows.list_workflows(
            tx, caller.principal, after=key, after_tenant=tenant_id, limit=page.limit
        )

    found = await list_all(caller, query, read, _BY_KEY)
    return Listing([_summarise(one) for one in found.items], found.next_cursor)


_BY_KEY: Order[PublishedWorkflow] = Order(
    lambda one: (one.key, str(one.tenant_id)),
    workflows.encode_place,
    lambda cursor: (cursor.partition(" ")[0], cursor.partition(" ")[2]),
)


@router.post(
    "/workflows",
    status_code=201,
    response_model=PublishedWorkflow,
    responses={200: {"model": view_of(PublishedWorkflow)}},
)
async def publish(request: Request, body: WorkflowBody, caller: Manager) -> JSONResponse:
    """Publish a workflow: 201 with its new version, or 200 with the newest if nothing changed.

    Without X-Tenant, a super admin publishes for all tenants.
    """
    tenant = _tenant_name(caller)

    async def publish_in_tx(tx: Tx) -> tuple[int, Any]:
        made, is_new = await workflows.publish(tx, caller.principal, tenant, body.document())
        shown = await workflows.get(tx, caller.principal, tenant, made.key, version=made.version)
        return (201 if is_new else 200), to_json(shown)

    return await create_once(request, caller, publish_in_tx)


# Before /workflows/{key}; no workflow can have the key `runs`.


@router.get("/workflows/runs")
async def runs(query: Annotated[RunsQuery, Query()], caller: RunReader) -> Listing[Run]:
    """Runs, newest first."""
    return await list_all(
        caller,
        query,
        lambda tx, page: workflows.list_runs(
            tx,
            caller.principal,
            key=page.key,
            status=page.status,
            before=page.after_id,
            limit=page.limit,
        ),
        by_id(newest_first=True),
    )


@router.get("/workflows/runs/{run_id}")
async def show_run(run_id: UUID, query: Annotated[StepsQuery, Query()], caller: RunReader) -> RunAnswer:
    """A run, its steps, and the number of steps in each state."""
    async with caller.transaction() as tx:
        found = await workflows.show_run(tx, caller.principal, run_id, first=query.first)
    return RunAnswer(
        run=found.run,
        steps=[_describe_step(step) for step in found.steps],
        counts=found.states,
        next_first=found.next_place,
    )


@router.post("/workflows/runs/{run_id}/cancel")
async def cancel(run_id: UUID, caller: RunManager) -> Run:
    """Cancel a run: waiting steps at once, running steps at their next heartbeat; no further step starts."""
    async with caller.transaction() as tx:
        return await workflows.cancel(tx, caller.principal, run_id)


@router.post("/workflows/runs/{run_id}/retry")
async def retry(run_id: UUID, caller: RunManager) -> Run:
    """Retry a failed or canceled run from the steps that did not succeed."""
    async with caller.transaction() as tx:
        return await workflows.retry(tx, caller.principal, run_id)


@router.get("/workflows/{key}")
async def show(key: str, query: Annotated[VersionQuery, Query()], caller: Reader) -> PublishedWorkflow:
    """The tenant's own workflow with this key, or else the shared one."""
    async with caller.transaction() as tx:
        return await workflows.get(tx, caller.principal, _tenant_name(caller), key, version=query.version)


@router.post(
    "/workflows/{key}/runs",
    status_code=201,
    response_model=StartAnswer,
    responses={200: {"model": view_of(StartAnswer)}},
)
async def start(request: Request, key: str, caller: Starter, body: StartBody | None = None) -> JSONResponse:
    """Start a run: 201, or 200 if the tenant has a run with the same `key`."""
    asked = (body or StartBody()).to_start(caller.tenant)

    async def start_in_tx(tx: Tx) -> tuple[int, Any]:
        made = await workflows.start(tx, caller.principal, key, asked)
        run = (await workflows.show_run(tx, caller.principal, made.id, limit=1)).run
        answer = StartAnswer(**asdict(run), deduplicated=made.deduplicated)
        return (200 if made.deduplicated else 201), to_json(answer)

    return await create_once(request, caller, start_in_tx)


def _tenant_name(caller: Caller) -> str:
    """The caller's tenant; without one, the global tenant of shared workflows."""
    return GLOBAL_TENANT if caller.tenant_id is None else str(caller.tenant_id)


def _summarise(workflow: PublishedWorkflow) -> WorkflowSummary:
    spec = workflow.spec
    return _copy_record(
        WorkflowSummary, workflow, description=spec.get("description", ""), steps=len(spec["steps"])
    )


def _describe_step(step: RunStep) -> StepAnswer:
    return _copy_record(
        StepAnswer,
        step,
        after=step.spec.get("after", []),
        on_failure=step.spec.get("on_failure", "stop"),
        error=step.trouble,
    )


def _copy_record(kind: type[R], record: msgspec.Struct, **fields: Any) -> R:
    """A record of this kind with the other record's values, except for the given fields."""
    return kind(
        **{name: getattr(record, name) for name in kind.__struct_fields__ if name not in fields}, **fields
    )
