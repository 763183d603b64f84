"""How an attempt ended, and what that does to its job: the retry rules."""

import random
from dataclasses import dataclass
from typing import Any, assert_never

from fairlead.errors import DefinitionInvalid, Fault
from fairlead.model.job import JobStatus

DEFAULT_MAX_ATTEMPTS = 5
MAX_LOST = 3
LONGEST_MESSAGE = 2000


@dataclass(frozen=True, slots=True)
class Backoff:
    """delay(n) = min(cap, base × factor^(n-1)) for the n-th failure, give or take the jitter."""

    base_seconds: float = 10.0
    factor: float = 2.0
    cap_seconds: float = 3600.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a policy that could not be followed."""
        faults = [
            Fault(f"backoff.{name}", advice)
            for name, fine, advice in (
                ("base_seconds", 0 <= self.base_seconds <= 31_536_000, "must be 0 to 31536000"),
                ("factor", 1 <= self.factor <= 100, "must be 1 to 100"),
                ("cap_seconds", 0 <= self.cap_seconds <= 31_536_000, "must be 0 to 31536000"),
                ("jitter", 0 <= self.jitter <= 1, "must be 0 to 1"),
            )
            if not fine
        ]
        if faults:
            raise DefinitionInvalid(
                f"The backoff cannot be followed: {faults[0].path} {faults[0].message}.", faults
            )

    def delay(self, failures: int, *, spread: float | None = None) -> float:
        """Seconds to wait after this many failures; `spread` in -1..1 stands in for chance."""
        exponent = max(failures, 1) - 1
        # past the cap the power may overflow, and need not be known
        steps = exponent if self.factor == 1 else min(exponent, 1024)
        try:
            plain = min(self.cap_seconds, self.base_seconds * self.factor**steps)
        except OverflowError:
            plain = self.cap_seconds
        chance = random.uniform(-1, 1) if spread is None else spread  # noqa: S311
        return max(0.0, plain * (1 + self.jitter * chance))


def can_retry(status: JobStatus, attempts: int, max_attempts: int = DEFAULT_MAX_ATTEMPTS) -> bool:
    """Whether a job that stands so may be tried again by the system."""
    return status not in (JobStatus.SUCCEEDED, JobStatus.RUNNING) and attempts < max_attempts


@dataclass(frozen=True, slots=True)
class Succeeded:
    output: Any = None
    cost_cents: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler failed, or ran too long. A failure that is not retryable ends the job."""

    kind: str
    message: str
    retryable: bool = True
    timed_out: bool = False
    traceback: str | None = None
    cost_cents: int = 0


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to come back later; nothing is charged."""

    delay: float


@dataclass(frozen=True, slots=True)
class Released:
    """The worker stopped before the handler ended; nothing is charged."""


@dataclass(frozen=True, slots=True)
class Canceled:
    """The owner did as it was asked and stopped."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The owner did not renew its lease in time."""


Outcome = Succeeded | Failed | Snoozed | Released | Canceled | Lost


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job has used up, and what it may."""

    max_attempts: int
    failure_count: int
    lost_count: int
    backoff: Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an attempt's end does to its job."""

    status: JobStatus
    attempt_status: str
    delay: float = 0.0
    charge: int = 0
    loss: int = 0
    output: Any = None
    error: dict[str, Any] | None = None
    message: str | None = None
    cost_cents: int = 0
    log: str | None = None


def decide(budget: Budget, outcome: Outcome) -> Change:
    """What an attempt's outcome does to its job. A cancel that was requested meanwhile is the database's to see."""
    match outcome:
        case Succeeded(output, cost):
            return Change(
                status=JobStatus.SUCCEEDED, attempt_status="succeeded", output=output, cost_cents=cost
            )
        case Failed():
            return _failed(budget, outcome)
        case Snoozed(delay):
            return Change(status=JobStatus.QUEUED, attempt_status="released", delay=max(0.0, delay))
        case Released():
            return Change(status=JobStatus.QUEUED, attempt_status="released")
        case Canceled():
            return Change(status=JobStatus.CANCELED, attempt_status="canceled")
        case Lost():
            return _lost(budget)
    assert_never(outcome)


def _failed(budget: Budget, outcome: Failed) -> Change:
    failures = budget.failure_count + 1
    if not outcome.retryable:
        status = JobStatus.FAILED
    elif failures >= budget.max_attempts:
        status = JobStatus.DEAD_LETTER
    else:
        status = JobStatus.QUEUED
    message = f"{outcome.kind}: {outcome.message}"[:LONGEST_MESSAGE]
    return Change(
        status=status,
        attempt_status="timeout" if outcome.timed_out else "failed",
        delay=budget.backoff.delay(failures) if status is JobStatus.QUEUED else 0.0,
        charge=1,
        error={"type": outcome.kind, "message": outcome.message, "traceback": outcome.traceback},
        message=message,
        cost_cents=outcome.cost_cents,
    )


def _lost(budget: Budget) -> Change:
    """Lost attempts are counted apart: a job whose workers keep dying is poison, not failure."""
    poison = budget.lost_count + 1 >= MAX_LOST
    message = "the worker was lost" + (f" {MAX_LOST} times: contained as poison" if poison else "")
    return Change(
        status=JobStatus.DEAD_LETTER if poison else JobStatus.QUEUED,
        attempt_status="lost",
        delay=0.0 if poison else random.uniform(0.1, 2.0) * (budget.lost_count + 1),  # noqa: S311
        loss=1,
        error={"type": "LeaseLost", "message": message, "traceback": None},
        message=message,
    )
