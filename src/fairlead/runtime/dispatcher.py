"""The dispatcher: turns events that wait into firings. Any number of them share the work."""

from collections.abc import Sequence
from uuid import UUID

import structlog

from fairlead.actions.catalog import Catalog
from fairlead.actions.dispatch import dispatch
from fairlead.db.tx import Database, Tx
from fairlead.errors import FairleadError, Refused
from fairlead.runtime.scheduler import FOLLOW_SECONDS
from fairlead.store import events

log = structlog.get_logger(__name__)

BATCH = 100


class Dispatcher:
    """One round: dispatch a batch. Where a batch fails, its events go one by one, and the one that fails waits longer."""

    def __init__(self, database: Database, catalog: Catalog, *, poll_seconds: float) -> None:
        self._database = database
        self._catalog = catalog
        self._poll_seconds = poll_seconds
        self._one_by_one = 0
        self._in_hand: Sequence[UUID] = ()

    async def __call__(self) -> float:
        """Seconds until the next round."""
        self._take(())
        try:
            done = await self._database.transact(self._round)
        except Exception as error:
            if not self._in_hand:
                raise
            self._one_by_one = len(self._in_hand)
            if isinstance(error, FairleadError) and not isinstance(error, Refused):
                raise  # the database's trouble: the same events again, a little later
            if len(self._in_hand) == 1:
                await self._put_off(error)
            return 0.0
        self._one_by_one = max(0, self._one_by_one - done)
        return 0.0 if done else await self._database.transact(self._wait)

    async def _round(self, tx: Tx) -> int:
        limit = 1 if self._one_by_one else BATCH
        return await dispatch(tx, self._catalog, limit=limit, taken=self._take)

    def _take(self, ids: Sequence[UUID]) -> None:
        self._in_hand = ids

    async def _put_off(self, error: Exception) -> None:
        log.error("event_put_off", event_id=str(self._in_hand[0]), why=repr(error))
        await self._database.transact(lambda tx: events.put_off(tx, self._in_hand))

    async def _wait(self, tx: Tx) -> float:
        due = await events.next_due(tx)
        if due is None:
            return self._poll_seconds
        # what is due and could not be had is in somebody's hands
        return min(due, self._poll_seconds) if due > 0 else FOLLOW_SECONDS
