"""Watches the hosts of all polling agents: one query for all of them, at each notification and every LOOK_SECONDS.

A glance only reads which hosts have work, which is cheap for any number of hosts. A look reads the state of each host.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions import agents, live
from fairlead.actions.hosts import unknown_host_error
from fairlead.db.listen import POLL
from fairlead.errors import AddressNotAllowed, FairleadError, Unauthenticated
from fairlead.library.app import Fairlead
from fairlead.model.address_list import AddressList, require_allowed
from fairlead.model.host import HostState
from fairlead.runtime.maintenance import Caretaker
from fairlead.runtime.service import Service
from fairlead.runtime.slot_reserve import SlotReserve
from fairlead.server.auth import Gatekeeper
from fairlead.server.long_polls import LongPolls

# How long a host is remembered after its agent's last poll.
FORGET_SECONDS = 90.0
LINGER_SECONDS = 5.0
# Shorter than the gatekeeper's cache, so that polls keep their token cached.
LOOK_SECONDS = 1.5
SEEN_SECONDS = 10.0
# After a look, the watcher rests this many times as long, so that looks use a bounded share of the time.
REST_FACTOR = 3.0
LONGEST_REST_SECONDS = 0.25
# After this long, jobs that were given but not accepted are given again: the first answer may be lost.
UNDELIVERED_SECONDS = 2.0
WORK_NOTIFICATIONS = ("ready", "room")
STATE_NOTIFICATIONS = ("later", "cancel", "gate", "host", POLL)


# Whether the agent is still connected.
StillConnected = Callable[[], Awaitable[bool]]


class AgentPoll(msgspec.Struct, eq=False):
    """One waiting poll, with its own wake event."""

    token_id: UUID
    began: float
    waits: StillConnected
    ip: str | None = None
    woken: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    # why it is refused, if its token was revoked or its address is no longer allowed
    refusal: FairleadError | None = None


class WatchedHost(msgspec.Struct):
    """A host whose agent polls this process, or did a moment ago."""

    host_id: UUID
    token_id: UUID
    heard_at: float
    state: HostState | None = None
    # canceled jobs that its agent knows of
    cancels_sent: set[UUID] = msgspec.field(default_factory=set)
    polls: set[AgentPoll] = msgspec.field(default_factory=set)
    claim_lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    # when jobs were last given that may not have arrived; None if there are none
    given_at: float | None = 0.0
    # how many queries saw work
    sightings: int = 0
    # consecutive claims that took nothing though there was work; and when to try again
    empty_claims: int = 0
    next_claim_at: float = 0.0
    # when the rate opens that held its work back at the last claim
    opens_at: float | None = None
    # slots that are kept for a job that needs more; and whether the last claim found such a job
    reserve: SlotReserve = msgspec.field(default_factory=lambda: SlotReserve(None))
    is_short: bool = False

    def wake(self) -> None:
        """Wake this host's polls."""
        for poll in self.polls:
            poll.woken.set()


class HostWatcher:
    """Keeps the state of all watched hosts, and wakes their polls on changes and work."""

    def __init__(self, fl: Fairlead, gatekeeper: Gatekeeper, polls: LongPolls) -> None:
        self._fl = fl
        self._polls = polls
        self._gatekeeper = gatekeeper
        self._hosts: dict[UUID, WatchedHost] = {}
        self._task: asyncio.Task[None] | None = None
        self._unused_since: float | None = None
        self._service = Service("agents", self._check_hosts)
        self._stop = asyncio.Event()
        self._is_look_due = True
        self._next_look_at = self._maintenance_at = self._seen_at = 0.0
        self._caretaker = Caretaker()

    def watch(self, host_id: UUID, token_id: UUID) -> WatchedHost:
        """Start to watch a host."""
        self._start()
        now = time.monotonic()
        host = self._hosts.setdefault(host_id, WatchedHost(host_id, token_id, now))
        host.token_id, host.heard_at = token_id, now
        return host

    async def state(self, host: WatchedHost) -> HostState:
        """Read a host's current state."""
        found = await self._fl.database.single(lambda tx: agents.list_host_states(tx, [host.host_id]))
        if not found:
            raise unknown_host_error(host.host_id)
        [state] = found
        self._update_state(host, state)
        return state

    def wake_all(self) -> None:
        """Wake all polls."""
        for host in self._hosts.values():
            host.wake()

    def _start(self) -> None:
        if self._task is None or self._task.done():
            for host in self._hosts.values():
                host.state = None  # it may have changed while nothing watched
            self._unused_since = None
            self._task = asyncio.create_task(self._run(), name="fairlead-agents", context=Context())

    async def _run(self) -> None:
        """Watch until there have been no polls for LINGER_SECONDS."""
        self._stop = asyncio.Event()
        async with self._polls.subscribe(self._handle_notification):
            await self._service.run(self._stop)

    def _handle_notification(self, payload: str) -> None:
        if payload in STATE_NOTIFICATIONS:
            self._is_look_due = True
        if payload in STATE_NOTIFICATIONS or payload in WORK_NOTIFICATIONS:
            self._service.wake()

    async def _check_hosts(self) -> float:
        """One look or glance for all hosts; returns the seconds until the next."""
        now = time.monotonic()
        self._forget_absent(now)
        if self._is_unused(now):
            self._stop.set()
            return 0.0
        if now >= self._maintenance_at:
            self._is_look_due = True
        if not self._is_look_due or now < self._next_look_at:
            await self._check_for_work()
        else:
            await self._read_states()
        if now >= self._maintenance_at:
            self._maintenance_at = now + LOOK_SECONDS
            await self._run_maintenance(now)
        due = self._next_look_at if self._is_look_due else self._maintenance_at
        return max(0.0, due - time.monotonic())

    async def _check_for_work(self) -> None:
        """Wake the polls of hosts that have work."""
        for host_id in await self._fl.database.single(agents.list_hosts_with_work):
            host = self._hosts.get(host_id)
            if host is not None and host.state is not None:
                self._update_state(
                    host, host.state if host.state.has_work else replace(host.state, has_work=True)
                )

    async def _read_states(self) -> None:
        began = time.monotonic()
        self._is_look_due = False
        ids = list(self._hosts)
        for state in await self._fl.database.single(lambda tx: agents.list_host_states(tx, ids)):
            if (host := self._hosts.get(state.id)) is not None:
                self._update_state(host, state)
        now = time.monotonic()
        self._next_look_at = now + min(REST_FACTOR * (now - began), LONGEST_REST_SECONDS)

    def _update_state(self, host: WatchedHost, state: HostState) -> None:
        """Store a host's state, and wake its polls if it changed or has work."""
        now = time.monotonic()
        is_news = host.state != state
        if is_news:
            host.state = state
        host.sightings += state.has_work
        is_lost = False
        if state.has_undelivered:
            host.given_at = now if host.given_at is None else host.given_at
            is_lost = is_delivery_overdue(host, now)
        if is_news or state.has_work or is_lost:
            host.wake()

    async def _run_maintenance(self, now: float) -> None:
        await self._check_tokens()
        await self._caretaker(self._fl.database)
        if now - self._seen_at >= SEEN_SECONDS:
            self._seen_at = now
            there = [
                one.host_id for one in self._hosts.values() if one.polls or now - one.heard_at < SEEN_SECONDS
            ]
            await self._fl.database.single(lambda tx: agents.mark_hosts_seen(tx, there))

    async def _check_tokens(self) -> None:
        """Keep the tokens of waiting polls cached, and reject the polls of revoked tokens."""
        places = list(self._hosts.values())
        tokens = {one.token_id for one in places} | {poll.token_id for one in places for poll in one.polls}
        good = await self._fl.database.single(lambda tx: live.filter_valid_tokens(tx, list(tokens)))
        self._gatekeeper.keep(good)
        # only those: a poll that began meanwhile may have another token
        for poll in [poll for one in places for poll in one.polls if poll.token_id in tokens]:
            if (refusal := _find_refusal(poll, good.get(poll.token_id))) is not None:
                poll.refusal = refusal
                poll.woken.set()

    def _is_unused(self, now: float) -> bool:
        """Whether there were no polls for LINGER_SECONDS, or the Fairlead was closed."""
        if any(host.polls for host in self._hosts.values()):
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = now
        return not self._fl.is_open or (
            self._unused_since is not None and now - self._unused_since > LINGER_SECONDS
        )

    def _forget_absent(self, now: float) -> None:
        for host_id, host in list(self._hosts.items()):
            if not host.polls and now - host.heard_at > FORGET_SECONDS:
                del self._hosts[host_id]


def is_delivery_overdue(host: WatchedHost, now: float) -> bool:
    """Whether jobs that were given should have been accepted by now."""
    return host.given_at is not None and now - host.given_at > UNDELIVERED_SECONDS


def _find_refusal(poll: AgentPoll, lists: tuple[AddressList, ...] | None) -> FairleadError | None:
    """Why a poll must not go on: its token is not valid (None), or an allow-list no longer admits its address."""
    if lists is None:
        return Unauthenticated(
            "This token is expired or revoked. Enrol the agent again with: fairlead hosts enrol HOST"
        )
    try:
        require_allowed(lists, poll.ip)
    except AddressNotAllowed as error:
        return error
    return None
