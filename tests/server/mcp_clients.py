"""Clients of the MCP SDK, and the answers of their tools. The SDK takes a second to import: it is, when a client is made."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpx2

from fairlead.server.mcp.api import ApiCaller, RestApi
from fairlead.server.mcp.tools import ToolBox
from tests.processes import FAIRLEAD, environment, free_port, started, until
from tests.server.world import World
from tests.waiting import SECONDS

if TYPE_CHECKING:
    from mcp import Client, StdioServerParameters
    from mcp_types import CallToolResult


@asynccontextmanager
async def client_of(
    world: World, who: str = "viewer", tenant: str = "acme", *, allow_writes: bool = False
) -> AsyncIterator[Client]:
    """A client in this process, with the token of a role."""
    from mcp import Client  # noqa: PLC0415

    from fairlead.server.mcp.protocol import create_mcp_server  # noqa: PLC0415

    token = world.headers(who, tenant)["Authorization"].removeprefix("Bearer ")
    async with RestApi(world.app) as api:
        server = create_mcp_server(ToolBox(allow_writes=allow_writes), lambda _: ApiCaller(api, token))
        async with Client(server) as client:
            yield client


def stdio_parameters(database_url: str, token: str, *argv: str, **more: str) -> StdioServerParameters:
    """How an MCP client starts `fairlead mcp`."""
    from mcp import StdioServerParameters  # noqa: PLC0415

    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_TOKEN": token, **more}
    return StdioServerParameters(
        command=FAIRLEAD, args=["mcp", *argv], env=environment(**{k: v for k, v in env.items() if v})
    )


@asynccontextmanager
async def stdio_client(database_url: str, token: str, *argv: str, **more: str) -> AsyncIterator[Client]:
    """A client of a preloaded `fairlead mcp`: an MCP client would start it by its path, which takes longer than all else."""
    from mcp import Client  # noqa: PLC0415

    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_TOKEN": token, **more}
    given = {name: value for name, value in env.items() if value}
    with started([FAIRLEAD, "mcp", *argv], env=given, stdin=subprocess.PIPE, stderr=None) as process:
        async with Client(_pipes(process)) as client:
            yield client
        process.wait(SECONDS)


@asynccontextmanager
async def _pipes(process: subprocess.Popen[str]) -> AsyncIterator[Any]:
    """The messages that a process writes, and those that it reads: a line each, as a server's own."""
    from mcp.server.stdio import stdio_server  # noqa: PLC0415

    assert process.stdin is not None
    assert process.stdout is not None
    async with stdio_server(anyio.wrap_file(process.stdout), anyio.wrap_file(process.stdin)) as streams:
        try:
            yield streams
        finally:
            process.stdin.close()  # so it ends, and with it what it writes


@contextmanager
def http_server(database_url: str, *argv: str, **more: str) -> Iterator[str]:
    """The URL of a `fairlead mcp --http` in a process of its own."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    env = {"FAIRLEAD_DATABASE_URL": database_url, **more}
    with started([FAIRLEAD, "mcp", "--http", "--port", str(port), *argv], env=env) as process:
        until(lambda: process.poll() is not None or _answers(url), "the MCP server")
        assert process.poll() is None, process.stdout and process.stdout.read()
        yield url


def _answers(url: str) -> bool:
    try:
        return httpx2.post(url, timeout=SECONDS).status_code == 401
    except httpx2.TransportError:
        return False


@asynccontextmanager
async def http_client(url: str, token: str, **headers: str) -> AsyncIterator[Client]:
    """A client over a real socket."""
    from mcp import Client  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    sent = {"Authorization": f"Bearer {token}", **headers}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=SECONDS) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool that must succeed."""
    result = await _result(client, tool, arguments)
    assert not result.is_error, _text(result)
    assert json.loads(_text(result)) == result.structured_content
    answer: dict[str, Any] = result.structured_content
    return answer


async def refusal(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The error of a tool that must fail."""
    result = await _result(client, tool, arguments)
    assert result.is_error, _text(result)
    told: dict[str, Any] = json.loads(_text(result))
    assert told.keys() == {"code", "detail", "errors"}
    return told


async def _result(client: Client, tool: str, arguments: dict[str, Any]) -> CallToolResult:
    from mcp_types import CallToolResult  # noqa: PLC0415

    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    return result


def _text(result: CallToolResult) -> str:
    from mcp_types import TextContent  # noqa: PLC0415

    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text
