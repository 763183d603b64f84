"""A run of a workflow, and its steps."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from fairlead.model.field import Internal
from fairlead.model.job import JobStatus
from fairlead.model.workflow.waits import WAIT_TYPES, describe_work


class RunStatus(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


class StepState(StrEnum):
    """`stopped`: the run ended before the step started; `skipped`: the step's condition did not match."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    SKIPPED = "skipped"
    STOPPED = "stopped"


class PublishedWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a workflow as it is stored."""

    id: UUID
    tenant_id: UUID
    tenant: str
    is_shared: bool
    key: str
    version: int
    spec: dict[str, Any]
    secret_paths: Internal[tuple[str, ...]]
    created_by: str | None
    created_at: datetime


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is stored."""

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
    # the job that waits for the run, and the job that started it
    parent_job_id: UUID | None
    started_by_job: UUID | None
    correlation_id: str | None
    input: Any
    output: Any
    error: Any
    secret_paths: Internal[tuple[str, ...]]
    created_by: str | None
    created_at: datetime
    finished_at: datetime | None


class RunStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run as it is stored; `job_id` is its job, or for a step with items the first failed one.

    `started_at` is when a worker started its first job; `queue_ms` is the time that no attempt ran, retries included.
    """

    place: int
    name: str
    definition_key: str
    spec: Any
    before: tuple[int, ...]
    on_failure: str
    compensation: int | None
    is_compensation: bool
    state: StepState
    items: int | None
    remaining: int
    failed: int
    canceled: int
    error: Any
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    queue_ms: int | None
    duration_ms: int | None
    job_id: UUID | None
    job_status: JobStatus | None
    attempt_count: int | None
    last_error: str | None

    @property
    def work(self) -> str:
        """What it does, in a few words: its definition, or what it waits for."""
        return self.definition_key if self.definition_key not in WAIT_TYPES else describe_work(self.spec)

    @property
    def trouble(self) -> Any:
        """The step's error: why its jobs could not be created, else the last error of its job."""
        if self.error is not None or self.last_error is None or self.state is StepState.SUCCEEDED:
            return self.error
        return {"message": self.last_error}


class StepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A step as a drawing shows it."""

    place: int
    name: str
    definition_key: str
    compensation: int | None
    state: StepState
