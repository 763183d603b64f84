"""Buckets: how often somebody may do something, counted in this process."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST_KEYS = 10_000


class Buckets:
    """A bucket for each key, filled at a rate up to a burst. The longest unused are forgotten."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, key: Hashable) -> float:
        """Take one: 0 if there was one, else the seconds until there is."""
        left = self._left(key)
        self._put(key, left - 1 if left >= 1 else left)
        return 0.0 if left >= 1 else self._wait(left)

    def wait(self, key: Hashable) -> float:
        """The seconds until there is one, taking none."""
        left = self._left(key)
        return 0.0 if left >= 1 else self._wait(left)

    def _wait(self, left: float) -> float:
        return (1 - left) / self._rate

    def _left(self, key: Hashable) -> float:
        left, at = self._buckets.get(key, (self._burst, self._clock()))
        return min(self._burst, left + (self._clock() - at) * self._rate)

    def _put(self, key: Hashable, left: float) -> None:
        self._buckets[key] = (left, self._clock())
        self._buckets.move_to_end(key)
        if len(self._buckets) > MOST_KEYS:
            self._buckets.popitem(last=False)
