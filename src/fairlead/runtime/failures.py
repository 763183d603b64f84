"""What a worker's log says of an attempt that failed: one line, and what becomes of the job."""

import structlog

from fairlead.model.job import JobStatus
from fairlead.model.outcome import Change, Failed
from fairlead.store.queue import Claimed

log = structlog.get_logger(__name__)

# The traceback comes along in a field; a log for people leaves it out unless they want to know more.
EVENT = "attempt_failed"
TRACEBACK = "traceback"


def tell(job: Claimed, outcome: Failed, change: Change) -> None:
    """Log a failed attempt, whose outcome has been masked as what is stored: an error if the job ends with it."""
    retried = change.status is JobStatus.QUEUED
    write = log.warning if retried else log.error
    write(
        EVENT,
        job_id=str(job.job_id),
        tenant=job.tenant,
        definition_key=job.definition_key,
        attempt_no=job.attempt_no,
        becomes="retry" if retried else change.status.value,
        **({"retry_in_seconds": round(change.delay, 1)} if retried else {}),
        error=outcome.kind,
        message=outcome.message,
        **({TRACEBACK: outcome.traceback} if outcome.traceback else {}),
    )
