"""Decides when a worker claims as usual and when it stops claiming for a suspect: a job that must start alone."""

import math
import random
import time
from collections.abc import Callable

# A job that has run for this long, or for a third of a lease, is not blamed if the worker dies after a suspect starts.
LONGEST_SETTLING_SECONDS = 10.0
# The share of the workers that see a waiting suspect and stop claiming; the others look again later.
VOLUNTEERS = 0.5


class SuspectTurns:
    """Alternates quiet turns (claim nothing, wait for a suspect) and ordinary ones. A quiet turn takes at most one lease.

    After it the worker claims as usual for at least as long as the quiet turn took, unless there is nothing to claim.
    """

    def __init__(
        self, lease_seconds: float, poll_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease_seconds = lease_seconds
        # less often than claims: it costs an idle worker one more statement
        self._look_seconds = min(4 * poll_seconds, self.settling_seconds)
        self._clock = clock
        self._quiet_since: float | None = None
        self._probation_until = -math.inf
        self._ordinary_until = -math.inf
        self._look_at = -math.inf

    @property
    def settling_seconds(self) -> float:
        """How long a job must run until it is not blamed for a worker's death."""
        return min(self._lease_seconds / 3, LONGEST_SETTLING_SECONDS)

    @property
    def is_quiet(self) -> bool:
        """Whether the worker claims nothing, since a suspect waits."""
        return self._quiet_since is not None

    def until_look(self) -> float:
        """Seconds until it is time to ask again whether a suspect waits."""
        return max(0.0, self._look_at - self._clock())

    def is_time_to_look(self, *, is_idle: bool = False) -> bool:
        """Whether to ask now if a suspect waits. An idle worker claims first, and asks later."""
        now = self._clock()
        patience = 2 * self._look_seconds if is_idle else 0.0
        return now >= self._look_at + patience and now >= self._ordinary_until

    def found_none(self) -> None:
        """No suspect waits that this worker could run."""
        self._look_at = self._clock() + self._look_seconds
        self._end_quiet()

    def volunteer(self) -> bool:
        """Whether to claim nothing until the running jobs have settled or ended; random, so that not all workers do."""
        now = self._clock()
        self._look_at = now + self._look_seconds
        if self._quiet_since is None and random.random() > VOLUNTEERS:  # noqa: S311
            return False
        self._quiet_since = now if self._quiet_since is None else self._quiet_since
        if now - self._quiet_since < self._lease_seconds:
            return True
        self._end_quiet()
        return False

    def begin(self, probation: float) -> None:
        """A suspect starts: no other job may start for `probation` seconds, or until the suspect has ended."""
        now = self._clock()
        self._quiet_since = now if self._quiet_since is None else self._quiet_since
        self._probation_until = now + probation

    def probation_left(self) -> float:
        """Seconds for which no other job may start beside the suspect; 0 without a suspect."""
        return max(0.0, self._probation_until - self._clock())

    def end_probation(self) -> None:
        """The suspect has ended, or its probation is over."""
        if self._probation_until > -math.inf:
            self._probation_until = -math.inf
            self._look_at = self._clock()
            self._end_quiet()

    def end_ordinary(self) -> None:
        """End the ordinary turn: there is nothing to claim."""
        self._ordinary_until = -math.inf

    def _end_quiet(self) -> None:
        if self._quiet_since is not None:
            now = self._clock()
            self._ordinary_until = now + now - self._quiet_since
            self._quiet_since = None
