"""The watchdog: puts back what dead workers left behind, contains poison, forgets the dead, and does its duties."""

import asyncio
import math
from functools import partial
from uuid import UUID

import structlog

from fairlead.actions import settling
from fairlead.db.tx import Database, Tx
from fairlead.errors import DatabaseUnreachable, FairleadError
from fairlead.runtime.duties import Duties
from fairlead.store import bulk, queue, workers

log = structlog.get_logger(__name__)

BATCH = 500


class Watchdog:
    """One sweep, and a round of each duty that is due, if duties are given. Any number of processes may run it."""

    def __init__(
        self,
        database: Database,
        *,
        lease_seconds: float,
        sweep_seconds: float,
        duties: Duties | None = None,
    ) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._sweep_seconds = sweep_seconds
        self._duties = duties
        self._sweep_at = -math.inf
        self.rescued = 0

    async def __call__(self) -> float:
        """Seconds until the next sweep, or the next round of a duty that has more to do."""
        now = asyncio.get_running_loop().time
        if now() >= self._sweep_at:
            rescued = await self._swept()
            self.rescued += rescued
            self._sweep_at = now() + (0.0 if rescued == BATCH else self._sweep_seconds)
        pause = math.inf if self._duties is None else await self._dutifully(self._duties)
        return max(0.0, min(pause, self._sweep_at - now()))

    async def _dutifully(self, duties: Duties) -> float:
        try:
            return await duties()
        except FairleadError:
            raise
        except Exception as error:  # noqa: BLE001 - a right that is missing, say: leases must be rescued all the same
            log.error("duty_failed", why=repr(error))  # noqa: TRY400 - one line
            return math.inf

    async def _swept(self) -> int:
        """How many leases were rescued: together, or one by one where one of them will not be."""
        try:
            return await self._database.transact(self._sweep)
        except DatabaseUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one, the others must not wait for it
            log.error("sweep_failed", why=repr(error))  # noqa: TRY400 - one line
        rescued = 0
        for job_id in await self._database.transact(partial(queue.overdue, limit=BATCH)):
            try:
                rescued += await self._database.transact(partial(_rescue, only=job_id))
            except DatabaseUnreachable:
                raise
            except Exception as error:  # noqa: BLE001 - as above; the next sweep tries it again
                log.error("lease_not_rescued", job_id=str(job_id), why=repr(error))  # noqa: TRY400 - one line
        return rescued

    async def _sweep(self, tx: Tx) -> int:
        # after an outage every lease looks expired: its owner gets one lease's time to renew it first
        if await workers.server_uptime(tx) < self._lease_seconds:
            return 0
        rescued = await _rescue(tx)
        await workers.prune(tx, seconds=self._lease_seconds * 10)
        return rescued


async def _rescue(tx: Tx, only: UUID | None = None) -> int:
    rescued = await queue.rescue(tx, limit=BATCH, only=only)
    if rescued:
        await settling.settle(tx, rescued)
        log.warning("leases_rescued", jobs=len(rescued))
        await bulk.notify(tx, "later")
    return len(rescued)
