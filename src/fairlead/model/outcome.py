"""What an attempt's end means for its job: the retry rules."""

import random
from dataclasses import dataclass

from fairlead.errors import DefinitionInvalid, Fault
from fairlead.model.job import JobStatus

DEFAULT_MAX_ATTEMPTS = 5


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
