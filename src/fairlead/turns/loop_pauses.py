"""Long work on the event loop, in slices: after each slice, other tasks get the loop."""

import asyncio
import time

from fairlead.turns.owner import owner_of_task


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
        """End a slice. A task with an owner goes on in its turn; any other after as long as the slice was."""
        has_turns = owner_of_task.get() is not None
        await asyncio.sleep(0 if has_turns else time.monotonic() - self._since)
        self._since = time.monotonic()
