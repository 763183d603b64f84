"""Request and response bodies of the API."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar
from uuid import UUID

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
)

from fairlead.errors import Fault, InvalidInput
from fairlead.model.job import JobStatus, Source
from fairlead.model.payload import find_storage_flaw
from fairlead.model.trigger import FiringOutcome

T = TypeVar("T")


def _require_readable(text: str) -> str:
    if flaw := find_storage_flaw(text):
        raise ValueError(flaw)
    return text


def _require_id_text(given: Any) -> Any:
    if isinstance(given, str):
        return given
    raise ValueError("must be a UUID, as text")


def _require_time_text(given: Any) -> Any:
    # pydantic would accept "1700000000" too
    if isinstance(given, str) and _DATE.match(given):
        return given
    raise ValueError("must be a time with its zone, such as 2026-01-31T08:00:00Z")


_DATE = re.compile(r"\d{4}-\d\d-\d\d")

# Text that PostgreSQL can store.
ReadableText = Annotated[str, AfterValidator(_require_readable)]
# JSON has no ids, times or enumerations: they must be strings.
Id = Annotated[UUID, BeforeValidator(_require_id_text), Field(strict=False)]
Time = Annotated[AwareDatetime, BeforeValidator(_require_time_text), Field(strict=False)]
OneOf = Annotated[T, Field(strict=False)]
# Field names of the library and the CLI are accepted, too; the first is the documented one.
DEFINITION_KEY = AliasChoices("definition_key", "definition")
STEP_DEFINITION = AliasChoices("definition", "definition_key")
DELAY = AliasChoices("delay_seconds", "delay")


def choose_alias(**given: Any) -> Any:
    """The value of a parameter with two names, of which a request may use one."""
    said = {name: value for name, value in given.items() if value is not None}
    if len(said) > 1:
        names = " and ".join(given)
        raise InvalidInput(
            f"{names} are names of the same parameter: send only one.",
            [Fault(name, "given twice") for name in said],
        )
    return next(iter(said.values()), None)


class Body(BaseModel):
    """A JSON request body: unknown fields and wrong types are rejected."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Parameters(Body):
    """Query parameters: numbers arrive as text."""

    model_config = ConfigDict(strict=False)


class View(BaseModel):
    """A response body."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, thing: Any) -> Self:
        """The view of a record."""
        return cls.model_validate(thing)


class ListOf(View, Generic[T]):
    """A list, and the cursor of its next page, if any."""

    items: Sequence[T]
    next_cursor: str | None = None


class JobView(View):
    """A job."""

    id: UUID
    tenant_id: UUID
    tenant: str
    definition_key: str
    status: JobStatus
    source: Source
    source_ref: str | None
    priority: int
    payload: Any
    output: Any
    error: Any
    progress: Any
    cost_cents: int
    dedupe_key: str | None
    correlation_id: str | None
    parent_id: UUID | None
    workflow_run_id: UUID | None
    host_id: UUID | None
    resource_id: UUID | None
    scheduled_for: datetime
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    lease_expires_at: datetime | None
    attempt_count: int
    failure_count: int
    lost_count: int
    max_attempts: int
    claimed_by_worker: str | None
    cancel_requested_at: datetime | None
    last_error: str | None
    created_by: str | None


class EnqueuedView(JobView):
    """A job that was enqueued, or the active one that has its dedupe key."""

    deduplicated: bool = False

    @classmethod
    def of(cls, thing: Any, *, deduplicated: bool = False) -> Self:
        """The view of a job, and whether it existed already."""
        return cls(**JobView.of(thing).model_dump(), deduplicated=deduplicated)


class JobsPage(ListOf[JobView]):
    """A page of jobs, newest first."""


class AttemptView(View):
    """One run of a job."""

    id: UUID
    job_id: UUID
    attempt_no: int
    worker_id: str
    pid: int | None
    status: str
    started_at: datetime
    finished_at: datetime | None
    duration_ms: int | None
    queue_ms: int | None
    exit_code: int | None
    signal: int | None
    cost_cents: int
    error_text: str | None
    stdout_tail: str | None
    stderr_tail: str | None


class ChunkView(View):
    """A chunk of an attempt's log."""

    attempt_no: int
    seq: int
    stream: str
    at: datetime
    text: str


class LogsPage(ListOf[ChunkView]):
    """A page of a job's log; `complete` if no more output can follow."""

    complete: bool


class SummaryView(View):
    """A tenant's jobs by status."""

    counts: dict[JobStatus, int]
    queued: int
    running: int
    oldest_queued_age_seconds: float | None
    oldest_queued_at: datetime | None


class PercentilesView(View):
    """The median, the 95th and the 99th percentile."""

    p50: int
    p95: int
    p99: int


class DefinitionTimesView(View):
    """How long the newest jobs of a definition waited and ran, in milliseconds."""

    definition_key: str
    jobs: int
    wait_ms: PercentilesView
    run_ms: PercentilesView


class TimesView(View):
    """How long a tenant's newest jobs waited and ran, in milliseconds; null while none has ended."""

    jobs: int
    wait_ms: PercentilesView | None
    run_ms: PercentilesView | None
    definitions: list[DefinitionTimesView]


class BulkView(View):
    """How many jobs were changed (or, with `dry_run`, would be), and whether there are more.

    `skipped` jobs matched but were not changed: another active job has the dedupe key, or another caller changed them.
    """

    count: int
    more: bool
    skipped: int


class TickView(View):
    """How many jobs were run, and their statuses now."""

    ok: bool
    ran: int
    statuses: dict[JobStatus, int]


class ReasonView(View):
    """One reason why a job is not running."""

    code: str
    message: str
    facts: dict[str, Any]


class WhyView(View):
    """Why a job is not running: every reason, the most decisive first."""

    job_id: UUID
    status: JobStatus
    at: datetime
    reasons: list[ReasonView]


class FaultView(View):
    """A fault and its path."""

    path: str
    message: str


class FiringView(View):
    """What became of one instant or event of a trigger."""

    id: UUID
    trigger_id: UUID
    slot: str
    scheduled_at: datetime | None
    event_id: UUID | None
    outcome: FiringOutcome
    job_id: UUID | None
    reason: str | None
    detail: str | None
    covers: int | None
    covers_until: datetime | None
    fired_at: datetime


def to_json(view: View) -> Any:
    """A view as JSON values."""
    return view.model_dump(mode="json")
