"""Why a job is not running: from facts to reasons, most decisive first."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from fairlead.errors import KEY_ERRORS
from fairlead.model.flow import KeyLimit, Rate
from fairlead.model.job import JobStatus
from fairlead.model.labels import format_labels
from fairlead.model.outcome import MAX_LOST
from fairlead.model.reason import Reason, ReasonCode, format_span, format_time
from fairlead.model.why_waits import FunctionWait, explain_waits

MOST_AHEAD = 10_000
MOST_HOLDERS = 5
SEEN_SECONDS = 60
# How the error of a job begins whose secrets a worker could not open.
KEY_TROUBLES = tuple(error.code for error in KEY_ERRORS)


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one job: every reason that applies, most decisive first."""

    job_id: UUID
    status: JobStatus
    at: datetime
    reasons: list[Reason]


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job at `now`. `due_at` is set only while the job waits for that time."""

    now: datetime
    job_id: UUID
    tenant_id: UUID
    tenant: str
    definition_key: str
    host_id: UUID | None
    host: str | None
    host_seen_at: datetime | None
    host_draining: bool
    status: JobStatus
    attempt_count: int
    failure_count: int
    max_attempts: int
    last_error: str | None
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    claimed_by_worker: str | None
    lease_expires_at: datetime | None
    last_attempt_status: str | None
    due_at: datetime | None
    waits_for_jobs: bool
    # a worker starts it alone; an accused job needs an idle worker
    alone: bool
    accused: bool
    suspected: int
    lost_count: int
    # the engine that delivers its jobs, if one does
    engine: str | None
    # of a job that has not begun an attempt
    expires_at: datetime | None = None
    # the slots, and the labels of workers that its definition requires and prefers
    slots: int = 1
    requires: dict[str, str] | None = None
    prefers: dict[str, str] | None = None
    host_labels: dict[str, str] | None = None
    # since when it may run, as far as its time is concerned
    waits_since: datetime | None = None
    # a durable function that waits; something else may wake it before `due_at`
    is_suspended: bool = False


class ClosedGate(msgspec.Struct, frozen=True):
    scope: str
    name: str
    paused_at: datetime
    paused_by: str | None
    note: str | None


class Limit(msgspec.Struct, frozen=True):
    """A limit on running jobs, the number that runs, and the oldest running jobs of the tenant."""

    scope: str
    most: int
    running: int
    holders: list[UUID]


class RateLimit(msgspec.Struct, frozen=True):
    """A rate, and when it allows the next start; None: now."""

    scope: str
    rate: Rate
    opens_at: datetime | None


class KeyConditions(msgspec.Struct, frozen=True):
    """The limits of a job's key, the jobs of the key that run, and the older job that a strict order puts first."""

    by_key: KeyLimit
    running: int
    holders: list[UUID]
    opens_at: datetime | None
    older: UUID | None


class WorkerCounts(msgspec.Struct, frozen=True):
    """How many workers are alive, how many of them serve the definition, and when one was last seen.

    Of those that serve it: how many have the labels that it requires, and the most slots of one of them; and how many of
    these have enough slots and also the labels that it prefers.
    """

    alive: int = 0
    serving: int = 0
    last_seen_at: datetime | None = None
    with_labels: int = 0
    most_slots: int = 0
    preferred: int = 0


class ServingWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A live worker that serves a definition; `tenant`: only for this one."""

    worker_id: str
    hostname: str
    tenant: str | None
    running_count: int
    concurrency: int
    labels: dict[str, str]
    last_seen_at: datetime


class QueueConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions for a queued job. `ahead` is counted up to MOST_AHEAD + 1."""

    gates: Sequence[ClosedGate] = ()
    limits: Sequence[Limit] = ()
    rates: Sequence[RateLimit] = ()
    key: KeyConditions | None = None
    workers: WorkerCounts = msgspec.field(default_factory=WorkerCounts)
    ahead: int = 0
    # how long jobs wait for workers with the labels that they prefer
    prefer_seconds: float = 0.0
    # of a durable function
    waits: Sequence[FunctionWait] = ()


def explain(job: JobSnapshot, around: QueueConditions) -> list[Reason]:
    """Every reason why the job is not running (or that it is), most decisive first; never empty."""
    if job.status.terminal:
        return [_explain_terminal(job)]
    if job.status is JobStatus.RUNNING:
        return [_explain_running(job)]
    expiry = _explain_expiry(job)
    if expiry and expiry.facts["in_seconds"] <= 0:
        return [expiry]
    found = list(_list_obstacles(job, around))
    when = "in the next free slot" if job.slots == 1 else f"when a worker has {job.slots} free slots"
    found = found or [Reason(ReasonCode.READY, f"Nothing holds it back: it runs {when}.", {})]
    return [*found, expiry] if expiry else found


def _explain_expiry(job: JobSnapshot) -> Reason | None:
    if job.expires_at is None:
        return None
    facts = {"at": job.expires_at, "in_seconds": (job.expires_at - job.now).total_seconds()}
    if job.expires_at <= job.now:
        text = f"It expired {format_span(job.expires_at, job.now)} ago: it does not start, and is canceled within seconds."
    else:
        when = f"in {format_span(job.now, job.expires_at)}, at {format_time(job.expires_at)}"
        text = f"It expires {when}: it is canceled if it has not started by then."
    return Reason(ReasonCode.EXPIRES, text, facts)


def _list_obstacles(job: JobSnapshot, around: QueueConditions) -> Iterator[Reason]:
    if (trouble := _find_key_trouble(job)) is not None:
        yield _explain_key_trouble(job, trouble)
    waiting = list(_explain_waits(job, around.waits))
    yield from waiting
    if job.alone:
        yield _explain_suspect(job)
    for gate in around.gates:
        yield _explain_gate(job, gate)
    if job.host_draining:
        yield _explain_drain(job)
    if not waiting:  # the limits will have changed when the job is due
        yield from _explain_limits(job, around)
    yield from _explain_no_worker(job, around.workers)
    if not waiting:
        yield from _explain_preference(job, around)
    if not waiting and around.ahead:
        yield _explain_jobs_ahead(job, around.ahead)


def _find_key_trouble(job: JobSnapshot) -> str | None:
    """Why the last worker that claimed the job could not open its secrets; None if it could."""
    code, _, why = (job.last_error or "").partition(": ")
    return why if job.last_attempt_status == "released" and code in KEY_TROUBLES else None


def _explain_key_trouble(job: JobSnapshot, why: str) -> Reason:
    text = (
        f"The last worker that claimed it could not open its secrets, and gave it back without charging an attempt: {why} It "
        "is tried again every few seconds, and runs on a worker that has the key."
    )
    return Reason(ReasonCode.ENCRYPTION_KEY, text, {"last_error": job.last_error})


def _explain_limits(job: JobSnapshot, around: QueueConditions) -> Iterator[Reason]:
    for limit in around.limits:
        if limit.running >= limit.most:
            yield _explain_limit(job, limit)
    if around.key is not None:
        yield from _explain_key(job, around.key)
    for one in around.rates:
        if one.opens_at is not None and one.opens_at > job.now:
            code, whose = _RATES[one.scope]
            yield _explain_rate(job, code, whose.format(job=job), one.rate, one.opens_at)


def _explain_terminal(job: JobSnapshot) -> Reason:
    when = "" if job.finished_at is None else f", {format_span(job.finished_at, job.now)} ago"
    succeeded = job.status is JobStatus.SUCCEEDED
    again = "" if succeeded else " Retry to run it again."
    return Reason(
        ReasonCode.TERMINAL,
        f"{job.status.replace('_', ' ').capitalize()}{when}.{again}",
        {
            "status": job.status,
            "finished_at": job.finished_at,
            "last_error": None if succeeded else job.last_error,
        },
    )


def _explain_running(job: JobSnapshot) -> Reason:
    facts = {
        "worker": job.claimed_by_worker,
        "attempt": job.attempt_count,
        "since": job.started_at,
        "lease_expires_at": job.lease_expires_at,
        "cancel_requested_at": job.cancel_requested_at,
    }
    if job.lease_expires_at is not None and job.lease_expires_at <= job.now:
        return Reason(
            ReasonCode.WORKER_LOST,
            f"Worker {job.claimed_by_worker} was lost during attempt {job.attempt_count}: its lease expired "
            f"{format_span(job.now, job.lease_expires_at)} ago. The watchdog queues the job again at its next sweep.",
            facts,
        )
    asked = (
        "" if job.cancel_requested_at is None else " Cancel was requested; its worker has not stopped it yet."
    )
    since = "" if job.started_at is None else f" for {format_span(job.started_at, job.now)}"
    if job.engine is not None:
        where = f"attempt {job.attempt_count}, carried by the engine {job.engine}"
        text = f"It was handed over: {where}{since}. It waits there or runs.{asked}"
        return Reason(ReasonCode.RUNNING, text, {**facts, "engine": job.engine})
    return Reason(
        ReasonCode.RUNNING,
        f"It runs: attempt {job.attempt_count} on worker {job.claimed_by_worker}{since}.{asked}",
        facts,
    )


def _explain_waits(job: JobSnapshot, waits: Sequence[FunctionWait]) -> Iterator[Reason]:
    if job.waits_for_jobs:
        yield Reason(ReasonCode.WAITING_FOR_JOBS, "It waits for other jobs to end.", {})
    elif job.due_at is not None and job.due_at > job.now:
        known = explain_waits(waits, job.now) if job.is_suspended else []
        yield from known or [_explain_time(job, job.due_at)]


def _explain_time(job: JobSnapshot, due_at: datetime) -> Reason:
    facts: dict[str, Any] = {"at": due_at, "in_seconds": (due_at - job.now).total_seconds()}
    when = f"in {format_span(job.now, due_at)}, at {format_time(due_at)}"
    if job.last_attempt_status in ("failed", "timeout", "lost"):
        return _explain_backoff(job, facts, when)
    return Reason(ReasonCode.NOT_DUE, f"It is not due yet: it may run {when}.", facts)


def _explain_backoff(job: JobSnapshot, facts: dict[str, Any], when: str) -> Reason:
    facts |= {
        "after": job.last_attempt_status,
        "failures": job.failure_count,
        "max_attempts": job.max_attempts,
        "last_error": job.last_error,
    }
    if job.last_attempt_status == "lost":
        return Reason(
            ReasonCode.BACKING_OFF,
            f"Attempt {job.attempt_count} was lost with its worker: it runs again {when}.",
            facts,
        )
    what = "timed out" if job.last_attempt_status == "timeout" else "failed"
    error = f" Last error: {job.last_error}" if job.last_error else ""
    return Reason(
        ReasonCode.BACKING_OFF,
        f"Attempt {job.attempt_count} {what}: retry {job.failure_count} of {job.max_attempts - 1} is {when}.{error}",
        facts,
    )


def _explain_suspect(job: JobSnapshot) -> Reason:
    beside = (
        "Its worker was lost while it ran this job and others" if job.suspected else "Its worker was lost"
    )
    where = "when it runs no other job" if job.accused else "when its other jobs have run for a while"
    text = (
        f"It waits to run alone. {beside}, and it is unknown which job was the cause. A worker starts it {where}, and "
        f"starts no other job for some seconds. If that worker is lost too, the loss is charged to this job; after "
        f"{MAX_LOST} charged losses it is a dead letter."
    )
    facts = {"suspected": job.suspected, "charged": job.lost_count, "needs_idle_worker": job.accused}
    return Reason(ReasonCode.SUSPECT, text, facts)


_GATES = {
    "system": ReasonCode.SYSTEM_PAUSED,
    "tenant": ReasonCode.TENANT_PAUSED,
    "definition": ReasonCode.DEFINITION_PAUSED,
    "host": ReasonCode.HOST_PAUSED,
}


def _explain_gate(job: JobSnapshot, gate: ClosedGate) -> Reason:
    name = "The whole system" if gate.scope == "system" else f"{gate.scope.capitalize()} {gate.name}"
    by = f" by {gate.paused_by}" if gate.paused_by else ""
    note = f": {gate.note}" if gate.note else "."
    return Reason(
        _GATES[gate.scope],
        f"{name} is paused{by} for {format_span(gate.paused_at, job.now)}{note}",
        {"name": gate.name, "by": gate.paused_by, "since": gate.paused_at, "note": gate.note},
    )


def _explain_drain(job: JobSnapshot) -> Reason:
    text = f"Host {job.host} is draining: its agent takes no more jobs until the host is resumed."
    return Reason(ReasonCode.HOST_DRAINING, text, {"host_id": job.host_id, "host": job.host})


_LIMITS = {
    "tenant": (ReasonCode.TENANT_LIMIT, "tenant {job.tenant}"),
    "definition": (ReasonCode.DEFINITION_LIMIT, "definition {job.definition_key}"),
    "definition_tenant": (
        ReasonCode.DEFINITION_TENANT_LIMIT,
        "definition {job.definition_key} for tenant {job.tenant}",
    ),
    "host": (ReasonCode.HOST_LIMIT, "host {job.host}"),
}


def _explain_limit(job: JobSnapshot, limit: Limit) -> Reason:
    code, whose = _LIMITS[limit.scope]
    held = (
        f" Held by {', '.join(map(str, limit.holders))}" if limit.holders else " Held by other tenants' jobs"
    )
    more = limit.running - len(limit.holders)
    rest = f" and {more} more" if limit.holders and more else ""
    return Reason(
        code,
        f"The limit of {whose.format(job=job)} is reached: {limit.running} of {limit.most} are running.{held}{rest}.",
        {"limit": limit.most, "running": limit.running, "held_by": list(limit.holders)},
    )


_RATES = {
    "system": (ReasonCode.SYSTEM_RATE, "the whole system"),
    "tenant": (ReasonCode.TENANT_RATE, "tenant {job.tenant}"),
    "definition": (ReasonCode.DEFINITION_RATE, "definition {job.definition_key}"),
    "definition_tenant": (
        ReasonCode.DEFINITION_TENANT_RATE,
        "definition {job.definition_key} for tenant {job.tenant}",
    ),
}


def _explain_rate(job: JobSnapshot, code: ReasonCode, whose: str, rate: Rate, opens_at: datetime) -> Reason:
    seconds = "a second" if rate.per_seconds == 1 else f"{rate.per_seconds} s"
    at_once = "one" if rate.burst == 1 else f"{rate.burst}"
    return Reason(
        code,
        f"The rate of {whose} is used up: {rate.limit} starts in {seconds}, {at_once} at once. The next start is possible "
        f"in {format_span(job.now, opens_at)}, at {format_time(opens_at)}.",
        {
            "limit": rate.limit,
            "per_seconds": rate.per_seconds,
            "burst": rate.burst,
            "opens_at": opens_at,
            "in_seconds": (opens_at - job.now).total_seconds(),
        },
    )


def _explain_key(job: JobSnapshot, key: KeyConditions) -> Iterator[Reason]:
    """The value of the key is not told: it may be a secret."""
    most, pointer = key.by_key.max_running, key.by_key.pointer
    whose = f"jobs of {job.definition_key} with the same {pointer}"
    if most is not None and key.running >= most:
        held = ", ".join(map(str, key.holders))
        more = key.running - len(key.holders)
        yield Reason(
            ReasonCode.KEY_LIMIT,
            f"The limit of {whose} is reached: {key.running} of {most} are running. Held by {held}"
            f"{f' and {more} more' if more else ''}.",
            {"pointer": pointer, "limit": most, "running": key.running, "held_by": list(key.holders)},
        )
    if key.older is not None:
        yield Reason(
            ReasonCode.KEY_ORDER,
            f"The {whose} start in the order of their enqueues, and job {key.older} waits before it.",
            {"pointer": pointer, "before": key.older},
        )
    if key.by_key.rate is not None and key.opens_at is not None and key.opens_at > job.now:
        yield _explain_rate(job, ReasonCode.KEY_RATE, whose, key.by_key.rate, key.opens_at)


def _explain_no_worker(job: JobSnapshot, workers: WorkerCounts) -> Iterator[Reason]:
    if job.engine is not None:
        if not workers.serving:
            text = f"No bridge delivers {job.definition_key}: start `fairlead bridge` with [engines.{job.engine}]."
            facts = {"definition": job.definition_key, "engine": job.engine, "workers": workers.alive}
            yield Reason(ReasonCode.NO_WORKER, text, facts)
    elif job.host_id is not None:
        if job.host_seen_at is None or _seconds_between(job.host_seen_at, job.now) > SEEN_SECONDS:
            yield _explain_no_agent(job)
        if not (job.requires or {}).items() <= (job.host_labels or {}).items():
            text = f"Its definition requires {format_labels(job.requires or {})}, which host {job.host} does not have."
            yield Reason(ReasonCode.LABELS, text, {"requires": job.requires, "host": job.host})
    elif not workers.serving:
        text = (
            f"No worker serves {job.definition_key}: {workers.alive} are running, but none has this definition."
            if workers.alive
            else f"No worker is running: none was seen in the last {SEEN_SECONDS} s."
        )
        facts = {
            "definition": job.definition_key,
            "workers": workers.alive,
            "last_seen_at": workers.last_seen_at,
        }
        yield Reason(ReasonCode.NO_WORKER, text, facts)
    else:
        yield from _explain_unable(job, workers)


def _explain_unable(job: JobSnapshot, workers: WorkerCounts) -> Iterator[Reason]:
    """Why no worker that serves the definition may run the job."""
    if job.requires and not workers.with_labels:
        yield Reason(
            ReasonCode.LABELS,
            f"No live worker has {format_labels(job.requires)}, which {job.definition_key} requires: {workers.serving} "
            f"{'serves' if workers.serving == 1 else 'serve'} it without these labels.",
            {"requires": job.requires, "workers": workers.serving},
        )
    elif job.slots > 1 and workers.most_slots < job.slots:
        yield Reason(
            ReasonCode.SLOTS,
            f"It needs {job.slots} slots, and no live worker that may run it has more than {workers.most_slots}.",
            {"slots": job.slots, "most_slots": workers.most_slots},
        )


def _explain_preference(job: JobSnapshot, around: QueueConditions) -> Iterator[Reason]:
    preferred = around.workers.preferred
    if not job.prefers or not preferred or job.waits_since is None or job.host_id is not None:
        return
    left_until = job.waits_since + timedelta(seconds=around.prefer_seconds)
    if left_until <= job.now:
        return
    workers = "a live worker has" if preferred == 1 else f"{preferred} live workers have"
    yield Reason(
        ReasonCode.PREFERRED_LABELS,
        f"It prefers workers with {format_labels(job.prefers)}, and {workers} these labels. Others may take it in "
        f"{format_span(job.now, left_until)}, at {format_time(left_until)}.",
        {"prefers": job.prefers, "workers": preferred, "at": left_until},
    )


def _explain_no_agent(job: JobSnapshot) -> Reason:
    if job.host is None:
        text = f"Its host {job.host_id} was removed."
    elif job.host_seen_at is None:
        text = f"The agent of host {job.host} has never been seen."
    else:
        text = f"The agent of host {job.host} was last seen {format_span(job.host_seen_at, job.now)} ago."
    facts = {"host_id": job.host_id, "host": job.host, "last_seen_at": job.host_seen_at}
    return Reason(ReasonCode.NO_AGENT, text, facts)


def _explain_jobs_ahead(job: JobSnapshot, ahead: int) -> Reason:
    capped = ahead > MOST_AHEAD
    number = f"At least {MOST_AHEAD:,}" if capped else f"{ahead:,}"
    where = f"tenant {job.tenant}" if job.host_id is None else f"host {job.host}"
    text = f"{number} job{'' if ahead == 1 else 's'} of {where} {'is' if ahead == 1 else 'are'} ahead of it."
    return Reason(ReasonCode.QUEUED_BEHIND, text, {"ahead": min(ahead, MOST_AHEAD), "at_least": capped})


def _seconds_between(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds()
