"""A uvicorn server that its owner starts and stops."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from fairlead.server.connection_limits import ServerConfig
from fairlead.server.strict_transport import StrictTransport
from fairlead.settings import Settings

SWEEP_TICKS = 5


class OwnedServer(uvicorn.Server):
    """A uvicorn server with our connection limits. It handles no signals: its owner stops it."""

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        self._connection_limits = config.connection_limits
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then set `up`."""
        await super().startup(sockets)
        await self.prepare()
        self.up.set()

    async def prepare(self) -> None:
        """Start what belongs to the server; it listens already."""

    async def on_tick(self, counter: int) -> bool:
        """Close expired connections at every fifth tick (uvicorn ticks ten times a second)."""
        if counter % SWEEP_TICKS == 0:
            self._connection_limits.sweep()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signal handlers alone."""
        yield


def server_config(app: ASGIApp, settings: Settings, **more: Any) -> ServerConfig:
    """The configuration of a server for this application."""
    return ServerConfig(
        StrictTransport(app),
        settings,
        # uvicorn must log through our handlers, not its own
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=10,
        lifespan="off",
        **more,
    )
