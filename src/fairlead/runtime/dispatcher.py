"""The dispatcher: turns stored events into firings. Any number of dispatchers share the work."""

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
    """Dispatches one batch per round. After a failed batch it dispatches one event at a time and postpones the one that fails."""

    def __init__(self, database: Database, catalog: Catalog, *, poll_seconds: float) -> None:
        self._database = database
        self._catalog = catalog
        self._poll_seconds = poll_seconds
        self._one_by_one = 0
        self._current_batch: Sequence[UUID] = ()

    async def __call__(self) -> float:
        """Seconds until the next round."""
        self._note_batch(())
        try:
            done = await self._database.transact(self._dispatch_batch)
        except Exception as error:
            if not self._current_batch:
                raise
            self._one_by_one = len(self._current_batch)
            if isinstance(error, FairleadError) and not isinstance(error, Refused):
                raise  # a database error: the service retries the same events later
            if len(self._current_batch) == 1:
                await self._postpone(error)
            return 0.0
        self._one_by_one = max(0, self._one_by_one - done)
        return 0.0 if done else await self._database.transact(self._seconds_until_due)

    async def _dispatch_batch(self, tx: Tx) -> int:
        limit = 1 if self._one_by_one else BATCH
        return await dispatch(tx, self._catalog, limit=limit, taken=self._note_batch)

    def _note_batch(self, ids: Sequence[UUID]) -> None:
        self._current_batch = ids

    async def _postpone(self, error: Exception) -> None:
        log.error("event_put_off", event_id=str(self._current_batch[0]), why=repr(error))
        await self._database.transact(lambda tx: events.postpone(tx, self._current_batch))

    async def _seconds_until_due(self, tx: Tx) -> float:
        due = await events.seconds_until_due(tx)
        if due is None:
            return self._poll_seconds
        # another dispatcher holds the events that are due
        return min(due, self._poll_seconds) if due > 0 else FOLLOW_SECONDS
