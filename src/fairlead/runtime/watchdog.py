"""The watchdog: puts back what dead workers left behind, contains poison, forgets the dead."""

import structlog

from fairlead.db.tx import Database, Tx
from fairlead.store import bulk, queue, workers

log = structlog.get_logger(__name__)

BATCH = 500


class Watchdog:
    """One sweep. Any process may run it, and any number of them."""

    def __init__(self, database: Database, *, lease_seconds: float, sweep_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._sweep_seconds = sweep_seconds

    async def __call__(self) -> float:
        """Seconds until the next sweep."""
        rescued = await self._database.transact(self._sweep)
        return 0.0 if rescued == BATCH else self._sweep_seconds

    async def _sweep(self, tx: Tx) -> int:
        # after an outage every lease looks expired: its owner gets one lease's time to renew it first
        if await workers.server_uptime(tx) < self._lease_seconds:
            return 0
        rescued = await queue.rescue(tx, limit=BATCH)
        if rescued:
            log.warning("leases_rescued", jobs=len(rescued))
            await bulk.notify(tx, "later")
        await workers.prune(tx, seconds=self._lease_seconds * 10)
        return len(rescued)
