"""When a worker claims as usual, and when it makes room for a suspect: a job that is to be started by itself."""

import math
import random
import time
from collections.abc import Callable

# Every job that has run here for this long, or for a third of a lease, is not a suspect's rival for the blame.
LONGEST_SETTLING_SECONDS = 10.0
# Of those workers that see a suspect wait, some stop claiming; the others look again.
VOLUNTEERS = 0.5


class Turns:
    """Quiet turns and ordinary ones. A quiet turn takes a lease at most, until the suspect begins.

    After it the worker claims as usual for at least as long as it took, unless there is nothing to claim.
    """

    def __init__(
        self, lease_seconds: float, poll_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease_seconds = lease_seconds
        # rarer than claims: it is one more statement of an idle worker
        self._look_seconds = min(4 * poll_seconds, self.settling_seconds)
        self._clock = clock
        self._quiet_since: float | None = None
        self._probation_until = -math.inf
        self._ordinary_until = -math.inf
        self._look_at = -math.inf

    @property
    def settling_seconds(self) -> float:
        """How long a job has to run until it is beyond suspicion for what begins after it."""
        return min(self._lease_seconds / 3, LONGEST_SETTLING_SECONDS)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is claimed, since a suspect waits."""
        return self._quiet_since is not None

    def until_look(self) -> float:
        """Seconds until it is time to ask again whether a suspect waits."""
        return max(0.0, self._look_at - self._clock())

    def is_time_to_look(self, *, is_idle: bool = False) -> bool:
        """Whether to ask now if a suspect waits. One that is idle claims first: it looks when that brings nothing."""
        now = self._clock()
        patience = 2 * self._look_seconds if is_idle else 0.0
        return now >= self._look_at + patience and now >= self._ordinary_until

    def found_none(self) -> None:
        """No suspect waits that this worker could run."""
        self._look_at = self._clock() + self._look_seconds
        self._end_quiet()

    def volunteer(self) -> bool:
        """Whether to claim nothing until what runs has settled or ended; not all workers at once."""
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
        """A suspect begins: nothing else does for so many seconds, or until it has ended."""
        now = self._clock()
        self._quiet_since = now if self._quiet_since is None else self._quiet_since
        self._probation_until = now + probation

    def probation_left(self) -> float:
        """Seconds for which nothing may begin beside the suspect; 0 where there is none."""
        return max(0.0, self._probation_until - self._clock())

    def end_probation(self) -> None:
        """The suspect has ended, or has run for long enough."""
        if self._probation_until > -math.inf:
            self._probation_until = -math.inf
            self._look_at = self._clock()
            self._end_quiet()

    def end_ordinary(self) -> None:
        """There is nothing to claim as usual."""
        self._ordinary_until = -math.inf

    def _end_quiet(self) -> None:
        if self._quiet_since is not None:
            now = self._clock()
            self._ordinary_until = now + now - self._quiet_since
            self._quiet_since = None
