"""A job: the request to enqueue it, its stored record, and the transitions of its status."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from uuid import UUID

import msgspec
from msgspec import Meta
from uuid_utils.compat import uuid7

from fairlead.model.field import INTERNAL, Internal, is_internal

MAX_PRIORITY = 1_000_000
MAX_ATTEMPTS = 1000
MAX_DEDUPE_KEY = 1_048_576
MAX_CORRELATION_ID = 255
MAX_SOURCE_REF = 1000
MAX_TAGS = 16
MAX_TAG = 64
MAX_TIMEOUT_SECONDS = 2_592_000


class JobStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING)


class WaitingFor(StrEnum):
    """Why a queued job waits: for a worker, for its time, or for its next attempt after a failure."""

    READY = "ready"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"


class Source(StrEnum):
    MANUAL = "manual"
    EVENT = "event"
    SCHEDULE = "schedule"
    SYSTEM = "system"


# Python looks up a member of an enum by a call, which would be half the time of NewJob.plain.
_MANUAL = Source.MANUAL


# All transitions of a job's status. Only a manual retry leaves a terminal status.
TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.QUEUED: frozenset({JobStatus.RUNNING, JobStatus.CANCELED}),
    JobStatus.RUNNING: frozenset(
        {
            JobStatus.QUEUED,
            JobStatus.SUCCEEDED,
            JobStatus.FAILED,
            JobStatus.DEAD_LETTER,
            JobStatus.CANCELED,
        }
    ),
    JobStatus.SUCCEEDED: frozenset(),
    JobStatus.FAILED: frozenset({JobStatus.QUEUED}),
    JobStatus.DEAD_LETTER: frozenset({JobStatus.QUEUED}),
    JobStatus.CANCELED: frozenset({JobStatus.QUEUED}),
}


def may_move(old: JobStatus, new: JobStatus) -> bool:
    """Whether a job may change from one status to the other."""
    return new in TRANSITIONS[old]


Seconds = float | timedelta


def seconds_of(value: Seconds) -> float:
    """A length of time in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


class Debounce(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Moves the waiting job of a key instead of creating another one. A key belongs to a tenant and a definition."""

    key: Annotated[str, Meta(max_length=MAX_DEDUPE_KEY)]
    seconds: (
        Annotated[float, Meta(description="The job runs when its key was not enqueued for so long.")]
        | timedelta
    )
    max_seconds: (
        Annotated[
            float, Meta(description="The job waits no longer than this, counted from its first enqueue.")
        ]
        | timedelta
        | None
    ) = None
    payload: Annotated[
        Literal["last", "first"],
        Meta(description="Whether the job gets the last payload or keeps the first."),
    ] = "last"

    def to_json(self) -> dict[str, Any]:
        """As the stored functions read it."""
        most = {} if self.max_seconds is None else {"max_seconds": seconds_of(self.max_seconds)}
        return {"key": self.key, "seconds": seconds_of(self.seconds), **most, "payload": self.payload}


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A request to enqueue. Unset options come from the definition. Each face derives its options from these fields.

    A Struct, since bulk loads create millions: ten times cheaper than a frozen dataclass.
    """

    definition: Annotated[str, Meta(max_length=10_000)]
    tenant: Annotated[str, Meta(max_length=10_000)]
    payload: Any = msgspec.field(default_factory=dict)
    priority: (
        Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Lower runs first.")] | None
    ) = None
    scheduled_for: (
        Annotated[datetime, Meta(description="Not before this time, such as 2026-02-16T10:30:00Z.")] | None
    ) = None
    delay: (
        Annotated[float, Meta(description="Seconds to wait before the job may run.")] | timedelta | None
    ) = None
    max_attempts: (
        Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS, description="How many attempts may fail.")] | None
    ) = None
    dedupe_key: (
        Annotated[
            str,
            Meta(
                max_length=MAX_DEDUPE_KEY,
                description="While a job with this key is active, no second one is created.",
            ),
        ]
        | None
    ) = None
    correlation_id: (
        Annotated[
            str, Meta(max_length=MAX_CORRELATION_ID, description="Jobs that belong together are found by it.")
        ]
        | None
    ) = None
    tags: (
        Annotated[
            tuple[str, ...],
            Meta(
                max_length=MAX_TAGS,
                description=f"Up to {MAX_TAGS} short texts by which jobs are found, without commas.",
            ),
        ]
        | None
    ) = None
    timeout: (
        Annotated[
            float,
            Meta(
                ge=1,
                le=MAX_TIMEOUT_SECONDS,
                description="Seconds that each attempt may take, instead of its definition's timeout.",
            ),
        ]
        | timedelta
        | None
    ) = None
    expires_in: (
        Annotated[
            float,
            Meta(
                gt=0,
                description="Seconds after its time within which the job must start; else it is canceled.",
            ),
        ]
        | timedelta
        | None
    ) = None
    unique_for: (
        Annotated[
            float,
            Meta(
                gt=0,
                description="Seconds for which the dedupe key stays taken, also after the job has ended.",
            ),
        ]
        | timedelta
        | None
    ) = None
    debounce: (
        Annotated[
            Debounce,
            Meta(
                description="Move the waiting job of this key to a later time instead of creating another one."
            ),
        ]
        | None
    ) = None
    source: Internal[Source] = Source.MANUAL
    source_ref: Annotated[str, Meta(max_length=MAX_SOURCE_REF, extra=INTERNAL)] | None = None
    parent_id: Internal[UUID | None] = None
    host_id: Annotated[UUID, Meta(description="The host whose agent runs the job.")] | None = None
    resource_id: Annotated[UUID, Meta(description="The resource on whose host the job runs.")] | None = None
    id: UUID = msgspec.field(default_factory=uuid7)

    @property
    def plain(self) -> bool:
        """Whether no option is set. Most jobs are plain, and bulk loads have a faster path for them."""
        return (
            self.priority is None
            and self.scheduled_for is None
            and self.delay is None
            and self.max_attempts is None
            and self.dedupe_key is None
            and self.correlation_id is None
            and self.source is _MANUAL
            and self.source_ref is None
            and self.parent_id is None
            and self.host_id is None
            and self.resource_id is None
            and self.tags is None
            and self.timeout is None
            and self.expires_in is None
            and self.unique_for is None
            and self.debounce is None
        )

    @property
    def delay_seconds(self) -> float:
        """The delay in seconds; 0 if there is none."""
        return seconds_of(self.delay or 0)

    @property
    def timeout_seconds(self) -> int | None:
        """The timeout of an attempt in whole seconds, rounded up; None: the definition's."""
        return None if self.timeout is None else math.ceil(seconds_of(self.timeout))

    def resolve_delay(self, now: datetime) -> Self:
        """The request with its delay replaced by a time, counted from `now`."""
        if self.delay is None:
            return self
        due = now + timedelta(seconds=self.delay_seconds)
        return msgspec.structs.replace(self, delay=None, scheduled_for=due)


# The options that users may set, by name.
OPTIONS = {
    field.name: field
    for field in msgspec.structs.fields(NewJob)
    if field.default is None and not is_internal(field)
}


class JobEdit(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a waiting job. None leaves a value as it is; the other values mean the same as in NewJob."""

    payload: Any = None
    priority: int | None = None
    scheduled_for: datetime | None = None
    delay: float | timedelta | None = None
    # all tags; without any, the job has none afterwards
    tags: Sequence[str] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return all(getattr(self, name) is None for name in self.__struct_fields__)


# The options of an enqueue that an edit can change, too.
EDITABLE = {name: OPTIONS[name] for name in JobEdit.__struct_fields__ if name in OPTIONS}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is stored."""

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
    tags: tuple[str, ...] | None
    # None: the definition's
    timeout_seconds: int | None
    # a job that has not started by then is canceled
    expires_at: datetime | None
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
    # None after a success: its attempts keep their errors
    last_error: str | None
    created_by: str | None

    @property
    def attempts_in_words(self) -> str:
        """The number of attempts, and how many failed or were lost."""
        used = [f"{self.failure_count} of {self.max_attempts} failed"] if self.failure_count else []
        used += [f"{self.lost_count} lost"] if self.lost_count else []
        return f"{self.attempt_count} ({', '.join(used)})" if used else str(self.attempt_count)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
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


class EnqueueResult(msgspec.Struct, frozen=True, gc=False):
    """The result of an enqueue: the id of the new job, or of the active job with the same dedupe key."""

    id: UUID
    deduplicated: bool = False


# The hash is kept: workers look up leases thousands of times a second.
class Lease(msgspec.Struct, frozen=True, cache_hash=True):
    """A worker's ownership of a running job. Every write after the claim names all three fields."""

    job_id: UUID
    attempt_no: int
    token: UUID
