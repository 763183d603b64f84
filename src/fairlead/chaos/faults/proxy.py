"""Proxies in front of PostgreSQL and of HTTP servers that reset, stall and delay connections, and swallow replies.

A proxy has a thread and an event loop of its own. Its methods may be called from any thread.
"""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import structlog

from fairlead.chaos.faults.http_watch import HttpWatch
from fairlead.chaos.faults.postgres_watch import ConnectionWatch, PostgresWatch
from fairlead.db.addresses import read_server, replace_server

log = structlog.get_logger(__name__)

T = TypeVar("T")
CHUNK = 65_536
LOOPBACK = "127.0.0.1"
BACKLOG = 512
# With this, the kernel sends RST when the socket is closed, and drops what was not sent.
RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


class ProxiedConnection:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, client: Streams, server: Streams, watch: ConnectionWatch) -> None:
        self.client = client
        self.server = server
        self.watch = watch
        self.gate = asyncio.Event()
        self.gate.set()
        self.delays = (0.0, 0.0)

    def reset(self) -> None:
        """Close both sides at once, with RST where TCP is used."""
        for _, writer in (self.client, self.server):
            abort(writer)

    async def run(self) -> None:
        """Forward bytes until one side ends, then end the other."""
        pumps = [
            asyncio.ensure_future(self._pump(self.client[0], self.watch.pass_client_bytes)),
            asyncio.ensure_future(self._pump(self.server[0], self.watch.pass_server_bytes)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writers = [writer for _, writer in (self.client, self.server)]
            for writer in writers:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, look: Callable[[bytes], Any]) -> None:
        ours, theirs = (self.client, self.server) if reader is self.client[0] else (self.server, self.client)
        try:
            while data := await reader.read(CHUNK):
                await self.gate.wait()
                if self.delays[1]:
                    await asyncio.sleep(random.uniform(*self.delays))  # noqa: S311
                passed = look(data)
                if passed.answer:
                    ours[1].write(passed.answer)
                if passed.forward:
                    theirs[1].write(passed.forward)
                    await theirs[1].drain()
                if passed.reset:
                    self.reset()
                    return
            await self.gate.wait()
        except OSError as error:  # the other side is gone, or was reset
            log.debug("proxied_connection_lost", why=str(error))
            self.reset()


class SwallowedReplies:
    """How many replies are still to be swallowed, and how many were."""

    def __init__(self) -> None:
        self._left = 0
        self._share = 0.0
        self.count = 0

    def want(self, count: int, share: float) -> None:
        """Swallow each reply with this probability until there are that many."""
        self._left, self._share, self.count = count, share, 0

    def wants_reply(self) -> bool:
        if self._left and random.random() < self._share:  # noqa: S311
            self._left -= 1
            return True
        return False

    def count_swallowed(self) -> None:
        self.count += 1


class FaultProxy:
    """Listens on a port of 127.0.0.1, and forwards connections to a server."""

    def __init__(
        self, name: str, connect: Connect, watch: Callable[[SwallowedReplies], ConnectionWatch]
    ) -> None:
        self.name = name
        self._connect = connect
        self._watch = watch
        self._connections: set[ProxiedConnection] = set()
        self._stalled: list[ProxiedConnection] = []
        self._stalls_new = False
        self._delays = (0.0, 0.0)
        self._swallowed = SwallowedReplies()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def __enter__(self) -> Self:
        self._listening = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
        self.port = self._listening.getsockname()[1]
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.name}", daemon=True)
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._do(self._stop.set)
        self._thread.join()

    # Faults

    def count_connections(self) -> int:
        """How many connections go through it now."""
        return self._do(lambda: len(self._connections))

    def reset(self, share: float, chance: random.Random) -> int:
        """Reset this share of the connections, at least one. How many there were."""

        def reset() -> int:
            chosen = self._choose(share, chance)
            for one in chosen:
                one.reset()
            return len(chosen)

        return self._do(reset)

    def stall(self, share: float, chance: random.Random) -> int:
        """Hold back all bytes of this share of the connections until `go_on`; with a share of 1, of new ones, too."""

        def stall() -> int:
            chosen = self._choose(share, chance)
            for one in chosen:
                one.gate.clear()
            self._stalled += chosen
            self._stalls_new = share >= 1
            return len(chosen)

        return self._do(stall)

    def go_on(self, *, reset: bool = False) -> None:
        """Let the bytes that were held back come through in their order; or reset these connections."""

        def go_on() -> None:
            self._stalls_new = False
            for one in self._stalled:
                if reset:
                    one.reset()
                one.gate.set()
            self._stalled.clear()

        self._do(go_on)

    def delay(self, shortest: float, longest: float) -> None:
        """Delay each chunk of every connection by this many seconds; by none with 0."""

        def delay() -> None:
            self._delays = (shortest, longest)
            for one in self._connections:
                one.delays = self._delays

        self._do(delay)

    def swallow(self, count: int, share: float) -> None:
        """Drop the replies to that many commits, each chosen with this probability, and reset their connections."""
        self._do(lambda: self._swallowed.want(count, share))

    def count_swallowed(self) -> int:
        """How many replies were swallowed since the last call of `swallow`."""
        return self._do(lambda: self._swallowed.count)

    def stop_swallowing(self) -> int:
        """Let all replies through from now on. How many were swallowed since the last call of `swallow`."""

        def stop() -> int:
            count = self._swallowed.count
            self._swallowed.want(0, 0.0)
            return count

        return self._do(stop)

    def _choose(self, share: float, chance: random.Random) -> Sequence[ProxiedConnection]:
        # the order of a set is not that of the seed
        running = sorted(self._connections, key=id)
        return chance.sample(running, max(1, round(len(running) * share))) if running else []

    # The loop

    def _do(self, call: Callable[[], T]) -> T:
        """Call a function in the proxy's loop, and return its result."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._handle, sock=self._listening)
        self._is_ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            server = await self._connect()
        except OSError as error:
            log.debug("proxy_target_unreachable", proxy=self.name, why=str(error))
            abort(writer)
            return
        one = ProxiedConnection((reader, writer), server, self._watch(self._swallowed))
        one.delays = self._delays
        if self._stalls_new:
            one.gate.clear()
            self._stalled.append(one)
        self._connections.add(one)
        try:
            await one.run()
        finally:
            self._connections.discard(one)
            if one in self._stalled:
                self._stalled.remove(one)


def abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once: with RST if it is one of TCP."""
    ours = writer.get_extra_info("socket")
    if ours is not None and ours.family != socket.AF_UNIX and not writer.is_closing():
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()


class PostgresProxy(FaultProxy):
    """A proxy in front of the PostgreSQL of a URL. `url` is the same database through it."""

    def __init__(self, url: str) -> None:
        host, port = read_server(url)

        async def connect() -> Streams:
            if host.startswith("/"):
                return await asyncio.open_unix_connection(str(Path(host, f".s.PGSQL.{port}")))
            return await asyncio.open_connection(host, port)

        super().__init__("postgres", connect, PostgresWatch)
        self._url = url

    @property
    def url(self) -> str:
        return replace_server(self._url, LOOPBACK, self.port)


class HttpProxy(FaultProxy):
    """A proxy in front of an HTTP server. `url` is where clients find it."""

    def __init__(self, host: str, port: int) -> None:
        async def connect() -> Streams:
            return await asyncio.open_connection(host, port)

        super().__init__(f"http-{port}", connect, HttpWatch)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"


class Proxies(NamedTuple):
    """The proxies of a run."""

    postgres: PostgresProxy
    http: Sequence[HttpProxy] = ()
