"""All that makes jobs by itself: scheduler and dispatcher, woken by notifications, from start to stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.actions.catalog import Catalog
from fairlead.db.listen import POLL, Listener
from fairlead.db.tx import Database
from fairlead.runtime.dispatcher import Dispatcher
from fairlead.runtime.scheduler import Scheduler
from fairlead.runtime.service import Service

# A tick does not wait for others that are at the same work for longer than this many looks.
MOST_ROUNDS = 1000


async def trigger_due(database: Database) -> None:
    """Dispatch the events that wait and fire the schedules that are due, for those who run nothing that does."""
    catalog = Catalog(database.settings)
    for work in (Dispatcher, Scheduler):
        one_round = work(database, catalog, poll_seconds=1)
        for _ in range(MOST_ROUNDS):
            if await one_round() > 0:
                break


@asynccontextmanager
async def triggering(database: Database, direct_url: str) -> AsyncIterator[None]:
    """Fire schedules and dispatch events while the block lasts; ends at a safe point."""
    settings = database.settings
    catalog = Catalog(settings)
    pause = settings.poll_seconds * 5
    scheduler = Service("scheduler", Scheduler(database, catalog, poll_seconds=pause))
    dispatcher = Service("dispatcher", Dispatcher(database, catalog, poll_seconds=pause))

    def hear(payload: str) -> None:
        if payload in ("schedule", POLL):
            scheduler.wake()
        if payload in ("event", POLL):
            dispatcher.wake()

    stop = asyncio.Event()
    async with Listener(direct_url, settings.schema) as listener:
        with listener.subscribe(hear):
            running = [asyncio.create_task(one.run(stop), name=one.name) for one in (scheduler, dispatcher)]
            try:
                yield
            finally:
                stop.set()
                await asyncio.gather(*running)
