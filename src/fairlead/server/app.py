"""The ASGI application."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from fairlead.app import Fairlead
from fairlead.db import migrate
from fairlead.errors import DatabaseUnreachable, FairleadError, PortTaken
from fairlead.version import __version__

READY_SECONDS = 2.0


def create_app(fl: Fairlead) -> FastAPI:
    """Fairlead over HTTP, on an open Fairlead."""
    app = FastAPI(title="Fairlead", version=__version__, docs_url=None, redoc_url=None)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok", "version": __version__}

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        """Whether the database answers and its schema is the one we were written for."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                await fl.database.reach(lambda tx: migrate.check_through(tx.connection, tx.schema))
        except TimeoutError:
            return JSONResponse({"status": "unavailable", "code": DatabaseUnreachable.code}, status_code=503)
        except FairleadError as error:
            return JSONResponse({"status": "unavailable", **error.as_dict()}, status_code=503)
        return JSONResponse({"status": "ready", "version": __version__})

    return app


class Server(uvicorn.Server):
    """A server whose owner decides when it stops: signals are not its business."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say when the socket is being listened on."""
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signal handlers alone."""
        yield


def make_server(app: FastAPI) -> Server:
    """A server for this application, to be served on a socket of the caller's."""
    return Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=10, lifespan="off"))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or a plain word about the port."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise PortTaken(
            f"Cannot listen on {host}:{port}: {error.strerror}. Name another with --port."
        ) from error
    return listening
