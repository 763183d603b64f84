"""The MCP server on standard input and output, with one token."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import structlog
from mcp.server.stdio import stdio_server

from fairlead.errors import InvalidInput, ServerUnreachable, Unauthenticated
from fairlead.server.mcp.api import ApiCaller, ApiRefusal, RestApi
from fairlead.server.mcp.protocol import create_mcp_server
from fairlead.server.mcp.tools import ToolBox

log = structlog.get_logger(__name__)

# A line that the SDK refuses.
NO_MESSAGE = b"\n"


async def check_token(api: RestApi, token: str) -> None:
    """Raise Unauthenticated if the API refuses the token, or ServerUnreachable if it cannot tell now."""
    try:
        await ApiCaller(api, token).get("/me")
    except ApiRefusal as refusal:
        if refusal.status == 401:
            raise Unauthenticated(refusal.detail) from refusal
        raise ServerUnreachable(f"The API answered {refusal.code}: {refusal.detail}") from refusal


async def serve_stdio(
    api: RestApi, token: str, toolbox: ToolBox, *, stopped: asyncio.Event, longest_line: int
) -> None:
    """Serve the client at the other end of standard input, until it closes it or `stopped` is set."""
    server = create_mcp_server(toolbox, lambda _: ApiCaller(api, token))
    lines = await _open_stdin(longest_line)
    async with stdio_server(stdin=cast("Any", lines)) as (read, write):
        serving = asyncio.create_task(server.run(read, write, server.create_initialization_options()))
        stopping = asyncio.create_task(stopped.wait())
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            lines.close()
        await serving


class StdinLines:
    """The lines of standard input. Unlike the SDK's reader, which waits in a thread, it can be closed."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self._reader = reader
        self._transport = transport

    async def __aiter__(self) -> AsyncIterator[str]:
        while line := await self._read_line():
            yield line.decode(errors="replace")

    async def _read_line(self) -> bytes:
        try:
            return await self._reader.readline()
        except ValueError:  # longer than the limit: the reader has dropped it
            log.warning("message_too_long", advice="raise FAIRLEAD_MAX_BODY_BYTES, or send less")
            return NO_MESSAGE

    def close(self) -> None:
        """End the iteration."""
        if not self._reader.at_eof():
            self._reader.feed_eof()
        self._transport.close()


async def _open_stdin(longest_line: int) -> StdinLines:
    descriptor = sys.stdin.fileno()
    kind = os.fstat(descriptor).st_mode
    # uvloop would abort the process
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(descriptor)):
        raise InvalidInput(
            "Standard input is not a pipe: an MCP client starts `fairlead mcp` and talks to it there. "
            "To serve over HTTP, add --http."
        )
    reader = asyncio.StreamReader(limit=longest_line)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(descriptor), "rb")
    )
    return StdinLines(reader, transport)
