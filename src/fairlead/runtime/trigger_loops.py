"""Runs the scheduler and the dispatcher, woken by notifications."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.actions.catalog import Catalog
from fairlead.db.listen import POLL, Listener
from fairlead.db.tx import Database
from fairlead.runtime.dispatcher import Dispatcher
from fairlead.runtime.scheduler import Scheduler
from fairlead.runtime.service import Service, run_services

# The most rounds of a tick, in case other processes keep producing work.
MOST_ROUNDS = 1000


async def trigger_due(database: Database) -> None:
    """Dispatch all stored events, then fire all due schedules, for callers without a scheduler process."""
    catalog = Catalog(database.settings)
    for work in (Dispatcher, Scheduler):
        one_round = work(database, catalog, poll_seconds=1)
        for _ in range(MOST_ROUNDS):
            if await one_round() > 0:
                break


@asynccontextmanager
async def run_triggers(database: Database, direct_url: str) -> AsyncIterator[None]:
    """Fire schedules and dispatch events during the block; stops at a safe point."""
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

    async with Listener(direct_url, settings.schema) as listener:
        with listener.subscribe(hear):
            async with run_services(scheduler, dispatcher):
                yield
