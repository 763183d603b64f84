"""Progress on its way to where it is kept: the latest of each attempt, a batch at a time."""

from collections.abc import Awaitable, Callable

from fairlead.handlers.context import Progress
from fairlead.model.job import Lease

# of an attempt: how far it is, in percent, and what it says about that
Step = tuple[Lease, float, str]

PAUSE_SECONDS = 0.5
IDLE_SECONDS = 3600.0


class Reporter:
    """Keeps the latest progress of each attempt until the next round writes it."""

    def __init__(self, write: Callable[[list[Step]], Awaitable[object]]) -> None:
        self._write = write
        self._latest: dict[Lease, Progress] = {}

    def add(self, lease: Lease, progress: Progress) -> None:
        """Have this written soon."""
        self._latest[lease] = progress

    async def __call__(self) -> float:
        """Write what there is; seconds until the next round."""
        latest, self._latest = self._latest, {}
        if not latest:
            return IDLE_SECONDS
        steps = [(lease, one.percent, one.message) for lease, one in latest.items()]
        await self._write(steps)
        return PAUSE_SECONDS
