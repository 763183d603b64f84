"""Live sockets: one feed for each watched tenant, polled by one loop that runs while there are sockets.

The loop polls each feed a few times a second, in one transaction bound to its tenant. A socket gets a bounded number
of frames: if more has happened, a single frame says that much has changed.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec
import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from fairlead.actions import live
from fairlead.db.database_errors import translate_error
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import FairleadError
from fairlead.library.app import Fairlead
from fairlead.model.address_list import AddressList
from fairlead.model.secrets.redact import Mask
from fairlead.server.live_feed import (
    COUNT_SECONDS,
    LOOK_SECONDS,
    OVERLAP,
    Frame,
    TenantWatch,
    encode_frame,
    gate_frame,
    parse_cursor,
)
from fairlead.settings import compile_patterns

log = structlog.get_logger(__name__)

MOST_SOCKETS = 10_000
MOST_WAITING = 256
MOST_FRAMES = 200
# Frames in one round, over all sockets.
MOST_SENDS = 2_000
# Frames a second in a flood, over all sockets of a feed: sending them competes with other requests.
FLOOD_SENDS_PER_SECOND = 250
MOST_WORKERS = 1_000
CHECK_SECONDS = 2.0
# How long a new socket waits for the first poll of its feed.
FIRST_LOOK_SECONDS = 10.0
OTHER_CELLS_SECONDS = 2.0
HEARTBEAT_SECONDS = 15.0
WORKER_SECONDS = 1.0
POSTPONE_SECONDS = 1.0
# After a poll, a feed rests this many times as long: it uses at most a tenth of one connection.
LOOK_REST_FACTOR = 10
# The quickest of the last polls counts as a feed's cost.
LOOKS = 3
CLOSE_SECONDS = 2.0
# After a longer absence, a client must refetch.
LONGEST_ABSENCE = timedelta(minutes=2)
MOST_CATCHING_UP = 4

TRY_AGAIN = 1013
REVOKED = 4401
ADDRESS_NOT_ALLOWED = 4403
TOO_SLOW = 4408

_REFETCH = "refetch"


class SocketCredential(NamedTuple):
    """The token or the session that opened a socket."""

    token_id: UUID | None
    session_hash: bytes | None
    # the address that it was opened from
    ip: str | None = None


class LiveSocket:
    """A client's socket and its bounded queue of frames."""

    def __init__(self, holder: SocketCredential, *, brief: bool = False) -> None:
        """A brief socket gets one `jobs.changed` in place of the frames about single jobs."""
        self.holder = holder
        self.brief = brief
        self.closing: tuple[int, str] | None = None
        self.ended = asyncio.Event()
        self._waiting: deque[str] = deque()
        self._wake = asyncio.Event()
        self._told_to_refetch = False

    def push(self, texts: list[str], refetch: str) -> None:
        """Queue frames. A client that falls behind is told to refetch; one that falls behind again is disconnected."""
        if len(self._waiting) + len(texts) > MOST_WAITING:
            if self._told_to_refetch:
                self.close(TOO_SLOW, "too slow")
                return
            self._told_to_refetch = True
            self._waiting.clear()
            texts = [refetch]
        self._waiting.extend(texts)
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """End the socket with a close code."""
        self.closing = self.closing or (code, reason)
        self.ended.set()

    async def send_all(self, websocket: WebSocket) -> None:
        """Send queued frames until cancelled."""
        while True:
            await self._wake.wait()
            while self._waiting:
                text = self._waiting.popleft()
                await websocket.send_text(text)
                if not self._waiting:
                    self._told_to_refetch = False
            self._wake.clear()


class TenantFeed(msgspec.Struct):
    """The sockets that watch the same tenant (or all tenants), and the state of their feed."""

    watch: TenantWatch
    sockets: set[LiveSocket]
    due_at: float = 0.0
    # how long the last polls took: a single one may have waited for a thousand sockets to connect
    took: deque[float] = msgspec.field(default_factory=lambda: deque([0.0] * LOOKS, LOOKS))
    # set after the first poll: every later change is noticed
    begun: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def tell(self, frames: list[Frame], cursor: datetime) -> None:
        """Send frames to all sockets; each frame is encoded once."""
        if frames:
            texts = [encode_frame(frame, cursor) for frame in frames]
            brief = [encode_frame(frame, cursor) for frame in shorten(frames)]
            refetch = encode_frame(Frame(type=_REFETCH, at=cursor), cursor)
            for socket in list(self.sockets):
                socket.push(brief if socket.brief else texts, refetch)


def shorten(frames: Sequence[Frame]) -> list[Frame]:
    """The frames with one `jobs.changed` in place of all that are about jobs."""
    others = [frame for frame in frames if not frame.type.startswith("job")]
    if len(others) == len(frames):
        return others
    last = next(frame for frame in reversed(frames) if frame.type.startswith("job"))
    return [*others, Frame(type="jobs.changed", at=last.at)]


class LiveFeeds:
    """All live feeds of this process."""

    def __init__(self, fl: Fairlead, home: Fairlead | None = None) -> None:
        """`home` is the home cell, if `fl` is another: it knows the super admins."""
        self._fl = fl
        self._home = home
        # the feeds of the other cells, for those who watch all tenants
        self.find_others: Callable[[], Awaitable[Sequence[LiveFeeds]]] = _find_none
        self._mask = Mask((), compile_patterns(fl.settings.redact_patterns))
        self._feeds: dict[UUID | None, TenantFeed] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._catching_up = 0
        self._heartbeat_at = self._workers_read_at = 0.0
        self._gates_since: datetime | None = None
        self._gates_seen: set[tuple[datetime, str]] = set()
        self._workers: set[str] | None = None

    @property
    def connections(self) -> int:
        """How many sockets there are."""
        return sum(len(room.sockets) for room in self._feeds.values())

    async def serve(
        self,
        websocket: WebSocket,
        holder: SocketCredential,
        tenant_id: UUID | None,
        since: str | None,
        *,
        brief: bool = False,
    ) -> None:
        """Serve an accepted socket until either side closes it."""
        socket = LiveSocket(holder, brief=brief)
        room = self._join(socket, tenant_id)
        others = await self.find_others() if tenant_id is None else ()
        joined = [feeds._join(socket, None) for feeds in others]  # noqa: SLF001 - feeds of the same kind
        if others:
            since = None if since is None else ""  # each cell has a clock: the client fetches what it missed
        tasks: list[asyncio.Task[object]] = []
        try:
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await room.begun.wait()
            await _wait_a_while(joined)
            await self._send_hello(websocket, tenant_id, since, brief=brief)
            tasks = [
                asyncio.create_task(socket.send_all(websocket)),
                asyncio.create_task(_wait_for_disconnect(websocket)),
                asyncio.create_task(socket.ended.wait()),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except WebSocketDisconnect:
            pass  # the client left before the hello
        except TimeoutError:
            log.warning("live_greeting_failed", why="the feed was not polled in time")
            socket.close(TRY_AGAIN, "try again later")
        except Exception as error:
            if (refusal := translate_error(error, self._fl.database.url)) is None:
                raise
            log.warning("live_greeting_failed", why=refusal.message)
            socket.close(TRY_AGAIN, "try again later")
        finally:
            self._leave(socket, tenant_id)
            for feeds in others:
                feeds._leave(socket, None)  # noqa: SLF001
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if socket.closing is not None:
            await _close_websocket(websocket, *socket.closing)

    def _join(self, socket: LiveSocket, tenant_id: UUID | None) -> TenantFeed:
        room = self._feeds.get(tenant_id)
        if room is None:
            room = self._feeds[tenant_id] = TenantFeed(TenantWatch(tenant_id, mask=self._mask), set())
        room.sockets.add(socket)
        if not self._tasks:
            self._gates_since = self._workers = None  # changes from before the first socket are not news
            self._tasks = [
                asyncio.create_task(
                    self._repeat(self._poll_feeds, LOOK_SECONDS), name="fairlead-live", context=Context()
                ),
                # a separate task, so that a long round does not delay revocations
                asyncio.create_task(
                    self._repeat(self._close_revoked, CHECK_SECONDS),
                    name="fairlead-live-check",
                    context=Context(),
                ),
            ]
        return room

    def _leave(self, socket: LiveSocket, tenant_id: UUID | None) -> None:
        room = self._feeds[tenant_id]
        room.sockets.discard(socket)
        if not room.sockets:
            del self._feeds[tenant_id]
        if not self._feeds:
            for task in self._tasks:
                task.cancel()
            self._tasks = []

    async def _send_hello(
        self, websocket: WebSocket, tenant_id: UUID | None, since: str | None, *, brief: bool
    ) -> None:
        """Send the missed frames, then a hello with the cursor."""
        async with self._fl.database.transaction() as tx:
            now = await live.read_clock(tx)
        missed = [] if since is None else await self._read_missed(tenant_id, parse_cursor(since), now)
        if missed is None:
            missed = [Frame(type=_REFETCH, at=now)]
        if brief:
            missed = shorten(missed)
        for frame in [*missed, Frame(type="hello", at=now, tenant_id=tenant_id)]:
            await websocket.send_text(encode_frame(frame, now))

    async def _read_missed(
        self, tenant_id: UUID | None, since: datetime | None, now: datetime
    ) -> list[Frame] | None:
        """The frames since then; None if they are too many or too old, or too many clients ask."""
        if since is None or not now - LONGEST_ABSENCE < since <= now or self._catching_up >= MOST_CATCHING_UP:
            return None
        self._catching_up += 1
        try:
            watch = TenantWatch(tenant_id, since, mask=self._mask)
            async with self._fl.database.transaction(TransactionIdentity(tenant_id)) as tx:
                frames = await watch.look(tx, MOST_FRAMES)
            return None if watch.flooded else frames
        finally:
            self._catching_up -= 1

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause: float) -> None:
        """Repeat the work, with pauses at least as long as it takes."""
        while True:
            begun = time.monotonic()
            try:
                await work()
            except FairleadError as error:
                await self._postpone(error)
            except Exception as error:
                if (refusal := translate_error(error, self._fl.database.url)) is None:
                    log.exception("live_round_failed")
                await self._postpone(refusal or error)
            await asyncio.sleep(max(pause, time.monotonic() - begun))

    async def _postpone(self, error: Exception) -> None:
        log.warning("live_postponed", why=str(error))
        # changes during the pause show in the counts or in the next poll
        await asyncio.sleep(POSTPONE_SECONDS)

    async def _poll_feeds(self) -> None:
        begun = time.monotonic()
        async with self._fl.database.transaction() as tx:
            now = await live.read_clock(tx)
            tenants = [tenant_id for tenant_id in self._feeds if tenant_id is not None]
            stirring = await live.filter_active_tenants(tx, tenants) if tenants else set()
            common = await self._gate_frames(tx, now)
            staff = await self._worker_frames(tx, now, begun)
        if begun - self._heartbeat_at >= HEARTBEAT_SECONDS:
            common.append(Frame(type="heartbeat", at=now))
            self._heartbeat_at = begun
        most = max(2, min(MOST_FRAMES, MOST_SENDS // max(1, self.connections)))
        for tenant_id, room in list(self._feeds.items()):
            room.tell([*common, *(staff if tenant_id is None else [])], now)
            room.watch.calm_seconds = max(COUNT_SECONDS, len(room.sockets) / FLOOD_SENDS_PER_SECOND)
            new = room.watch.looked_at is None
            if room.due_at <= begun and (new or tenant_id is None or tenant_id in stirring):
                looked = time.monotonic()
                await self._poll_feed(room, most)
                room.took.append(time.monotonic() - looked)
                # an expensive feed (such as that of all tenants) is polled less often
                room.due_at = begun + max(
                    room.watch.pause - LOOK_SECONDS / 2, min(room.took) * LOOK_REST_FACTOR
                )

    async def _poll_feed(self, room: TenantFeed, most: int) -> None:
        async with self._fl.database.transaction(TransactionIdentity(room.watch.tenant_id)) as tx:
            frames = await room.watch.look(tx, most)
            now = await live.read_clock(tx) if frames else None
        room.begun.set()
        if now is not None:
            room.tell(frames, now)

    async def _gate_frames(self, tx: Tx, now: datetime) -> list[Frame]:
        """Changed gates of the system and of definitions, for all feeds."""
        since = self._gates_since
        self._gates_since = now
        found = await live.list_system_changes(tx, since=(since or now) - OVERLAP, limit=MOST_FRAMES)
        seen, self._gates_seen = self._gates_seen, {(one.at, one.action) for one in found}
        if since is None:
            return []
        fresh = [one for one in reversed(found) if (one.at, one.action) not in seen]
        return [frame for one in fresh if (frame := gate_frame(one)) is not None]

    async def _worker_frames(self, tx: Tx, now: datetime, begun: float) -> list[Frame]:
        """Workers that appeared or left, for the feed of all tenants."""
        if None not in self._feeds:
            self._workers = None
            return []
        if begun - self._workers_read_at < WORKER_SECONDS:
            return []
        self._workers_read_at = begun
        before, there = self._workers, await live.list_worker_ids(tx, limit=MOST_WORKERS)
        self._workers = there
        if before is None:
            return []
        came = [Frame(type="worker.appeared", at=now, worker_id=one) for one in sorted(there - before)]
        return came + [Frame(type="worker.gone", at=now, worker_id=one) for one in sorted(before - there)]

    async def _close_revoked(self) -> None:
        """Close the sockets whose token or session is no longer valid."""
        sockets = [socket for room in self._feeds.values() for socket in room.sockets]
        tokens = {one.holder.token_id for one in sockets if one.holder.token_id is not None}
        sessions = {one.holder.session_hash for one in sockets if one.holder.session_hash is not None}
        good: dict[UUID | bytes, tuple[AddressList, ...]] = {}
        for fl in (self._fl,) if self._home is None else (self._fl, self._home):
            async with fl.database.transaction() as tx:
                found = await live.filter_valid_tokens(tx, list(tokens)) if tokens else {}
                signed_in = await live.filter_valid_sessions(tx, list(sessions)) if sessions else {}
            good |= found | signed_in
        for socket in sockets:
            bound = good.get(socket.holder.token_id or socket.holder.session_hash or b"")
            if bound is None:
                socket.close(REVOKED, "signed out, revoked or expired")
            elif not all(one.admits(socket.holder.ip) for one in bound):
                socket.close(ADDRESS_NOT_ALLOWED, "address not allowed")


async def _wait_a_while(rooms: Sequence[TenantFeed]) -> None:
    """Wait for the first polls of other cells, one of which may not answer."""
    if rooms:
        await asyncio.wait(
            [asyncio.ensure_future(room.begun.wait()) for room in rooms], timeout=OTHER_CELLS_SECONDS
        )


async def _find_none() -> Sequence[LiveFeeds]:
    return ()


async def _wait_for_disconnect(websocket: WebSocket) -> None:
    """Ignore all messages until the client disconnects."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def _close_websocket(websocket: WebSocket, code: int, reason: str) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await websocket.close(code, reason)
    except (TimeoutError, RuntimeError, WebSocketDisconnect) as error:
        log.info("live_close_unheard", why=type(error).__name__)
