"""The ASGI application."""

import asyncio
import errno
import socket
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from fairlead.errors import FairleadError, Fault, InvalidInput, PortTaken
from fairlead.library.app import Fairlead
from fairlead.model.oidc.settings import read_oidc_settings
from fairlead.model.quota import Quota
from fairlead.server import docs, health, hook_routes, metrics, root_redirect, sessions
from fairlead.server.agent_polling import AgentPolls
from fairlead.server.auth import Gatekeeper, PublicAccess, Requires, add_routes
from fairlead.server.body_limits import BodyLimits, BodyTurns
from fairlead.server.cell_router import CellApps, CellRouter, find_other_feeds
from fairlead.server.compression import Compression
from fairlead.server.concurrency_limits import CallerCap, ConcurrencyLimit, QuotaLedger
from fairlead.server.connection_limits import ServerConfig
from fairlead.server.console.app import create_console
from fairlead.server.hook_receiver import HookReceiver
from fairlead.server.http_claims import HttpClaims
from fairlead.server.left_requests import LeftRequests
from fairlead.server.live_sockets import LiveFeeds
from fairlead.server.long_polls import LongPolls
from fairlead.server.maintenance import MaintenanceStarter, ServerMaintenance
from fairlead.server.oidc import OidcSignIns
from fairlead.server.owned_server import OwnedServer, server_config
from fairlead.server.problems import CONSOLE, PREFIX, add_problems
from fairlead.server.request_turns import RequestTurns
from fairlead.server.rest import (
    account,
    account_links,
    agents,
    approvals,
    audit,
    definitions,
    durable,
    errors,
    events,
    hooks,
    hosts,
    identities,
    jobs,
    limits,
    overview,
    queue,
    second_factor,
    session,
    sources,
    system,
    tenants,
    tokens,
    triggers,
    usage,
    users,
    worker,
    workers,
    workflows,
)
from fairlead.server.rest import live as live_routes
from fairlead.settings import config_file, read_document
from fairlead.turns.loop import LoopTurns
from fairlead.version import __version__

ROUTERS: tuple[APIRouter, ...] = (
    hosts.router,
    agents.router,
    triggers.router,  # before jobs: /jobs/{job_id} would match /jobs/triggers
    errors.router,
    events.router,
    approvals.router,
    hooks.router,
    workflows.router,
    jobs.router,
    durable.router,
    overview.router,
    queue.router,
    worker.router,
    live_routes.router,
    definitions.router,
    limits.router,
    tenants.router,
    users.router,
    tokens.router,
    workers.router,
    system.router,
    sources.router,
    audit.router,
    usage.router,
    session.router,
    account.router,
    second_factor.router,
    identities.router,
    account_links.router,
    docs.router,
    hook_routes.router,
    health.router,
    metrics.router,
    root_redirect.router,
)
# Clients send almost nothing over live sockets, and our frames are too small to be worth a compressor per socket.
WEBSOCKET_OPTIONS: dict[str, Any] = {"ws_max_size": 4096, "ws_max_queue": 4, "ws_per_message_deflate": False}


def create_app(fl: Fairlead) -> FastAPI:
    """Create the ASGI application. Serve it or mount it in your own; the Fairlead must be open when requests arrive."""
    app = _create_app(fl)
    app.state.cells = CellApps(lambda member: _create_app(member, app))
    app.state.live.find_others = partial(find_other_feeds, fl, app.state.cells)
    app.add_middleware(CellRouter, fl=fl, apps=app.state.cells)
    app.add_middleware(LeftRequests)
    app.add_middleware(RequestTurns, turns=app.state.loop_turns)
    return app


def _create_app(fl: Fairlead, home: FastAPI | None = None) -> FastAPI:
    """The application of one cell; `home` is that of the home cell, if it is another."""
    app = FastAPI(
        title="Fairlead",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        redirect_slashes=False,  # a redirect would trust the Host header
        # it would export whole queries and rejected values; we have our own request metrics and job traces
        telemetry={"tracing": False, "metrics": False, "logs": False},
        description="Jobs of many tenants, on PostgreSQL. Errors are problem details with a stable code.",
    )
    settings = fl.settings
    app.state.fl = fl
    app.state.gatekeeper = Gatekeeper(fl, None if home is None else home.state.gatekeeper)
    app.state.signing_in = asyncio.Semaphore(sessions.MOST_AT_ONCE) if home is None else home.state.signing_in
    app.state.setting_passwords = asyncio.Semaphore(sessions.MOST_SET_AT_ONCE)
    app.state.oidc = _create_sign_ins(fl) if home is None else home.state.oidc
    ledger = QuotaLedger(fl)
    app.state.long_polls = ConcurrencyLimit(ledger, Quota.LONG_POLLS, "long polls")
    polls = LongPolls(fl, app.state.long_polls)
    app.state.claims = HttpClaims(fl, polls)
    app.state.hook_receiver = HookReceiver(fl, app.state.gatekeeper)
    app.state.live = LiveFeeds(fl, None if home is None else home.state.fl)
    app.state.sockets = ConcurrencyLimit(
        ledger, Quota.LIVE_SOCKETS, "live sockets", _read_cap(fl, "max_sockets_per_caller")
    )
    app.state.followers = ConcurrencyLimit(
        ledger, Quota.FOLLOWED_LOGS, "followed logs", _read_cap(fl, "max_followers_per_caller")
    )
    app.state.agent_polls = AgentPolls(fl, app.state.gatekeeper, polls)
    app.state.maintenance = ServerMaintenance(fl)
    if home is None:
        app.state.loop_turns = LoopTurns()
        app.state.body_turns = BodyTurns(settings.max_body_bytes, settings.connect_timeout_seconds)
        app.state.metrics = metrics.Metrics(fl, app.state.live, app.state.loop_turns, app.state.body_turns)
    else:  # one page shows the requests and the sockets of all cells
        app.state.body_turns = home.state.body_turns
        app.state.metrics = home.state.metrics
        app.state.metrics.add_cell(fl, app.state.live)
    app.add_middleware(MaintenanceStarter, maintenance=app.state.maintenance)
    app.add_middleware(BodyLimits, most=settings.max_body_bytes, turns=app.state.body_turns)
    app.add_middleware(Compression)
    app.add_middleware(metrics.RequestMetrics, metrics=app.state.metrics)
    add_problems(app)
    add_routes(app, ROUTERS)
    console = create_console(
        fl=fl,
        gatekeeper=app.state.gatekeeper,
        signing_in=app.state.signing_in,
        setting_passwords=app.state.setting_passwords,
        oidc=app.state.oidc,
        agent_polls=app.state.agent_polls,
    )
    app.mount(CONSOLE, console)
    for application in (app, console):
        require_declared_permissions(application)
    docs.extend_openapi(app, _list_protected_operations(app))
    return app


def _create_sign_ins(fl: Fairlead) -> OidcSignIns:
    return OidcSignIns(fl, read_oidc_settings(read_document(config_file())))


def _read_cap(fl: Fairlead, setting: str) -> CallerCap:
    return CallerCap(setting, getattr(fl.settings, setting))


def require_declared_permissions(app: FastAPI) -> None:
    """Raise RuntimeError if a route declares no permission."""
    # app.routes holds included routers, not their routes
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute) and find_requirement(route) is None:
            raise RuntimeError(
                f"The route {sorted(route.methods or ())} {route.path} declares no permission: give it a Requires or PublicAccess."
            )


def find_requirement(route: RouteContext) -> Requires | None:
    """The permission that a route declares, if any."""
    return next((one.call for one in route.dependant.dependencies if isinstance(one.call, Requires)), None)


def _list_protected_operations(app: FastAPI) -> set[tuple[str, str]]:
    """The operations that require authentication, by path and method."""
    return {
        (str(route.path_format), method)
        for route in iter_route_contexts(app.routes)
        if isinstance(route.original_route, APIRoute)
        and not isinstance(find_requirement(route), PublicAccess)
        for method in route.methods or ()
    }


class HttpServer(OwnedServer):
    """The server of the API and the console."""

    def __init__(self, config: ServerConfig, app: FastAPI) -> None:
        super().__init__(config)
        self._agent_polls: AgentPolls = app.state.agent_polls
        self._cells: CellApps = app.state.cells
        self._maintenance: ServerMaintenance = app.state.maintenance

    async def prepare(self) -> None:
        """Start the maintenance."""
        await self._maintenance.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the agents' long polls first, so that shutdown does not wait for them."""
        for polls in (self._agent_polls, *(app.state.agent_polls for app in self._cells)):
            polls.close()
        await super().shutdown(sockets)


def create_server(app: FastAPI) -> HttpServer:
    """Create a server for this application; the caller passes the socket to `serve`."""
    app.state.oidc.check_secrets()
    return HttpServer(server_config(app, app.state.fl.settings, **WEBSOCKET_OPTIONS), app)


def bind(host: str, port: int) -> socket.socket:
    """Bind a TCP socket; the error says whether the port or the host is wrong."""
    if not 0 <= port <= 65_535:
        raise InvalidInput(f"--port {port} is not a port: use 1 to 65535, or 0 for any free one.", [_PORT])
    # asyncio sets TCP_NODELAY only if the protocol is named
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, UnicodeError) as error:
        listening.close()
        raise _explain_bind_failure(host, port, error) from error
    return listening


_PORT = Fault("port", "use 0 to 65535")
# The port is in use, or needs root.
_PORT_ERRORS = {errno.EADDRINUSE, errno.EACCES}


def _explain_bind_failure(host: str, port: int, error: OSError | UnicodeError) -> FairleadError:
    if isinstance(error, OSError) and error.errno in _PORT_ERRORS:
        return PortTaken(
            f"Cannot listen on {host}:{port}: {error.strerror}. Name another with --port; 0 uses any free one."
        )
    why = error.strerror if isinstance(error, OSError) else "it is not a host name"
    return InvalidInput(
        f"Cannot listen on the host {host!r}: {why}. Name an address of this machine with --host, such as 127.0.0.1, "
        "or 0.0.0.0 for all.",
        [Fault("host", "is not an address of this machine")],
    )
