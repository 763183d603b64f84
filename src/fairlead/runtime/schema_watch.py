"""Stop a process when the database is migrated for a later version of Fairlead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from fairlead.db import migrate
from fairlead.db.database import Database
from fairlead.errors import ProcessOutdated
from fairlead.runtime.service import Service, cancel_and_wait

log = structlog.get_logger(__name__)

# At most this long, and at most a third of a lease, between two looks.
LOOK_SECONDS = 10.0


class SchemaWatch:
    """Looks whether the schema still admits this version, and sets `stop` when it does not."""

    def __init__(self, database: Database, stop: asyncio.Event) -> None:
        self._database = database
        self._stop = stop
        self._pause = min(LOOK_SECONDS, database.settings.lease_seconds / 3)
        self.error: ProcessOutdated | None = None

    async def __call__(self) -> float:
        """Look once; seconds until the next time."""
        needed = await self._database.single(lambda tx: migrate.read_needed(tx.connection, tx.schema))
        try:
            migrate.require_known(needed)
        except ProcessOutdated as error:
            if self.error is None:
                log.error("process_outdated", why=error.message)  # noqa: TRY400 - one line
            self.error = error
            self._stop.set()
        return self._pause


@asynccontextmanager
async def watch_schema(database: Database, stop: asyncio.Event) -> AsyncIterator[None]:
    """During the block, set `stop` when the database needs a later version; ProcessOutdated at the end of the block then.

    The block ends as it does after a signal: a worker drains.
    """
    watch = SchemaWatch(database, stop)
    looking = asyncio.create_task(Service("schema", watch).run(asyncio.Event()), name="fairlead-schema")
    try:
        yield
    finally:
        await cancel_and_wait(looking)
    if watch.error is not None:
        raise watch.error
