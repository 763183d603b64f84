"""A job as BullMQ has it, and what it means for the attempt that it carries. No I/O."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from fairlead.integrations.engine import DeliveryProgress, Handover, Report
from fairlead.model.delivery import SECRET_DIGITS, AttemptRef, make_secret
from fairlead.model.outcome import Failed, Succeeded

# Finished jobs that no bridge has removed: BullMQ removes them after this time.
KEEP_SECONDS = 7 * 86_400
# The option of a BullMQ job with Fairlead's ids. Workers read it as job.opts.fairlead; BullMQ keeps and ignores it.
OPTION = "fairlead"
# The event that asks for the end of a running job. A worker stops its job if it listens for it.
CANCEL_EVENT = "fairlead:cancel"
STALLED_REASON = "job stalled more than allowable limit"
STALLED_MESSAGE = "The worker stopped renewing its lock; BullMQ delivers the job again."
# An error that a worker throws so that its job is not tried again.
FINAL_ERROR = "UnrecoverableError"
LOST = "BullMQ no longer has the job: it was removed, or Redis lost it."
MOST_LOG_LINES = 1000

_ID = re.compile(
    rf"([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})-([1-9][0-9]{{0,8}})-([0-9a-f]{{{SECRET_DIGITS}}})"
)
# The first line of a stack trace: `TypeError: …`
_ERROR_NAME = re.compile(r"([A-Za-z_$][\w$.]*)(?::|$)", re.MULTILINE)


class JobRef(NamedTuple):
    """A job of BullMQ: its queue and its id."""

    queue: str
    id: str


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """What BullMQ has of a job. `state` is completed, failed or open."""

    state: str
    return_value: str | None = None
    failed_reason: str | None = None
    stacktrace: str | None = None
    log: Sequence[str] = ()


class QueueEvent(NamedTuple):
    """An entry of a queue's events. Some may be missing: an event only tells where to look."""

    ref: JobRef
    name: str
    # the progress of an event `progress`, as JSON
    data: str | None = None
    # the state before, of an event `removed`
    previous: str | None = None


def find_queue_flaw(queue: str) -> str | None:
    """Why BullMQ cannot have a queue of this name, or None."""
    if not queue:
        return "the name of a BullMQ queue cannot be empty"
    if ":" in queue:
        return (
            f"the name of a BullMQ queue cannot contain a colon: {queue!r}. "
            "Change the definition's queue, to org-{tenant} for instance"
        )
    return None


def build_options(handover: Handover) -> dict[str, Any]:
    """The options of the BullMQ job of an attempt: BullMQ tries it once, and keeps it until a bridge has its result."""
    keep = {"age": KEEP_SECONDS}
    return {
        "jobId": build_ref(handover).id,
        "attempts": 1,
        "removeOnComplete": keep,
        "removeOnFail": keep,
        OPTION: {
            "job_id": str(handover.lease.job_id),
            "attempt_no": handover.lease.attempt_no,
            "max_attempts": handover.max_attempts,
            "tenant": handover.tenant,
            "tenant_id": str(handover.tenant_id),
            "timeout_seconds": handover.timeout_seconds,
            "correlation_id": handover.correlation_id,
            "parent_id": None if handover.parent_id is None else str(handover.parent_id),
            "host": handover.host,
        },
    }


def build_ref(handover: Handover) -> JobRef:
    """The BullMQ job of an attempt. Who can write to another queue cannot guess its id."""
    return JobRef(handover.queue, f"{handover.id}-{make_secret(handover.lease.token)}")


def find_attempt(ref: JobRef) -> AttemptRef | None:
    """The attempt that a BullMQ job carries; None if Fairlead did not hand it over."""
    found = _ID.fullmatch(ref.id)
    return None if found is None else AttemptRef(UUID(found[1]), int(found[2]), None, found[3], ref.queue)


def build_report(
    ref: JobRef, what: Succeeded | Failed | DeliveryProgress, log: str | None = None
) -> Report | None:
    """A report on the attempt that a BullMQ job carries; None if it carries none."""
    attempt = find_attempt(ref)
    return None if attempt is None else Report(attempt=attempt, what=what, log=log)


def read_outcome(job: StoredJob) -> Succeeded | Failed | None:
    """The outcome of a finished job; None if it is not finished."""
    if job.state == "completed":
        return Succeeded(_decode(job.return_value))
    if job.state == "failed":
        return _read_failure(job)
    return None


def _read_failure(job: StoredJob) -> Failed:
    traces = _decode(job.stacktrace)
    trace = "\n".join(map(str, traces)) if isinstance(traces, list) else ""
    reason = job.failed_reason or "The job failed without a reason."
    if reason.startswith(STALLED_REASON):
        return Failed("Stalled", reason, traceback=trace or None)
    found = _ERROR_NAME.match(str(traces[-1])) if isinstance(traces, list) and traces else None
    kind = found[1] if found else "Error"
    return Failed(kind, reason, retryable=kind != FINAL_ERROR, traceback=trace or None)


def read_progress(data: str | None) -> DeliveryProgress:
    """The progress that a worker reported: a number, or an object with a number and a message."""
    value = _decode(data)
    if isinstance(value, dict):
        percent = next((value[name] for name in ("percent", "progress") if _is_number(value.get(name))), 0)
        message = next(
            (value[name] for name in ("message", "status") if isinstance(value.get(name), str)), None
        )
        return DeliveryProgress(
            float(percent), msgspec.json.encode(value).decode() if message is None else message
        )
    if _is_number(value):
        return DeliveryProgress(float(value))
    return DeliveryProgress(0.0, "" if value is None else str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decode(text: str | None) -> Any:
    """A value of BullMQ; a text that is not JSON, or is nested too deeply, is the value itself."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
