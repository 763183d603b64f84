"""The scheduler: fires schedules at their instants, to the second. Any number of schedulers may run."""

from fairlead.actions.catalog import Catalog
from fairlead.actions.firing import patience_of
from fairlead.actions.schedule_firing import fire_due
from fairlead.db.tx import Database, Tx
from fairlead.errors import FairleadError, Refused
from fairlead.store import triggers

BATCH = 100
# How soon a scheduler retries when another one holds the due triggers.
FOLLOW_SECONDS = 0.5


class Scheduler:
    """Fires the due triggers in each round, and returns when the next instant comes."""

    def __init__(self, database: Database, catalog: Catalog, *, poll_seconds: float) -> None:
        self._database = database
        self._catalog = catalog
        self._poll_seconds = poll_seconds
        self._grace_seconds = database.settings.schedule_grace_seconds
        # after a failed round: one trigger at a time, so that a failing one does not block the others
        self._careful = False

    async def __call__(self) -> float:
        """Seconds until the next round."""
        pause = await self._database.transact(self._seconds_until_due)
        if pause > 0:
            return pause
        try:
            pause = await self._database.transact(self._round)
        except Exception as error:
            # a database error is not caused by a trigger
            self._careful = isinstance(error, Refused) or not isinstance(error, FairleadError)
            raise
        self._careful = False
        return pause

    async def _seconds_until_due(self, tx: Tx) -> float:
        due = await triggers.seconds_until_due(tx)
        return self._poll_seconds if due is None else min(due, self._poll_seconds)

    async def _round(self, tx: Tx) -> float:
        if not await triggers.try_to_lead(tx, patience_seconds=patience_of(tx)):
            return FOLLOW_SECONDS
        found = await fire_due(
            tx, self._catalog, limit=BATCH, grace_seconds=self._grace_seconds, careful=self._careful
        )
        # another scheduler holds the triggers that are due
        return 0.0 if found else FOLLOW_SECONDS
