"""Progress on its way to the database: the latest of each attempt, a batch at a time."""

from fairlead.db.tx import Database
from fairlead.handlers.context import Progress
from fairlead.model.job import Lease
from fairlead.store import queue

PAUSE_SECONDS = 0.5
IDLE_SECONDS = 3600.0


class Reporter:
    """Keeps the latest progress of each attempt until the next round writes it."""

    def __init__(self, database: Database) -> None:
        self._database = database
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
        await self._database.single(lambda tx: queue.progress(tx, steps))
        return PAUSE_SECONDS
