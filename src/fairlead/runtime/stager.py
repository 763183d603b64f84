"""The stager: moves what has fallen due from later to ready, at its time and not before."""

from fairlead.db.tx import Database, Tx
from fairlead.store import bulk, queue

BATCH = 1000


class Stager:
    """One round: move a batch, tell the workers, and say when the next job falls due."""

    def __init__(self, database: Database, poll_seconds: float) -> None:
        self._database = database
        self._poll_seconds = poll_seconds

    async def __call__(self) -> float:
        """Seconds until the next round."""
        return await self._database.transact(self._round)

    async def _round(self, tx: Tx) -> float:
        moved = await queue.stage(tx, limit=BATCH)
        if moved:
            await bulk.notify(tx, "ready")
        if moved == BATCH:
            return 0.0
        due = await queue.next_due(tx)
        return self._poll_seconds if due is None else min(max(due, 0.0), self._poll_seconds)
