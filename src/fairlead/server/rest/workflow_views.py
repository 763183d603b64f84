"""Request and response bodies of workflows."""

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic import Field

from fairlead.actions.workflows import RunDetails, RunRequest
from fairlead.model.job import JobStatus
from fairlead.model.workflow.run import PublishedWorkflow, RunStatus, RunStep, StepState
from fairlead.model.workflow.spec import MAX_ITEMS
from fairlead.server.views import STEP_DEFINITION, Body, ReadableText, View


class CompensateBody(Body):
    """The step that compensates a failed step."""

    compensate: ReadableText


class StepBody(Body):
    """A step: a job of a definition that starts when the steps in `after` have ended."""

    name: ReadableText
    definition: ReadableText = Field(validation_alias=STEP_DEFINITION)
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


class WorkflowSummaryView(View):
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

    @classmethod
    def of(cls, thing: PublishedWorkflow) -> Self:
        """The view of a workflow."""
        spec = thing.spec
        return cls(
            id=thing.id,
            tenant_id=thing.tenant_id,
            tenant=thing.tenant,
            is_shared=thing.is_shared,
            key=thing.key,
            version=thing.version,
            description=spec.get("description", ""),
            steps=len(spec["steps"]),
            created_by=thing.created_by,
            created_at=thing.created_at,
        )


class PublishedView(View):
    """A version of a workflow; `spec` can be edited and sent back."""

    id: UUID
    tenant_id: UUID
    tenant: str
    is_shared: bool
    key: str
    version: int
    spec: dict[str, Any]
    created_by: str | None
    created_at: datetime


class WorkflowRunView(View):
    """A run; `steps` is the number of its steps, `live` the number of running ones."""

    id: UUID
    tenant_id: UUID
    tenant: str
    workflow_id: UUID | None
    key: str
    version: int | None
    status: RunStatus
    steps: int
    live: int
    cancel_requested_at: datetime | None
    parent_job_id: UUID | None
    started_by_job: UUID | None
    correlation_id: str | None
    input: Any
    output: Any
    error: Any
    created_by: str | None
    created_at: datetime
    finished_at: datetime | None


class StartedRunView(WorkflowRunView):
    """A new run, or the existing run with its key."""

    deduplicated: bool = False


class RunStepView(View):
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
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, thing: RunStep) -> Self:
        """The view of a step."""
        said = {
            "after": thing.spec.get("after", []),
            "on_failure": thing.spec.get("on_failure", "stop"),
            "error": thing.trouble,
        }
        return cls(**{name: getattr(thing, name) for name in cls.model_fields if name not in said} | said)


class RunDetailView(View):
    """A run, up to 1000 of its steps, and how many steps are in each state. More of them are at ?first=`next_first`."""

    run: WorkflowRunView
    steps: list[RunStepView]
    counts: dict[StepState, int]
    next_first: int | None

    @classmethod
    def of(cls, thing: RunDetails) -> Self:
        """The view of a run and its steps."""
        return cls(
            run=WorkflowRunView.of(thing.run),
            steps=[RunStepView.of(step) for step in thing.steps],
            counts=thing.states,
            next_first=thing.next_place,
        )
