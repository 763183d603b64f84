"""Long work on the event loop, in slices: after each one the loop's other work has it for as long."""

import asyncio
import time

# A pause ends by itself: a transaction that is idle meanwhile is not idle for long.
LONGEST_SECONDS = 0.25


class Pauses:
    """Counts from when it is made, and from each pause on."""

    def __init__(self, slice_seconds: float) -> None:
        self._slice_seconds = slice_seconds
        self._since = time.monotonic()

    @property
    def is_time(self) -> bool:
        """Whether the loop has been held for a slice."""
        return time.monotonic() - self._since > self._slice_seconds

    async def pause(self) -> None:
        """Leave the loop to others for as long as it was held."""
        await asyncio.sleep(min(LONGEST_SECONDS, time.monotonic() - self._since))
        self._since = time.monotonic()
