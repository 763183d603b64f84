"""The scheduler fires schedules at their instants, to the second; the dispatcher turns stored events into firings.

Any number of both may run and share the work.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import structlog

from fairlead.actions.catalog import Catalog
from fairlead.actions.dispatch import dispatch
from fairlead.actions.firing import patience_of
from fairlead.actions.schedule_firing import fire_due
from fairlead.db.database import Database
from fairlead.db.listen import POLL, Listener
from fairlead.db.tx import Tx
from fairlead.errors import KEY_ERRORS, FairleadError, Refused
from fairlead.model.trigger import TriggerType
from fairlead.runtime.service import Service, run_services
from fairlead.store import events, triggers
from fairlead.store.events import NO_TURN, TakenEvent
from fairlead.store.queue import UNREADABLE_SECONDS

log = structlog.get_logger(__name__)

# Errors of Fairlead that one trigger causes, or the key of its tenant. All others are the database's: they concern every trigger.
OF_ONE = (Refused, *KEY_ERRORS)

BATCH = 100
# How soon a loop retries when another one holds the due triggers or events.
FOLLOW_SECONDS = 0.5
# The most rounds of a tick, in case other processes keep producing work.
MOST_ROUNDS = 1000


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
            was_careful, self._careful = self._careful, _is_of_one(error)
            if isinstance(error, KEY_ERRORS) and not was_careful:
                return 0.0
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


def _is_of_one(error: Exception) -> bool:
    """Whether one trigger may cause this error, so that the others should be tried without it."""
    return isinstance(error, OF_ONE) or not isinstance(error, FairleadError)


class Dispatcher:
    """Dispatches one batch per round. After a failed batch it dispatches one event at a time and postpones the one that fails."""

    def __init__(self, database: Database, catalog: Catalog, *, poll_seconds: float) -> None:
        self._database = database
        self._catalog = catalog
        self._poll_seconds = poll_seconds
        self._one_by_one = 0
        self._current_batch: Sequence[UUID] = ()
        self._last_tenant = NO_TURN

    async def __call__(self) -> float:
        """Seconds until the next round."""
        self._note_batch(())
        try:
            done = await self._database.transact(self._dispatch_batch)
        except Exception as error:
            if not self._current_batch:
                raise
            if len(self._current_batch) == 1 and _is_of_one(error):
                await self._postpone(error)
                self._one_by_one = max(0, self._one_by_one - 1)
                return 0.0
            self._one_by_one = len(self._current_batch)
            if not _is_of_one(error):
                raise  # a database error: the service retries the same events later
            return 0.0
        self._one_by_one = max(0, self._one_by_one - done)
        return 0.0 if done else await self._database.transact(self._seconds_until_due)

    async def _dispatch_batch(self, tx: Tx) -> int:
        limit = 1 if self._one_by_one else BATCH
        return await dispatch(tx, self._catalog, limit=limit, after=self._last_tenant, taken=self._note_batch)

    def _note_batch(self, taken: Sequence[TakenEvent]) -> None:
        self._current_batch = [event.id for event in taken]
        if taken:
            self._last_tenant = taken[0].last_turn

    async def _postpone(self, error: Exception) -> None:
        seconds = UNREADABLE_SECONDS if isinstance(error, KEY_ERRORS) else None
        tell = log.error if seconds is None else log.warning
        tell("event_put_off", event_id=str(self._current_batch[0]), why=repr(error))
        await self._database.transact(lambda tx: events.postpone(tx, self._current_batch, seconds=seconds))

    async def _seconds_until_due(self, tx: Tx) -> float:
        due = await events.seconds_until_due(tx)
        if due is None:
            return self._poll_seconds
        # another dispatcher holds the events that are due
        return min(due, self._poll_seconds) if due > 0 else FOLLOW_SECONDS


# The loop of each kind: a notification with the type's name wakes it.
LOOPS: dict[TriggerType, type[Dispatcher | Scheduler]] = {
    TriggerType.EVENT: Dispatcher,
    TriggerType.SCHEDULE: Scheduler,
}


async def trigger_due(database: Database) -> None:
    """Run each loop until nothing is due, for callers without a scheduler process: events first, then schedules."""
    catalog = Catalog(database.settings)
    for loop in LOOPS.values():
        one_round = loop(database, catalog, poll_seconds=1)
        for _ in range(MOST_ROUNDS):
            if await one_round() > 0:
                break


@asynccontextmanager
async def run_triggers(
    database: Database, direct_url: str, heard: Callable[[str], object] = lambda _: None
) -> AsyncIterator[None]:
    """Fire triggers of all kinds during the block; stops at a safe point. `heard` is called with each notification."""
    settings = database.settings
    catalog = Catalog(settings)
    services = {
        str(kind): Service(
            loop.__name__.lower(), loop(database, catalog, poll_seconds=settings.poll_seconds * 5)
        )
        for kind, loop in LOOPS.items()
    }

    def hear(payload: str) -> None:
        for kind, service in services.items():
            if payload in (kind, POLL):
                service.wake()
        heard(payload)

    async with Listener(direct_url, settings.schema, citus=settings.citus) as listener:
        with listener.subscribe(hear):
            async with run_services(*services.values()):
                yield
