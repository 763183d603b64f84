"""The ASGI application."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from fairlead.app import Fairlead
from fairlead.errors import PortTaken
from fairlead.server import health
from fairlead.server.auth import Gatekeeper, Requires
from fairlead.server.body import BoundedBodies
from fairlead.server.problems import add_problems
from fairlead.server.rest import jobs
from fairlead.version import __version__

ROUTERS: tuple[APIRouter, ...] = (jobs.router,)
PREFIX = "/api/v1"


def create_app(fl: Fairlead) -> FastAPI:
    """Fairlead over HTTP, on an open Fairlead. Mount it in your own application, or serve it."""
    app = FastAPI(
        title="Fairlead",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        description="Jobs of many tenants, on PostgreSQL. Errors are problem details with a stable code.",
    )
    app.state.fl = fl
    app.state.gatekeeper = Gatekeeper(fl)
    app.add_middleware(BoundedBodies, most=fl.settings.max_body_bytes)
    add_problems(app)
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX)
    app.include_router(health.router)
    check_declared(app)
    return app


def check_declared(app: FastAPI) -> None:
    """Refuse to start with a route that does not say who may use it."""
    for route in app.routes:
        if isinstance(route, APIRoute) and not _declared(route):
            raise RuntimeError(
                f"The route {sorted(route.methods or ())} {route.path} declares no permission: give it a Requires or Open."
            )


def _declared(route: APIRoute) -> bool:
    return any(isinstance(one.call, Requires) for one in route.dependant.dependencies)


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
