"""The stager: moves what has fallen due from later to ready, at its time and not before."""

from fairlead.db.tx import Database
from fairlead.store import bulk, queue

BATCH = 1000


async def stage(database: Database, *, limit: int = BATCH) -> int:
    """Make ready what has fallen due, and tell the workers. How many jobs.

    Moving is a statement and a transaction of its own: a process that is stopped here holds no job.
    """
    moved = await database.single(lambda tx: queue.stage(tx, limit=limit))
    if moved:
        await database.single(lambda tx: bulk.notify(tx, "ready"))
    return moved


class Stager:
    """One round: move a batch, tell the workers, and say when the next job falls due."""

    def __init__(self, database: Database, poll_seconds: float) -> None:
        self._database = database
        self._poll_seconds = poll_seconds

    async def __call__(self) -> float:
        """Seconds until the next round."""
        if await stage(self._database, limit=BATCH) == BATCH:
            return 0.0
        due = await self._database.single(queue.next_due)
        return self._poll_seconds if due is None else min(max(due, 0.0), self._poll_seconds)
