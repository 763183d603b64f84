"""The retry rules: how the outcome of an attempt changes its job."""

import random
from enum import StrEnum
from typing import Any, Protocol, assert_never

import msgspec

from fairlead.errors import DefinitionInvalid, Fault, InvalidInput
from fairlead.model.durable import Place
from fairlead.model.job import JobStatus

DEFAULT_MAX_ATTEMPTS = 5
# Charged losses until a job is a dead letter: it was its worker's only job.
MAX_LOST = 3
# Uncharged losses, beside other jobs, until a job is a dead letter and a person has to look at it. A healthy job
# would have to lose a hundred workers.
MAX_SUSPECTED = 100
# From this loss on, a worker starts the job alone. After the first loss it runs normally: nearly always the worker was
# killed or its machine failed, and all its jobs should run again at once.
LOSSES_OF_A_SUSPECT = 2
LONGEST_MESSAGE = 2000
# Words that other systems use.
_STATUS_SYNONYMS: dict[str, JobStatus] = {"success": JobStatus.SUCCEEDED, "cancelled": JobStatus.CANCELED}


class Backoff(msgspec.Struct, frozen=True):
    """delay(n) = min(cap, base × factor^(n-1)) for the n-th failure, give or take the jitter."""

    base_seconds: float = 10.0
    factor: float = 2.0
    cap_seconds: float = 3600.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        """Raise DefinitionInvalid for values out of range."""
        faults = [
            Fault(f"backoff.{name}", advice)
            for name, least, most, advice in (
                ("base_seconds", 0, 31_536_000, "must be a number of seconds, 0 to 31536000"),
                ("factor", 1, 100, "must be a number, 1 to 100"),
                ("cap_seconds", 0, 31_536_000, "must be a number of seconds, 0 to 31536000"),
                ("jitter", 0, 1, "must be a number, 0 to 1"),
            )
            if not _is_between(getattr(self, name), least, most)
        ]
        if faults:
            raise DefinitionInvalid(f"Invalid backoff: {faults[0].path} {faults[0].message}.", faults)

    def delay(self, failures: int, *, spread: float | None = None) -> float:
        """Seconds to wait after this many failures; `spread` in -1..1 replaces the random jitter."""
        exponent = max(failures, 1) - 1
        # the power may overflow, but then the cap applies anyway
        steps = exponent if self.factor == 1 else min(exponent, 1024)
        try:
            plain = min(self.cap_seconds, self.base_seconds * self.factor**steps)
        except OverflowError:
            plain = self.cap_seconds
        chance = random.uniform(-1, 1) if spread is None else spread  # noqa: S311
        return max(0.0, plain * (1 + self.jitter * chance))


def _is_between(value: Any, least: float, most: float) -> bool:
    # False for NaN, too
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def can_retry(status: JobStatus | str, attempts: int, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> bool:
    """Whether the system may retry a job with this status and number of attempts."""
    return _parse_status(status) not in (JobStatus.SUCCEEDED, JobStatus.RUNNING) and attempts < max_attempts


def _parse_status(word: JobStatus | str) -> JobStatus:
    try:
        return _STATUS_SYNONYMS.get(word) or JobStatus(word)
    except (ValueError, TypeError):
        known = ", ".join(JobStatus)
        raise InvalidInput(
            f"{str(word)[:80]!r} is not a job status. Use one of {known}.",
            [Fault("status", f"use one of {known}")],
        ) from None


# Structs, since every attempt creates some: several times cheaper than frozen dataclasses.


class Succeeded(msgspec.Struct, frozen=True):
    output: Any = None
    cost_cents: int = 0


class Failed(msgspec.Struct, frozen=True):
    """The handler failed or timed out. A failure that is not retryable ends the job."""

    kind: str
    message: str
    retryable: bool = True
    timed_out: bool = False
    traceback: str | None = None
    cost_cents: int = 0


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked to run again later, or this worker cannot run it: `why`. No attempt is charged."""

    delay: float
    cost_cents: int = 0
    why: str | None = None


class Suspended(msgspec.Struct, frozen=True):
    """A durable function waits: at the latest for `delay` seconds, or until one of its waits is completed."""

    delay: float
    waits: tuple[Place, ...] = ()
    cost_cents: int = 0


class Released(msgspec.Struct, frozen=True):
    """The worker stopped before the handler ended; no attempt is charged."""

    cost_cents: int = 0


class Canceled(msgspec.Struct, frozen=True):
    """The worker stopped the handler after a cancel request."""

    cost_cents: int = 0


class Blame(StrEnum):
    """What a lost worker means for a job that it held."""

    # it was the worker's only job
    CHARGED = "charged"
    # it had just started, and all other jobs of the worker had run for a while
    ACCUSED = "accused"
    # one of several jobs, and any of them may be the cause
    SUSPECTED = "suspected"
    # another job was accused
    CLEARED = "cleared"
    # an engine carries it, and no bridge renewed its lease: it ran elsewhere
    ELSEWHERE = "elsewhere"


class Lost(msgspec.Struct, frozen=True):
    """The worker did not renew its lease in time. `suspected` counts the earlier losses that were not charged."""

    blame: Blame = Blame.CHARGED
    suspected: int = 0
    # only the host's agent runs its jobs, so they cannot wait for an idle worker
    on_host: bool = False


Outcome = Succeeded | Failed | Snoozed | Suspended | Released | Canceled | Lost

SUCCEEDED = Succeeded()


class RetryState(Protocol):
    """The attempts that a job has used, and its limits."""

    @property
    def max_attempts(self) -> int: ...
    @property
    def failure_count(self) -> int: ...
    @property
    def lost_count(self) -> int: ...
    @property
    def backoff(self) -> Backoff: ...


class RetryBudget(msgspec.Struct, frozen=True):
    """A RetryState without a job."""

    max_attempts: int
    failure_count: int
    lost_count: int
    backoff: Backoff


# The highest cost of one attempt: the sum of millions still fits into a bigint.
MOST_CENTS = 10**12


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The change to a job at the end of an attempt."""

    status: JobStatus
    attempt_status: str
    delay: float = 0.0
    charge: int = 0
    loss: int = 0
    # to add to the losses that are not charged
    suspicion: int = 0
    # a worker starts the next attempt alone; an accused job needs an idle worker
    alone: bool = False
    accused: bool = False
    output: Any = None
    error: dict[str, Any] | None = None
    message: str | None = None
    cost_cents: int = 0
    log: str | None = None
    # for an attempt in a subprocess: pid, exit_code, signal, stderr
    ran: dict[str, Any] | None = None
    # of a durable function: what it waits for
    waits: tuple[Place, ...] = ()

    @property
    def is_plain_success(self) -> bool:
        """Whether the attempt succeeded, and nothing but its output is to be recorded."""
        return (
            self.attempt_status == "succeeded"
            and not self.cost_cents
            and self.log is None
            and self.ran is None
        )


_DONE = Change(status=JobStatus.SUCCEEDED, attempt_status="succeeded")


def decide(job: RetryState, outcome: Outcome) -> Change:  # noqa: PLR0911 - one for each outcome
    """The change that an outcome makes to its job. The database handles a cancel request that came meanwhile."""
    match outcome:
        case Succeeded():
            return _DONE if outcome is SUCCEEDED else _decide_success(outcome)
        case Failed():
            return _decide_failure(job, outcome)
        case Snoozed(delay, cost, why):
            return Change(
                status=JobStatus.QUEUED,
                attempt_status="released",
                delay=max(0.0, delay),
                cost_cents=cost,
                message=why,
            )
        case Suspended(delay, waits, cost):
            return Change(
                status=JobStatus.QUEUED,
                attempt_status="released",
                delay=max(0.0, delay),
                waits=waits,
                cost_cents=cost,
            )
        case Released(cost):
            return Change(status=JobStatus.QUEUED, attempt_status="released", cost_cents=cost)
        case Canceled(cost):
            return Change(status=JobStatus.CANCELED, attempt_status="canceled", cost_cents=cost)
        case Lost():
            return _decide_loss(job, outcome)
    assert_never(outcome)


def _decide_success(outcome: Succeeded) -> Change:
    return Change(
        status=JobStatus.SUCCEEDED,
        attempt_status="succeeded",
        output=outcome.output,
        cost_cents=outcome.cost_cents,
    )


def _decide_failure(job: RetryState, outcome: Failed) -> Change:
    failures = job.failure_count + 1
    if not outcome.retryable:
        status = JobStatus.FAILED
    elif failures >= job.max_attempts:
        status = JobStatus.DEAD_LETTER
    else:
        status = JobStatus.QUEUED
    message = f"{outcome.kind}: {outcome.message}"[:LONGEST_MESSAGE]
    return Change(
        status=status,
        attempt_status="timeout" if outcome.timed_out else "failed",
        delay=job.backoff.delay(failures) if status is JobStatus.QUEUED else 0.0,
        charge=1,
        error={"type": outcome.kind, "message": outcome.message, "traceback": outcome.traceback},
        message=message,
        cost_cents=outcome.cost_cents,
    )


def _decide_loss(job: RetryState, outcome: Lost) -> Change:
    """Losses have their own counter: a job whose workers keep dying is a poison job, not a failing one."""
    charged = outcome.blame is Blame.CHARGED
    losses = job.lost_count + charged
    suspected = outcome.suspected + (outcome.blame in (Blame.ACCUSED, Blame.SUSPECTED))
    why, is_over = _explain_loss(outcome, losses, suspected)
    is_suspect = (
        outcome.blame not in (Blame.CLEARED, Blame.ELSEWHERE) and losses + suspected >= LOSSES_OF_A_SUSPECT
    )
    return Change(
        status=JobStatus.DEAD_LETTER if is_over else JobStatus.QUEUED,
        attempt_status="lost",
        delay=0.0 if is_over else random.uniform(0.1, 2.0) * max(1, losses),  # noqa: S311
        loss=int(charged),
        suspicion=suspected - outcome.suspected,
        alone=is_suspect and not is_over and not outcome.on_host,
        accused=is_suspect and outcome.blame in (Blame.CHARGED, Blame.ACCUSED),
        error={"type": "LeaseLost", "message": why, "traceback": None},
        message=why,
    )


def _explain_loss(outcome: Lost, losses: int, suspected: int) -> tuple[str, bool]:
    """The message for a loss, and whether it ends the job."""
    if outcome.blame is Blame.ELSEWHERE:
        return "no bridge renewed its lease: not charged; check that `fairlead bridge` runs", False
    if outcome.blame is Blame.CHARGED:
        if losses < MAX_LOST:
            return "the worker was lost", False
        return f"the worker was lost {MAX_LOST} times while it ran only this job: contained as poison", True
    if suspected < MAX_SUSPECTED:
        return "the worker was lost while this job ran beside others: not charged", False
    often = f"the worker was lost {suspected} times while this job ran beside others"
    return f"{often}: look at what it does before you retry it", True
