"""What tools return: parts of the API's answers, with bounded texts. Their JSON Schemas are the tools' output schemas."""

from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from fairlead.server.mcp.bounds import LONGEST_TEXT, clip, clip_json, clip_tail

# A text in a list, a text of a single object, the end of an output, and a JSON value.
Line = Annotated[str, BeforeValidator(clip)]
Text = Annotated[str, BeforeValidator(partial(clip, most=LONGEST_TEXT))]
Tail = Annotated[str, BeforeValidator(clip_tail)]
BoundedJson = Annotated[Any, BeforeValidator(clip_json)]


class ToolAnswer(BaseModel):
    """The answer of a tool. Fields of the API that it does not name are left out."""


class ListAnswer(ToolAnswer):
    """A page of a list."""

    next_cursor: str | None = Field(None, description="The cursor of the next page; null: this is the last.")
    missing_cells: list[str] = Field(
        [], description="Cells that could not be reached: their part of the answer is missing."
    )


class AccessAnswer(ToolAnswer):
    """The token's name, role, tenant and permissions."""

    actor: Line
    role: str
    tenant: str | None = Field(description="Null: every tenant; name one with the argument tenant.")
    permissions: list[str]
    writes_allowed: bool = Field(
        False, description="Whether this server offers tools that change something (--allow-writes)."
    )


class JobLine(ToolAnswer):
    """A job in a list."""

    id: str
    tenant: str
    definition_key: str
    status: str
    source: str
    priority: int
    scheduled_for: str
    queued_at: str
    started_at: str | None
    finished_at: str | None
    attempt_count: int
    failure_count: int
    max_attempts: int
    claimed_by_worker: Line | None
    cancel_requested_at: str | None
    last_error: Line | None
    correlation_id: Line | None
    tags: list[Line] | None


class JobLines(ListAnswer):
    """Jobs, the newest first. A page may be short or empty and still have a next_cursor."""

    items: list[JobLine]


class AttemptAnswer(ToolAnswer):
    """One run of a job."""

    attempt_no: int
    status: str
    worker_id: Line
    started_at: str
    finished_at: str | None
    duration_ms: int | None
    queue_ms: int | None
    exit_code: int | None
    signal: int | None
    error_text: Text | None
    stdout_tail: Tail | None
    stderr_tail: Tail | None


class JobAnswerFull(JobLine):
    """A job with its payload, output, error and newest attempts. Secrets are masked, long values cut."""

    payload: BoundedJson
    output: BoundedJson
    error: BoundedJson
    progress: BoundedJson
    source_ref: Line | None
    dedupe_key: Line | None
    lost_count: int
    cost_cents: int
    timeout_seconds: int | None
    expires_at: str | None
    lease_expires_at: str | None
    parent_id: str | None
    workflow_run_id: str | None
    host_id: str | None
    resource_id: str | None
    created_by: Line | None
    attempts: list[AttemptAnswer] = Field([], description="The newest attempts, the newest last.")


class ReasonAnswer(ToolAnswer):
    """One reason: a stable code, a sentence, and its facts."""

    code: str
    message: Text
    facts: BoundedJson


class WhyAnswer(ToolAnswer):
    """Why a job is not running: every reason, the most decisive first."""

    job_id: str
    status: str
    at: str
    reasons: list[ReasonAnswer]


class LogChunkAnswer(ToolAnswer):
    """A piece of a log."""

    attempt_no: int
    seq: int
    stream: str
    at: str
    text: str


class LogAnswer(ToolAnswer):
    """A part of a job's log, in order."""

    items: list[LogChunkAnswer]
    next_cursor: str | None = Field(description="Read on from here; null: the log is complete.")
    complete: bool = Field(description="Nothing follows, now or later.")


class PercentilesAnswer(ToolAnswer):
    """Milliseconds."""

    p50: int
    p95: int
    p99: int


class TimesLine(ToolAnswer):
    """How long jobs waited and ran."""

    definition_key: str | None = None
    jobs: int
    wait_ms: PercentilesAnswer | None
    run_ms: PercentilesAnswer | None


class TimesAnswer(TimesLine):
    """How long a tenant's newest 1,000 jobs waited and ran: all of them, and by definition."""

    definitions: list[TimesLine]
    definitions_left_out: int = 0


class ProblemLine(ToolAnswer):
    """Something to look at, and what to do."""

    kind: str
    severity: str
    title: Line
    detail: Text
    advice: Text
    since: str | None
    count: int | None
    count_of: str
    tenant: str | None
    subject: Line | None


class BusyLine(ToolAnswer):
    """A tenant or a definition, and how many of its jobs ended in the last hour."""

    name: str
    succeeded: int
    failed: int


class OverviewAnswer(ToolAnswer):
    """Whether everything is fine: problems, the worst first; what is slow, and what is busy."""

    at: str
    tenant: str | None = Field(description="Null: of all tenants.")
    verdict: str
    summary: str
    problems: list[ProblemLine]
    problems_left_out: int
    counts: dict[str, int] = Field(description="The number of jobs by status.")
    wait_ms: PercentilesAnswer | None
    run_ms: PercentilesAnswer | None
    slowest: list[TimesLine]
    busiest: list[BusyLine]
    missing_cells: list[str] = Field([], description="Cells that could not be reached.")


class DepthLine(ToolAnswer):
    """A tenant's part of the queue."""

    tenant: str
    queued: int
    running: int
    failed: int
    dead_letter: int
    oldest_queued_seconds: float | None = Field(description="How long the oldest ready job has waited.")
    paused_at: str | None = None


class DepthAnswer(ListAnswer):
    """The queue by tenant."""

    items: list[DepthLine]


class DefinitionLine(ToolAnswer):
    """A definition in a list."""

    key: str
    description: Line
    kind: str
    is_active: bool
    paused_at: str | None
    paused_by: Line | None
    pause_note: Line | None
    timeout_seconds: int
    max_attempts: int
    max_running: int | None
    max_running_per_tenant: int | None


class DefinitionLines(ListAnswer):
    """Definitions, by key."""

    items: list[DefinitionLine]


class DefinitionAnswer(DefinitionLine):
    """A definition with the JSON Schema of its payload."""

    version: int
    arg_schema: BoundedJson = Field(description="The JSON Schema of its jobs' payloads.")
    backoff: BoundedJson
    rate: BoundedJson
    rate_per_tenant: BoundedJson
    by_key: BoundedJson
    slots: int
    requires: dict[str, str] | None
    prefers: dict[str, str] | None
    default_priority: int
    retention_days: int | None
    updated_at: str


class ErrorGroupLine(ToolAnswer):
    """Jobs of one definition whose errors differ only in numbers and ids."""

    id: str
    tenant: str
    definition_key: str
    pattern: Line
    first_seen: str
    last_seen: str
    last_job_id: str
    seen: int = Field(description="All failures since the beginning.")
    failed: int = Field(description="Jobs in the group now that failed and are not retried.")
    dead_letter: int = Field(description="Jobs in the group now whose attempts are spent.")
    is_muted: bool
    mute_note: Line | None


class ErrorGroupLines(ListAnswer):
    """Error groups."""

    items: list[ErrorGroupLine]


class FailureHour(ToolAnswer):
    """The failures of an hour."""

    hour: str
    failures: int


class ErrorGroupAnswer(ErrorGroupLine):
    """An error group with its newest error in full, and the hours of the last week in which it failed."""

    sample: Text
    hours: list[FailureHour]


class EnqueuedAnswer(JobLine):
    """The new job, or the active one that has its dedupe key."""

    deduplicated: bool


class GroupRetryAnswer(ToolAnswer):
    """How many jobs were queued again, how many were skipped and why."""

    count: int
    skipped: int
    reasons: dict[str, int]
    more: bool = Field(description="Others are left: call again while count is not 0.")
