"""Summaries of jobs: those that run, those that failed, and how long they took."""

from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.model.job import JobStatus


class RunningJobSummary(msgspec.Struct, frozen=True, kw_only=True):
    job_id: UUID
    attempt_no: int
    definition_key: str
    tenant: str
    worker_id: str
    started_at: datetime


class FailureSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ended as failed or dead_letter."""

    job_id: UUID
    definition_key: str
    tenant: str
    status: JobStatus
    finished_at: datetime
    last_error: str | None


class Percentiles(msgspec.Struct, frozen=True):
    """The median, the 95th and the 99th percentile."""

    p50: int
    p95: int
    p99: int


class JobTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting and run times of jobs in milliseconds; of all definitions if `definition_key` is None."""

    definition_key: str | None
    jobs: int
    wait_ms: Percentiles | None
    run_ms: Percentiles | None
