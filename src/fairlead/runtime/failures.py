"""What a worker's log says of an attempt that failed: one line, and what becomes of the job."""

from typing import Any

import structlog

from fairlead.handlers.log import attempt_fields
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Change, Failed
from fairlead.store.queue import Claimed

log = structlog.get_logger(__name__)

# The traceback comes along in a field; a log for people leaves it out unless they want to know more.
EVENT = "attempt_failed"
TRACEBACK = "traceback"


def fields_of(job: Claimed, worker_id: str | None) -> dict[str, Any]:
    """What every line about an attempt of this job says of it."""
    return attempt_fields(
        job_id=job.job_id,
        tenant_id=job.tenant_id,
        definition_key=job.definition_key,
        attempt_no=job.attempt_no,
        worker_id=worker_id,
    )


def tell(job: Claimed, outcome: Failed, change: Change, worker_id: str | None) -> None:
    """Log a failed attempt, whose outcome has been masked as what is stored: an error if the job ends with it."""
    retried = change.status is JobStatus.QUEUED
    write = log.warning if retried else log.error
    write(
        EVENT,
        **fields_of(job, worker_id),
        tenant=job.tenant,
        becomes="retry" if retried else change.status.value,
        **({"retry_in_seconds": round(change.delay, 1)} if retried else {}),
        error=outcome.kind,
        message=outcome.message,
        **({TRACEBACK: outcome.traceback} if outcome.traceback else {}),
    )
