"""Maintenance in a server process: starts with the first request, and stops when the Fairlead is closed.

An application that mounts ours does not run our lifespan, so the first request starts it.
"""

import asyncio
from contextlib import AsyncExitStack
from contextvars import Context

from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.db.database import Database
from fairlead.library.app import Fairlead
from fairlead.library.tenant_moves import run_move_finisher
from fairlead.runtime.maintenance import run_maintenance


class ServerMaintenance:
    """Starts the maintenance once for each time that the Fairlead is opened."""

    def __init__(self, fl: Fairlead) -> None:
        self._fl = fl
        self._database: Database | None = None

    async def start(self) -> None:
        """Start, unless it runs already."""
        if not self._fl.is_open or self._fl.database is self._database:
            return
        database = self._fl.database
        if database.loop is not asyncio.get_running_loop():
            return
        self._database = database
        # its loops belong to the process, not to the owner of the request that starts them
        await asyncio.create_task(self._run_loops(database), context=Context())

    async def _run_loops(self, database: Database) -> None:
        """Start the loops, which run until the database is closed."""
        stack = AsyncExitStack()
        await stack.enter_async_context(run_maintenance(database))
        if database.settings.maintenance:
            await stack.enter_async_context(run_move_finisher(self._fl))
        database.before_close(stack.aclose)


class MaintenanceStarter:
    """Starts the maintenance with the first request."""

    def __init__(self, app: ASGIApp, maintenance: ServerMaintenance) -> None:
        self._app = app
        self._maintenance = maintenance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._maintenance.start()
        await self._app(scope, receive, send)
