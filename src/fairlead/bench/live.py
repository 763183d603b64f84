"""Live: the delay until a thousand WebSockets receive a job's event, and their cost for a concurrent drain."""

import asyncio
import math
import resource
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import msgspec

from fairlead.actions import access
from fairlead.bench.drain_tools import drain_rate, open_drain_bench
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.library.app import Fairlead
from fairlead.model.access import Role
from fairlead.settings import Settings
from fairlead.store import tenants

SOCKETS = 1000
TOLD = 20
ROUNDS = 3
JOBS = 60_000
LIMIT = 1000.0
SECONDS = 60
AT_ONCE = 50
LOOK_SECONDS = 0.02
_KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class BenchSocket(asyncio.Protocol):
    """A minimal WebSocket client: it does the handshake, counts frames and notes when they arrived."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._data = b""
        self._shaken = False
        self.greeted = asyncio.get_running_loop().create_future()
        self.frames = 0
        self.heard: dict[str, float] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self._request)  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the workload if the socket was refused."""
        if not self.greeted.done():
            self.greeted.set_exception(
                ConnectionError(f"the socket was refused: {exc or self._data[:200]!r}")
            )

    def data_received(self, data: bytes) -> None:
        """Parse the frames."""
        self._data += data
        if not self._shaken:
            head, ended, rest = self._data.partition(b"\r\n\r\n")
            if not ended or b" 101 " not in head:
                return
            self._shaken, self._data = True, rest
        while (frame := self._next()) is not None:
            self._hear(frame)

    def _next(self) -> bytes | None:
        """One frame's content; servers do not mask, and ours sends nothing above 64 KiB."""
        if len(self._data) < 2:
            return None
        length, begin = self._data[1] & 127, 2
        if length == 126:
            length, begin = int.from_bytes(self._data[2:4], "big"), 4
        if len(self._data) < begin + length:
            return None
        frame, self._data = self._data[begin : begin + length], self._data[begin + length :]
        return frame

    def _hear(self, frame: bytes) -> None:
        now = time.time()
        self.frames += 1
        if b'"hello"' in frame:
            self.greeted.set_result(None)
        elif b'"job.created"' in frame:
            self.heard.setdefault(msgspec.json.decode(frame)["job_id"], now)


async def measure(_: str, settings: Settings, progress: Progress) -> Measure:
    """The 99th percentile, over all sockets, of the time from an enqueue to its frame."""
    _raise_file_limit()
    async with (
        open_drain_bench(
            replace(settings, rate_limit_burst=1_000_000, max_sockets_per_caller=0, max_sockets_per_tenant=0)
        ) as fl,
        serve_api(fl) as (host, port),
    ):
        before = _read_memory()
        progress(f"opening {SOCKETS} sockets")
        async with _open_sockets(fl, host, port) as listeners:
            each = (_read_memory() - before) / SOCKETS
            progress(f"enqueueing {TOLD} jobs, one by one")
            delays = await _measure_delays(fl, listeners)
        shares, rates = await _measure_drains(fl, settings, host, port, progress)
    value = statistics.quantiles(delays, n=100)[98]
    note = (
        f"limit: our own bound; {SOCKETS} sockets, median {statistics.median(delays):.0f} ms; a drain of {JOBS:,} jobs "
        f"beside them had {100 * statistics.median(shares):.0f} % of its rate without them ("
        f"{', '.join(f'{100 * share:.0f}' for share in shares)}), each socket got {statistics.median(rates):.1f} frames/s; "
        f"{each / 1024:.0f} KiB per socket, both ends"
    )
    return Measure("live", round(value, 1), "ms", LIMIT, round(value / LIMIT, 3), note)


async def _measure_delays(fl: Fairlead, listeners: list[BenchSocket]) -> list[float]:
    """For each job and socket the milliseconds from before the enqueue to its frame."""
    begun = {}
    for _ in range(TOLD):
        at = time.time()
        job = str((await fl.enqueue("unserved", tenant=TENANT)).id)
        begun[job] = at
        async with asyncio.timeout(SECONDS):
            while not all(job in listener.heard for listener in listeners):  # noqa: ASYNC110 - a thousand of them
                await asyncio.sleep(LOOK_SECONDS)
    return [1000 * (listener.heard[job] - at) for job, at in begun.items() for listener in listeners]


async def _measure_drains(
    fl: Fairlead, settings: Settings, host: str, port: int, progress: Progress
) -> tuple[list[float], list[float]]:
    """The drain's rate with sockets as a share of the rate before and after, and the frames per second of a socket."""
    shares, rates = [], []
    before = await drain_rate(fl, settings, JOBS, uuid4().hex)
    for number in range(1, ROUNDS + 1):
        progress(f"draining with sockets and without, round {number} of {ROUNDS}")
        async with _open_sockets(fl, host, port) as listeners:
            heard, begun = sum(listener.frames for listener in listeners), time.monotonic()
            beside = await drain_rate(fl, settings, JOBS, uuid4().hex)
            seconds = time.monotonic() - begun
            rates.append((sum(listener.frames for listener in listeners) - heard) / len(listeners) / seconds)
        after = await drain_rate(fl, settings, JOBS, uuid4().hex)
        shares.append(beside / statistics.mean((before, after)))
        before = after
    return shares, rates


@asynccontextmanager
async def serve_api(fl: Fairlead) -> AsyncIterator[tuple[str, int]]:
    """Run the API in this process, on a free port."""
    # imported here, since the web framework takes longer to import than most commands take to run
    from fairlead.server.app import bind, create_app, create_server  # noqa: PLC0415

    listening = bind("127.0.0.1", 0)
    server = create_server(create_app(fl))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await server.up.wait()
    try:
        yield "127.0.0.1", listening.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def _open_sockets(fl: Fairlead, host: str, port: int) -> AsyncIterator[list[BenchSocket]]:
    """Open sockets that follow the tenant's jobs, and wait for their hello frames."""
    async with fl.database.transaction() as tx:
        tenant_id = (await tenants.get_ids(tx, [TENANT]))[TENANT]
        token = await access.create_token(
            tx, fl.principal, name=uuid4().hex, role=Role.VIEWER, tenant_id=tenant_id
        )
    request = (
        f"GET /api/v1/live HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {_KEY}\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {token.secret}\r\n\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    listeners: list[BenchSocket] = []
    try:
        async with asyncio.timeout(SECONDS):
            while len(listeners) < SOCKETS:
                some = [
                    (await loop.create_connection(lambda: BenchSocket(request), host, port))[1]
                    for _ in range(min(AT_ONCE, SOCKETS - len(listeners)))
                ]
                listeners += some
                await asyncio.gather(*(listener.greeted for listener in some))
        yield listeners
    finally:
        for listener in listeners:
            listener.transport.close()


def _raise_file_limit() -> None:
    """Raise the limit of open files: each viewer needs a socket at both ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * SOCKETS + 500
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def _read_memory() -> float:
    """The bytes of memory that this process holds; NaN without /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    except OSError:
        return math.nan
    return float(pages * resource.getpagesize())
