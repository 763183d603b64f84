"""Long work on the event loop, in slices: after each slice, other tasks have their turn."""

import asyncio
import time

# How long the loop may be held at once: a request of somebody else has some twenty steps, and may wait for a slice in each.
SLICE_SECONDS = 0.005


class LoopPauses:
    """Measures the time since its creation or the last pause."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def pause_if_due(self) -> None:
        """Let other tasks run if a slice has passed."""
        if time.monotonic() - self._since > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()
