"""Long work on the event loop, in slices: after each slice, other tasks get the loop for the same time."""

import asyncio
import time
from weakref import WeakKeyDictionary

# The longest pause, so that an open transaction is not idle for long. From some ten long works on, others get less.
LONGEST_SECONDS = 1.0

# Until when the slices of each loop so far are paid back: several long works together leave others half of its time.
_paid_at: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()


class LoopPauses:
    """Measures the time since its creation or the last pause."""

    def __init__(self, slice_seconds: float) -> None:
        self._slice_seconds = slice_seconds
        self._since = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether a slice has passed."""
        return time.monotonic() - self._since > self._slice_seconds

    async def pause(self) -> None:
        """Yield the loop to other tasks for as long as it was held, behind the slices of all other long works."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        # the slice, and as much again for others
        paid_at = max(self._since, _paid_at.get(loop, self._since)) + 2 * (now - self._since)
        _paid_at[loop] = min(paid_at, now + LONGEST_SECONDS)
        await asyncio.sleep(max(0.0, _paid_at[loop] - now))
        self._since = time.monotonic()
