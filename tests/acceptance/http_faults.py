"""A way to an HTTP server, on loopback, on which requests and answers are lost, late and out of order."""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Self

# What may happen to one request: it comes through; it never arrives; it arrives and its answer does not come back;
# it hangs for a moment, then comes through; or it is given up by its sender and arrives after later ones.
PASS, RESET, DROP, STALL, LATE = "pass", "reset", "drop", "stall", "late"
FAULTS = (PASS, RESET, DROP, STALL, LATE)
HANG_SECONDS = 0.2


class FaultyProxy:
    """Forwards one request a connection; `choose` says what happens to each."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.choose: Callable[[], str] = lambda: PASS
        self.met: list[str] = []
        self._late: set[asyncio.Task[bytes]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for one in list(self._late):
            await one

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _message(reader)
            fault = self.choose()
            self.met.append(fault)
            if answer := await self._suffer(fault, request):
                writer.write(_last(answer))
                await writer.drain()
            else:
                _reset(writer)
        writer.close()

    async def _suffer(self, fault: str, request: bytes) -> bytes | None:
        if fault == RESET:
            return None
        if fault == LATE:
            task = asyncio.create_task(self._forward(request, HANG_SECONDS))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return None
        answer = await self._forward(request, HANG_SECONDS if fault == STALL else 0.0)
        return None if fault == DROP else answer

    async def _forward(self, request: bytes, delay: float) -> bytes:
        await asyncio.sleep(delay)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            return await _message(reader)
        finally:
            writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer, whole; ours all say how long they are."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
    return head + await reader.readexactly(length)


def _last(answer: bytes) -> bytes:
    """The answer, which says that the connection ends after it: a client must not send its next request there."""
    return answer.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side sees a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
