"""The stager: moves jobs from later to ready when they are due."""

from fairlead.db.tx import Database
from fairlead.store import bulk, queue

BATCH = 1000


async def stage(database: Database, *, limit: int = BATCH) -> int:
    """Move due jobs to ready and notify the workers; how many jobs.

    The move is a transaction by itself: a process that is stopped here locks no job.
    """
    moved = await database.single(lambda tx: queue.stage_due(tx, limit=limit))
    if moved:
        await database.single(lambda tx: bulk.notify(tx, "ready"))
    return moved


class Stager:
    """Moves one batch per round, notifies the workers, and returns when the next job is due."""

    def __init__(self, database: Database, poll_seconds: float) -> None:
        self._database = database
        self._poll_seconds = poll_seconds

    async def __call__(self) -> float:
        """Seconds until the next round."""
        if await stage(self._database, limit=BATCH) == BATCH:
            return 0.0
        due = await self._database.single(queue.seconds_until_due)
        return self._poll_seconds if due is None else min(max(due, 0.0), self._poll_seconds)
