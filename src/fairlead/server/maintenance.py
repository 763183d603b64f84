"""Maintenance in a server process: starts with the first request, and stops when the Fairlead is closed.

An application that mounts ours does not run our lifespan, so the first request starts it.
"""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.db.tx import Database
from fairlead.library.app import Fairlead
from fairlead.runtime.maintenance import Maintenance


class ServerMaintenance:
    """Starts the maintenance once for each time that the Fairlead is opened."""

    def __init__(self, fl: Fairlead) -> None:
        self._fl = fl
        self._database: Database | None = None

    def start(self) -> None:
        """Start, unless it runs already or the settings disable it in this process."""
        if not self._fl.is_open or self._fl.database is self._database:
            return
        database = self._fl.database
        if not self._fl.settings.maintenance or database.loop is not asyncio.get_running_loop():
            return
        self._database = database
        maintenance = Maintenance(database)
        maintenance.start()
        database.before_close(maintenance.stop)


class MaintenanceStarter:
    """Starts the maintenance with the first request."""

    def __init__(self, app: ASGIApp, maintenance: ServerMaintenance) -> None:
        self._app = app
        self._maintenance = maintenance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._maintenance.start()
        await self._app(scope, receive, send)
