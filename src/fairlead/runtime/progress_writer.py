"""Writes the progress of attempts in batches: the latest update of each attempt."""

from collections.abc import Awaitable, Callable

from fairlead.handlers.context import Progress
from fairlead.model.job import Lease

# the attempt's lease, its percentage, its message
ProgressUpdate = tuple[Lease, float, str]

PAUSE_SECONDS = 0.5
IDLE_SECONDS = 3600.0


class Reporter:
    """Keeps the latest progress of each attempt until the next round writes it."""

    def __init__(self, write: Callable[[list[ProgressUpdate]], Awaitable[object]]) -> None:
        self._write = write
        self._latest: dict[Lease, Progress] = {}

    def add(self, lease: Lease, progress: Progress) -> None:
        """Queue an update; it replaces the attempt's previous one."""
        self._latest[lease] = progress

    async def __call__(self) -> float:
        """Write the queued updates; seconds until the next round."""
        latest, self._latest = self._latest, {}
        if not latest:
            return IDLE_SECONDS
        steps = [(lease, one.percent, one.message) for lease, one in latest.items()]
        await self._write(steps)
        return PAUSE_SECONDS
