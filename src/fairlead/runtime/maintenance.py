"""Maintenance: the watchdog with its duties, and the stager, for every long-lived process.

Fleets of HTTP workers or agents have no worker process: their servers and schedulers must keep the database in order.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.db.tx import Database
from fairlead.runtime.duties import Duties
from fairlead.runtime.service import Service
from fairlead.runtime.stager import Stager
from fairlead.runtime.watchdog import Watchdog


def make_watchdog(database: Database) -> Watchdog:
    """A watchdog that also runs the duties, as the settings say."""
    settings = database.settings
    duties = Duties(
        database,
        retention_days=settings.retention_days,
        audit_retention_days=settings.audit_retention_days,
    )
    return Watchdog(
        database,
        lease_seconds=settings.lease_seconds,
        sweep_seconds=settings.sweep_seconds,
        duties=duties,
    )


class Maintenance:
    """The loops of one process, from `start` to `stop`. Any number of processes may run them."""

    def __init__(self, database: Database) -> None:
        self._stop = asyncio.Event()
        stager = Stager(database, database.settings.poll_seconds * 5)
        self._services = (Service("watchdog", make_watchdog(database)), Service("stager", stager))
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the loops on the running event loop."""
        self._running = [
            asyncio.create_task(one.run(self._stop), name=f"fairlead-{one.name}") for one in self._services
        ]

    async def stop(self) -> None:
        """Stop the loops at a safe point; call it before the database is closed."""
        self._stop.set()
        await asyncio.gather(*self._running)


@asynccontextmanager
async def run_maintenance(database: Database) -> AsyncIterator[None]:
    """Run maintenance during the block, unless the settings leave it to other processes."""
    if not database.settings.maintenance:
        yield
        return
    maintenance = Maintenance(database)
    maintenance.start()
    try:
        yield
    finally:
        await maintenance.stop()
