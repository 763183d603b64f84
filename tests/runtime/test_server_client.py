"""Whatever a connection does, the client of agents and HTTP workers says that the server cannot be reached."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import httpx2
import pytest

from fairlead.errors import InvalidInput, ServerUnreachable
from fairlead.runtime.server_client import ServerClient

AT_ONCE = struct.pack("ii", 1, 0)


@pytest.fixture
async def resetting() -> AsyncIterator[str]:
    """The URL of a server that resets every connection as soon as it is there."""

    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_reset_connection_is_an_unreachable_server(resetting: str) -> None:
    async with ServerClient(resetting, "secret") as client:
        answers = await asyncio.gather(
            *(client.post("/worker/claim", {}, dict) for _ in range(20)), return_exceptions=True
        )
    assert {type(one) for one in answers} == {ServerUnreachable}


async def test_a_socket_that_is_gone_while_it_is_opened_is_an_unreachable_server() -> None:
    """As anyio fails if the reset comes between the connection and the first look at it."""

    def lose(_: httpx2.Request) -> httpx2.Response:
        gone: socket.socket | None = None
        return httpx2.Response(200, text=str(gone.getpeername()))  # type: ignore[union-attr]

    async with ServerClient("http://box.test", "secret", transport=httpx2.MockTransport(lose)) as client:
        with pytest.raises(ServerUnreachable, match="getpeername"):
            await client.post("/worker/claim", {}, dict)


async def test_a_token_with_a_line_feed_at_its_end_is_sent_without_it_and_no_other_is_quoted() -> None:
    """The HTTP client refuses a header with a line feed, and its error, which is logged, quotes the token."""
    seen: list[str] = []

    def answer(asked: httpx2.Request) -> httpx2.Response:
        seen.append(asked.headers["authorization"])
        return httpx2.Response(200, json={})

    async with ServerClient("http://box.test", "fl_1\n", transport=httpx2.MockTransport(answer)) as client:
        await client.post("/worker/claim", {}, dict)
    assert seen == ["Bearer fl_1"]

    for token in ("fl_1\nX-Evil: 1", "fl_1\x00", "fl_1…", "\n"):
        with pytest.raises(InvalidInput) as refused:
            ServerClient("http://box.test", token)
        assert "fl_1" not in refused.value.message
