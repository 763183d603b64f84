"""`fairlead mcp`: tools for AI agents, over standard input and output or over HTTP."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import click
import structlog

from fairlead.cli.log import announce
from fairlead.cli.serve import format_host, stop_signal
from fairlead.cli.session import CommandSession, command
from fairlead.errors import ExtraMissing, FairleadError, InvalidInput
from fairlead.settings import TOKEN_VARIABLE, URL_VARIABLE

log = structlog.get_logger(__name__)

# The packages of the extra `mcp`.
SDK = frozenset({"mcp", "mcp_types"})


@click.command()
@click.option(
    "--server",
    metavar="URL",
    envvar=URL_VARIABLE,
    help="Call the API of this server instead of the database [FAIRLEAD_URL].",
)
@click.option("--allow-writes", is_flag=True, help="Also offer tools that enqueue, retry, cancel and pause.")
@click.option("--http", is_flag=True, help="Serve over HTTP; each request needs its own token.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: the address to listen on.")
@click.option("--port", default=8100, show_default=True, help="With --http: 0 uses any free port.")
@click.option(
    "--allowed-host",
    metavar="NAME",
    multiple=True,
    help="With --http: a host name by which clients reach this server, such as mcp.example.com.",
)
@click.option(
    "--allowed-origin",
    metavar="ORIGIN",
    multiple=True,
    help="With --http: the origin of a web page that may call, such as https://app.example.com.",
)
@command
async def mcp(
    session: CommandSession,
    *,
    server: str | None,
    allow_writes: bool,
    http: bool,
    host: str,
    port: int,
    allowed_host: tuple[str, ...],
    allowed_origin: tuple[str, ...],
) -> None:
    """Serve tools to AI agents over the Model Context Protocol: on standard input and output, or with --http.

    On standard input and output, FAIRLEAD_TOKEN has the token; its role and tenant decide what the tools show and change.
    """
    _require_sdk()
    stopped = stop_signal()
    if not http:
        token = _read_token()
        async with _open_api(session, server) as api:
            await _serve_stdio(session, api, token, stopped, allow_writes=allow_writes)
        return
    from fairlead.server.app import bind  # noqa: PLC0415 - as in serve
    from fairlead.server.mcp.http import find_names  # noqa: PLC0415

    names = find_names(host, allowed_host)
    listening = bind(host, port)
    async with _open_api(session, server) as api:
        await _serve_http(
            session,
            api,
            stopped,
            listening,
            at=f"http://{format_host(host)}:{listening.getsockname()[1]}",
            allow_writes=allow_writes,
            names=names,
            origins=allowed_origin,
        )


def _require_sdk() -> None:
    """Raise ExtraMissing if the SDK is not installed."""
    try:
        import mcp.server  # noqa: F401, PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SDK:
            raise
        raise ExtraMissing(
            "fairlead mcp needs an extra package. Install it: pip install 'fairlead[mcp]'."
        ) from error


def _read_token() -> str:
    """The token: from the environment, since command lines are visible to other users."""
    if token := os.environ.get(TOKEN_VARIABLE, "").strip():
        return token
    raise InvalidInput(
        f"fairlead mcp needs a token in {TOKEN_VARIABLE}: its role and tenant decide what the tools may do. "
        "Create one: fairlead tokens create NAME --role viewer --tenant TENANT"
    )


@asynccontextmanager
async def _open_api(session: CommandSession, server: str | None) -> AsyncIterator[Any]:
    """The API of a server, or of the database in this process."""
    from fairlead.server.mcp.api import RestApi  # noqa: PLC0415

    if server is not None:
        if not server.startswith(("http://", "https://")):
            raise InvalidInput(
                f"--server must be an http or https URL, such as https://jobs.example.com, not {server!r}."
            )
        async with RestApi(server) as api:
            yield api
        return
    from fairlead.server.app import create_app  # noqa: PLC0415

    # servers and workers maintain the database; this process may be one of many
    session.flags["maintenance"] = False
    async with session.open() as fl, RestApi(create_app(fl)) as api:
        yield api


async def _serve_stdio(
    session: CommandSession, api: Any, token: str, stopped: asyncio.Event, *, allow_writes: bool
) -> None:
    from fairlead.server.mcp.stdio import check_token, serve_stdio  # noqa: PLC0415
    from fairlead.server.mcp.tools import ToolBox  # noqa: PLC0415

    try:
        await check_token(api, token)
    except FairleadError as error:
        if error.http_status < 500:
            raise
        log.warning("api_not_reached", why=error.message)  # each tool says so until it answers
    await serve_stdio(
        api,
        token,
        ToolBox(allow_writes=allow_writes),
        stopped=stopped,
        longest_line=session.settings().max_body_bytes,
    )


async def _serve_http(
    session: CommandSession,
    api: Any,
    stopped: asyncio.Event,
    listening: Any,
    *,
    at: str,
    allow_writes: bool,
    names: list[str],
    origins: tuple[str, ...],
) -> None:
    from fairlead.server.mcp.http import PATH, mcp_application  # noqa: PLC0415
    from fairlead.server.mcp.tools import ToolBox  # noqa: PLC0415
    from fairlead.server.owned_server import OwnedServer, server_config  # noqa: PLC0415

    settings = session.settings()
    async with mcp_application(
        api,
        ToolBox(allow_writes=allow_writes),
        names=names,
        origins=origins,
        most_bytes=settings.max_body_bytes,
    ) as app:
        serving = OwnedServer(server_config(app, settings))
        running = asyncio.create_task(serving.serve(sockets=[listening]))
        stopping = asyncio.create_task(stopped.wait())
        await serving.up.wait()
        can = "read and change" if allow_writes else "only read"
        announce(session, "serving", f"serving MCP at {at}{PATH}: tools {can}", url=f"{at}{PATH}")
        try:
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            serving.should_exit = True
            await running
    announce(session, "stopped", "stopped")
