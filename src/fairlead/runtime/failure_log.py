"""Logs a failed attempt: one line, with the job's next status."""

from typing import Any

import structlog

from fairlead.handlers.log import attempt_fields
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Change, Failed
from fairlead.store.queue import Claimed

log = structlog.get_logger(__name__)

# The traceback has its own field; the console log hides it unless the user asks for details.
EVENT = "attempt_failed"
TRACEBACK = "traceback"


def job_log_fields(job: Claimed, worker_id: str | None) -> dict[str, Any]:
    """The log fields that identify an attempt of this job."""
    return attempt_fields(
        job_id=job.job_id,
        tenant_id=job.tenant_id,
        definition_key=job.definition_key,
        attempt_no=job.attempt_no,
        worker_id=worker_id,
    )


def log_failure(job: Claimed, outcome: Failed, change: Change, worker_id: str | None) -> None:
    """Log a failed attempt, with its masked outcome: an error if the job ends, a warning if it is retried."""
    retried = change.status is JobStatus.QUEUED
    write = log.warning if retried else log.error
    write(
        EVENT,
        **job_log_fields(job, worker_id),
        tenant=job.tenant,
        becomes="retry" if retried else change.status.value,
        **({"retry_in_seconds": round(change.delay, 1)} if retried else {}),
        error=outcome.kind,
        message=outcome.message,
        **({TRACEBACK: outcome.traceback} if outcome.traceback else {}),
    )
