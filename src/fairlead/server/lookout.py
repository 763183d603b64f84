"""Watches the hosts of all polling agents: one query for all of them, at each notification and every LOOK_SECONDS.

A glance only reads which hosts have work, which is cheap for any number of hosts. A look reads the state of each host.
"""

import asyncio
import time
from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions.hosts import unknown_host_error
from fairlead.app import Fairlead
from fairlead.db.listen import POLL, Listener
from fairlead.runtime.service import Service
from fairlead.runtime.stager import stage
from fairlead.runtime.watchdog import Watchdog
from fairlead.server.auth import Gatekeeper
from fairlead.store import hosts, live
from fairlead.store.hosts import HostState

# How long a host is remembered after its agent's last poll.
FORGET_SECONDS = 90.0
LINGER_SECONDS = 5.0
# Shorter than the gatekeeper's cache, so that polls keep their token cached.
LOOK_SECONDS = 1.5
SEEN_SECONDS = 10.0
# After a look, the watcher rests this many times as long, so that looks use a bounded share of the time.
REST = 3.0
LONGEST_REST_SECONDS = 0.25
# After this long, jobs that were given but not accepted are given again: the first answer may be lost.
UNSURE_SECONDS = 2.0
GLANCES = ("ready", "room")
LOOKS = ("later", "cancel", "gate", "host", POLL)


class Poll(msgspec.Struct, eq=False):
    """One waiting poll, with its own wake event."""

    token_id: UUID
    began: float
    woken: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    is_revoked: bool = False


class Place(msgspec.Struct):
    """A host whose agent polls this process, or did a moment ago."""

    host_id: UUID
    token_id: UUID
    heard_at: float
    state: HostState | None = None
    # canceled jobs that its agent knows of
    told: set[UUID] = msgspec.field(default_factory=set)
    polls: set[Poll] = msgspec.field(default_factory=set)
    giving: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    # when jobs were last given that may not have arrived; None if there are none
    given_at: float | None = 0.0
    # how many queries saw work
    sightings: int = 0
    # consecutive claims that took nothing though there was work; and when to try again
    in_vain: int = 0
    vain_until: float = 0.0

    def wake(self) -> None:
        """Wake this host's polls."""
        for poll in self.polls:
            poll.woken.set()


class Lookout:
    """Keeps the state of all watched hosts, and wakes their polls on changes and work."""

    def __init__(self, fl: Fairlead, gatekeeper: Gatekeeper) -> None:
        self._fl = fl
        self._gatekeeper = gatekeeper
        self._places: dict[UUID, Place] = {}
        self._task: asyncio.Task[None] | None = None
        self._left_at: float | None = None
        self._looking = Service("agents", self._look)
        self._stop = asyncio.Event()
        self._is_look_due = True
        self._rested_at = self._chores_at = self._seen_at = 0.0
        self._watchdog: Watchdog | None = None

    def place(self, host_id: UUID, token_id: UUID) -> Place:
        """Start to watch a host."""
        self._open()
        now = time.monotonic()
        host = self._places.setdefault(host_id, Place(host_id, token_id, now))
        host.token_id, host.heard_at = token_id, now
        return host

    async def state(self, host: Place) -> HostState:
        """Read a host's current state."""
        found = await self._fl.database.single(lambda tx: hosts.list_states(tx, [host.host_id]))
        if not found:
            raise unknown_host_error(host.host_id)
        [state] = found
        self._note(host, state)
        return state

    def wake_all(self) -> None:
        """Wake all polls."""
        for host in self._places.values():
            host.wake()

    def _open(self) -> None:
        if self._task is None or self._task.done():
            for host in self._places.values():
                host.state = None  # it may have changed while nothing watched
            self._left_at = None
            self._task = asyncio.create_task(self._attend(), name="fairlead-agents")

    async def _attend(self) -> None:
        """Watch until there have been no polls for LINGER_SECONDS."""
        self._stop = asyncio.Event()
        async with Listener(self._fl.direct_url, self._fl.settings.schema) as listener:
            with listener.subscribe(self._hear):
                await self._looking.run(self._stop)

    def _hear(self, payload: str) -> None:
        if payload in LOOKS:
            self._is_look_due = True
        if payload in LOOKS or payload in GLANCES:
            self._looking.wake()

    async def _look(self) -> float:
        """One look or glance for all hosts; returns the seconds until the next."""
        now = time.monotonic()
        self._forget(now)
        if self._is_deserted(now):
            self._stop.set()
            return 0.0
        if now >= self._chores_at:
            self._is_look_due = True
        if not self._is_look_due or now < self._rested_at:
            await self._glance()
        else:
            await self._look_closely()
        if now >= self._chores_at:
            self._chores_at = now + LOOK_SECONDS
            await self._chores(now)
        due = self._rested_at if self._is_look_due else self._chores_at
        return max(0.0, due - time.monotonic())

    async def _glance(self) -> None:
        """Wake the polls of hosts that have work."""
        for host_id in await self._fl.database.single(hosts.list_with_work):
            host = self._places.get(host_id)
            if host is not None and host.state is not None:
                self._note(host, host.state if host.state.has_work else replace(host.state, has_work=True))

    async def _look_closely(self) -> None:
        began = time.monotonic()
        self._is_look_due = False
        ids = list(self._places)
        for state in await self._fl.database.single(lambda tx: hosts.list_states(tx, ids)):
            if (host := self._places.get(state.id)) is not None:
                self._note(host, state)
        now = time.monotonic()
        self._rested_at = now + min(REST * (now - began), LONGEST_REST_SECONDS)

    def _note(self, host: Place, state: HostState) -> None:
        """Store a host's state, and wake its polls if it changed or has work."""
        now = time.monotonic()
        is_news = host.state != state
        if is_news:
            host.state = state
        host.sightings += state.has_work
        is_lost = False
        if state.has_undelivered:
            host.given_at = now if host.given_at is None else host.given_at
            is_lost = is_overdue(host, now)
        if is_news or state.has_work or is_lost:
            host.wake()

    async def _chores(self, now: float) -> None:
        await self._check_tokens()
        await self._sweep()
        if now - self._seen_at >= SEEN_SECONDS:
            self._seen_at = now
            there = [
                one.host_id for one in self._places.values() if one.polls or now - one.heard_at < SEEN_SECONDS
            ]
            await self._fl.database.single(lambda tx: hosts.mark_seen(tx, there))

    async def _check_tokens(self) -> None:
        """Keep the tokens of waiting polls cached, and reject the polls of revoked tokens."""
        places = list(self._places.values())
        tokens = {one.token_id for one in places} | {poll.token_id for one in places for poll in one.polls}
        good = await self._fl.database.single(lambda tx: live.filter_valid_tokens(tx, list(tokens)))
        self._gatekeeper.keep(good)
        self._send_away([poll for one in places for poll in one.polls if poll.token_id not in good])

    def _send_away(self, polls: Sequence[Poll]) -> None:
        for poll in polls:
            poll.is_revoked = True
            poll.woken.set()

    async def _sweep(self) -> None:
        """Make due jobs ready and rescue expired leases: there may be no worker that does."""
        await stage(self._fl.database)
        if self._watchdog is None:
            settings = self._fl.settings
            self._watchdog = Watchdog(
                self._fl.database, lease_seconds=settings.lease_seconds, sweep_seconds=settings.sweep_seconds
            )
        await self._watchdog()

    def _is_deserted(self, now: float) -> bool:
        """Whether there were no polls for LINGER_SECONDS, or the Fairlead was closed."""
        if any(host.polls for host in self._places.values()):
            self._left_at = None
        elif self._left_at is None:
            self._left_at = now
        return not self._fl.is_open or (self._left_at is not None and now - self._left_at > LINGER_SECONDS)

    def _forget(self, now: float) -> None:
        for host_id, host in list(self._places.items()):
            if not host.polls and now - host.heard_at > FORGET_SECONDS:
                del self._places[host_id]


def is_overdue(host: Place, now: float) -> bool:
    """Whether jobs that were given should have been accepted by now."""
    return host.given_at is not None and now - host.given_at > UNSURE_SECONDS
