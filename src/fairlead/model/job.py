"""A job: what is asked for, what is kept of it, and which way its status may move."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7


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


class Source(StrEnum):
    MANUAL = "manual"
    EVENT = "event"
    SCHEDULE = "schedule"
    SYSTEM = "system"


# The whole life of a job. Leaving a terminal status takes a person (retry by hand).
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
    """Whether a job may go from one status to the other."""
    return new in TRANSITIONS[old]


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A request to enqueue. Unset options come from the definition.

    A Struct, since bulk loads make millions: ten times cheaper to create than a frozen dataclass.
    """

    definition: str
    tenant: str
    payload: Any = msgspec.field(default_factory=dict)
    priority: int | None = None
    scheduled_for: datetime | None = None
    delay: float | timedelta | None = None
    max_attempts: int | None = None
    dedupe_key: str | None = None
    correlation_id: str | None = None
    source: Source = Source.MANUAL
    source_ref: str | None = None
    parent_id: UUID | None = None
    host_id: UUID | None = None
    resource_id: UUID | None = None
    id: UUID = msgspec.field(default_factory=uuid7)

    @property
    def plain(self) -> bool:
        """Whether no option is given: most jobs, and worth knowing where there are many."""
        return (
            self.priority is None
            and self.scheduled_for is None
            and self.delay is None
            and self.max_attempts is None
            and self.dedupe_key is None
            and self.correlation_id is None
            and self.source is Source.MANUAL
            and self.source_ref is None
            and self.parent_id is None
            and self.host_id is None
            and self.resource_id is None
        )

    @property
    def delay_seconds(self) -> float:
        """Its delay, 0 if it has none."""
        return self.delay.total_seconds() if isinstance(self.delay, timedelta) else float(self.delay or 0)

    def timed(self, now: datetime) -> Self:
        """The same request with its delay, if it has one, as a time: counted from `now`."""
        if self.delay is None:
            return self
        due = now + timedelta(seconds=self.delay_seconds)
        return msgspec.structs.replace(self, delay=None, scheduled_for=due)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is recorded."""

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
    # of a job that succeeded, None: what went wrong before is in its attempts
    last_error: str | None
    created_by: str | None

    @property
    def attempts_in_words(self) -> str:
        """How many attempts were made, and what of its budget they used: a retry by hand and a loss use none of it."""
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


class Enqueued(NamedTuple):
    """The answer to an enqueue: the job that will do the work, new or already there."""

    id: UUID
    deduplicated: bool = False


class Lease(msgspec.Struct, frozen=True):
    """A worker's ownership of a running job. Every write after the claim names all three."""

    job_id: UUID
    attempt_no: int
    token: UUID

    def __hash__(self) -> int:
        """A worker keys what it holds by its leases, thousands of times a second: one number is enough."""
        return hash(self.job_id.int)
