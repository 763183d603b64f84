"""Runs the sources of events: takes batches of messages from brokers, stores them as events, and then acknowledges them.

Any number of processes may run the same source and share its messages.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import structlog

from fairlead.actions import sources
from fairlead.actions.catalog import Catalog
from fairlead.actions.sources import StoredBatch
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import EngineUnavailable, FairleadError
from fairlead.integrations.source import ConfiguredSource, MessageSource
from fairlead.model.access import trusted_principal
from fairlead.model.event_source import SourceMessage
from fairlead.runtime.service import Service, cancel_and_wait, wait_any

log = structlog.get_logger(__name__)

# How often a process reports that it runs a source, and reads whether the source is paused.
REPORT_SECONDS = 2.0
# How long messages of a tenant with a full queue wait.
POSTPONE_SECONDS = 5.0


class EventSourceLoop:
    """Consumes one source. Each round lasts until the source is paused, fails or is stopped."""

    def __init__(
        self, database: Database, catalog: Catalog, source: ConfiguredSource, stop: asyncio.Event
    ) -> None:
        self._database = database
        self._catalog = catalog
        self._source = source
        self._stop = stop
        self._principal = trusted_principal(f"source:{source.name}")

    async def __call__(self) -> float:
        """Consume. Seconds until the next round."""
        # before the broker is asked for messages: while the database is away, none is taken
        if await self._report():
            return REPORT_SECONDS
        try:
            await self._consume_until_paused()
        except Exception as error:
            await self._record_failure(error)
            raise
        return 0.0

    async def _consume_until_paused(self) -> None:
        leave = asyncio.Event()
        watching = asyncio.create_task(self._watch(leave))
        try:
            async with self._source.connect() as source:
                await self._consume(source, leave)
        finally:
            await cancel_and_wait(watching)

    async def _consume(self, source: MessageSource, leave: asyncio.Event) -> None:
        batches = source.messages()
        is_reached = False
        while not leave.is_set() and (batch := await _next_batch(batches, leave)) is not None:
            if not is_reached:
                await self._database.transact(lambda tx: sources.record_recovery(tx, self._source.name))
                is_reached = True
            if not batch:
                continue
            done = await self._store(source, batch)
            # what has no order waits in the broker: messages of other tenants may follow it
            if any(one.order is not None for one in done.postponed) and not done.stored:
                await wait_any(leave, seconds=POSTPONE_SECONDS)

    async def _store(self, source: MessageSource, batch: Sequence[SourceMessage]) -> StoredBatch:
        """Store a batch, then tell the broker."""
        try:
            done = await self._database.transact(lambda tx: self._store_in(tx, batch))
        except Exception:
            # the broker need not wait until its own time limit
            with suppress(EngineUnavailable):
                await source.postpone(batch, 0)
            raise
        for message, reason in done.refused:
            log.warning(
                "message_refused", source=self._source.name, message_id=message.id[:200], reason=reason
            )
        if done.stored:
            await source.acknowledge(done.stored)
        if done.refused:
            await source.refuse([one.message for one in done.refused])
        if done.postponed:
            await source.postpone(done.postponed, POSTPONE_SECONDS)
        return done

    async def _store_in(self, tx: Tx, batch: Sequence[SourceMessage]) -> StoredBatch:
        return await sources.store_messages(
            tx,
            self._principal,
            self._catalog,
            source=self._source.name,
            rules=self._source.rules,
            messages=batch,
        )

    async def _watch(self, leave: asyncio.Event) -> None:
        """Report regularly; tell the loop to leave the broker when the source is paused or the process stops."""
        while True:
            await wait_any(self._stop, seconds=REPORT_SECONDS)
            try:
                if self._stop.is_set() or await self._report():
                    break
            except FairleadError as error:
                # the loop itself meets the same outage when the next batch comes
                log.debug("source_not_reported", source=self._source.name, why=error.message)
        leave.set()

    async def _report(self) -> bool:
        """Report that this process runs the source. Whether it is paused."""
        return await self._database.transact(
            lambda tx: sources.report(
                tx, name=self._source.name, driver=self._source.driver, rules=self._source.rules
            )
        )

    async def _record_failure(self, error: Exception) -> None:
        why = error.message if isinstance(error, FairleadError) else type(error).__name__
        try:
            await self._database.transact(lambda tx: sources.record_failure(tx, self._source.name, why))
        except FairleadError as second:
            log.debug("source_failure_not_recorded", source=self._source.name, why=second.message)


async def _next_batch(
    batches: AsyncIterator[Sequence[SourceMessage]], leave: asyncio.Event
) -> Sequence[SourceMessage] | None:
    """The next batch, or None if the loop must leave first. Messages on their way are delivered again."""
    coming = asyncio.ensure_future(anext(batches))
    leaving = asyncio.ensure_future(leave.wait())
    try:
        await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() else None
    finally:
        await cancel_and_wait(coming, leaving)


def list_source_services(
    database: Database, catalog: Catalog, found: Sequence[ConfiguredSource], stop: asyncio.Event
) -> list[Service]:
    """A service for each source."""
    return [Service(f"source {one.name}", EventSourceLoop(database, catalog, one, stop)) for one in found]


async def run_sources(
    database: Database, catalog: Catalog, found: Sequence[ConfiguredSource], stop: asyncio.Event
) -> None:
    """Run sources until `stop` is set."""
    services = list_source_services(database, catalog, found, stop)
    await asyncio.gather(*(one.run(stop) for one in services))
