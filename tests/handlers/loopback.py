"""A real HTTP server on loopback that answers as a test says, and remembers what it was asked."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import msgspec


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    status: int = 200
    body: Any = b""
    headers: tuple[tuple[str, str], ...] = ()

    def encoded(self) -> bytes:
        body, kind = self.body, "text/plain"
        if not isinstance(body, bytes):
            body, kind = msgspec.json.encode(body), "application/json"
        named = {name.lower() for name, _ in self.headers}
        more = [one for one in (("content-type", kind),) if one[0] not in named]
        lines = [f"{name}: {value}" for name, value in (*more, *self.headers)]
        head = "\r\n".join([f"HTTP/1.1 {self.status} X", f"content-length: {len(body)}", *lines])
        return head.encode("latin-1") + b"\r\n\r\n" + body


# None: the connection is cut without an answer.
Answers = Callable[[Asked], Reply | None]


class Server:
    def __init__(self, answers: Answers, port: int, host: str) -> None:
        self.answers = answers
        self.asked: list[Asked] = []
        self.port = port
        self.url = f"http://{host}:{port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await _read(reader)
            self.asked.append(asked)
            if (reply := self.answers(asked)) is not None:
                writer.write(reply.encoded())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other side went away, as some tests mean it to
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


@asynccontextmanager
async def serving(
    answers: Answers, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(answers, 0, host)
    listening = await asyncio.start_server(server.serve, host, port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    server.url = f"http://{host}:{server.port}"
    async with listening:
        yield server


@contextmanager
def closed_port() -> Iterator[int]:
    """A port at which nothing listens, and at which no other test can listen meanwhile."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield int(kept.getsockname()[1])


def always(reply: Reply | None) -> Answers:
    return lambda _: reply


def in_turn(*replies: Reply | None) -> Answers:
    """One after the other; the last one again and again."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]
