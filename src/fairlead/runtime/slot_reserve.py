"""Decides for how long a worker keeps free slots for a job that needs more of them than are free."""

import math
from collections.abc import Callable

from fairlead.lease_clock import lease_clock

# Longer than most jobs run; a worker whose jobs run for hours must not stand half empty for as long.
RESERVE_SECONDS = 30.0


class SlotReserve:
    """Alternates two turns: slots that become free are kept for the next job, or are given to jobs that fit.

    The first turn takes at most RESERVE_SECONDS; the second begins only then, and takes as long.
    """

    def __init__(self, capacity: int | None, clock: Callable[[], float] = lease_clock) -> None:
        """`capacity` is how many slots the worker has; None: it does not count slots."""
        self.capacity = capacity
        self._clock = clock
        self._reserving_since: float | None = None
        self._ordinary_until = -math.inf

    def count_most_slots(self, free: int) -> int | None:
        """How many slots a job may need for which slots are kept; None: slots are not counted."""
        if self.capacity is None:
            return None
        return min(free, self.capacity) if self._clock() < self._ordinary_until else self.capacity

    def note(self, *, is_short: bool) -> None:
        """Note whether the last claim left slots free since the next job needs more."""
        now = self._clock()
        if not is_short or now < self._ordinary_until:
            self._reserving_since = None
        elif self._reserving_since is None:
            self._reserving_since = now
        elif now - self._reserving_since >= RESERVE_SECONDS:
            self._reserving_since = None
            self._ordinary_until = now + RESERVE_SECONDS
