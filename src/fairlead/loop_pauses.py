"""Long work on the event loop, in slices: after each slice, other tasks get the loop for the same time."""

import asyncio
import time

# The longest pause, so that an open transaction is not idle for long.
LONGEST_SECONDS = 0.25


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
        """Yield the loop to other tasks for as long as it was held."""
        await asyncio.sleep(min(LONGEST_SECONDS, time.monotonic() - self._since))
        self._since = time.monotonic()
