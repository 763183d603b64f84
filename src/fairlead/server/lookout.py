"""Looks at the database for all agents that wait here: one query for all of them, at a wake and once in a while.

A glance asks only which hosts have work: that is cheap however many wait. A look asks how each of them stands.
"""

import asyncio
import time
from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions.hosts import unknown_host
from fairlead.app import Fairlead
from fairlead.db.listen import POLL, Listener
from fairlead.runtime.service import Service
from fairlead.runtime.stager import stage
from fairlead.runtime.watchdog import Watchdog
from fairlead.server.auth import Gatekeeper
from fairlead.store import hosts, live
from fairlead.store.hosts import HostState

# A host whose agent was not heard of for so long is forgotten, until it comes back.
FORGET_SECONDS = 90.0
LINGER_SECONDS = 5.0
# Below the gatekeeper's memory, so that he need not ask about those who wait.
LOOK_SECONDS = 1.5
SEEN_SECONDS = 10.0
# Rests after a look, in lengths of it: however much happens, looking takes a part of the time only.
REST = 3.0
LONGEST_REST_SECONDS = 0.25
# What was given and not accepted for so long is given to somebody who waits: the one who got it may be gone.
UNSURE_SECONDS = 2.0
GLANCES = ("ready", "room")
LOOKS = ("later", "cancel", "gate", "host", POLL)


class Poll(msgspec.Struct, eq=False):
    """One request that waits. It has an event of its own: nobody else can take its wake."""

    token_id: UUID
    began: float
    woken: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    is_revoked: bool = False


class Place(msgspec.Struct):
    """A host whose agent is here, or was a moment ago."""

    host_id: UUID
    token_id: UUID
    heard_at: float
    state: HostState | None = None
    # cancels that its agent was told of
    told: set[UUID] = msgspec.field(default_factory=set)
    polls: set[Poll] = msgspec.field(default_factory=set)
    giving: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    # when something was last given that may not have arrived; None if nothing was
    given_at: float | None = 0.0
    # how often work was seen
    sightings: int = 0
    # claims in a row that brought nothing, though there was work; and until when another is not worth it
    in_vain: int = 0
    vain_until: float = 0.0

    def wake(self) -> None:
        """Let those who wait look again."""
        for poll in self.polls:
            poll.woken.set()


class Lookout:
    """Keeps the state of all places, and wakes those for whom it is worth it."""

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
        """A host's place; from now on somebody looks."""
        self._open()
        now = time.monotonic()
        place = self._places.setdefault(host_id, Place(host_id, token_id, now))
        place.token_id, place.heard_at = token_id, now
        return place

    async def state(self, place: Place) -> HostState:
        """How a host stands now, asked for itself."""
        found = await self._fl.database.single(lambda tx: hosts.states(tx, [place.host_id]))
        if not found:
            raise unknown_host(place.host_id)
        [state] = found
        self._note(place, state)
        return state

    def wake_all(self) -> None:
        """Let everybody who waits look again."""
        for place in self._places.values():
            place.wake()

    def _open(self) -> None:
        if self._task is None or self._task.done():
            for place in self._places.values():
                place.state = None  # what happened while nobody looked is not known
            self._left_at = None
            self._task = asyncio.create_task(self._attend(), name="fairlead-agents")

    async def _attend(self) -> None:
        """Look for those who wait, until nobody has for a while."""
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
        """One look or glance for everybody; seconds until the next."""
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
        """Wake those for whom there is work."""
        for host_id in await self._fl.database.single(hosts.with_work):
            place = self._places.get(host_id)
            if place is not None and place.state is not None:
                self._note(
                    place, place.state if place.state.has_work else replace(place.state, has_work=True)
                )

    async def _look_closely(self) -> None:
        began = time.monotonic()
        self._is_look_due = False
        ids = list(self._places)
        for state in await self._fl.database.single(lambda tx: hosts.states(tx, ids)):
            if (place := self._places.get(state.id)) is not None:
                self._note(place, state)
        now = time.monotonic()
        self._rested_at = now + min(REST * (now - began), LONGEST_REST_SECONDS)

    def _note(self, place: Place, state: HostState) -> None:
        """Keep how a host stands, and wake its agent if that is news, or if there is work for it."""
        now = time.monotonic()
        is_news = place.state != state
        if is_news:
            place.state = state
        place.sightings += state.has_work
        is_lost = False
        if state.has_undelivered:
            place.given_at = now if place.given_at is None else place.given_at
            is_lost = is_overdue(place, now)
        if is_news or state.has_work or is_lost:
            place.wake()

    async def _chores(self, now: float) -> None:
        await self._check_tokens()
        await self._sweep()
        if now - self._seen_at >= SEEN_SECONDS:
            self._seen_at = now
            there = [
                one.host_id for one in self._places.values() if one.polls or now - one.heard_at < SEEN_SECONDS
            ]
            await self._fl.database.single(lambda tx: hosts.seen(tx, there))

    async def _check_tokens(self) -> None:
        """Who waits is let in again without being asked who he is; whose token was revoked is sent away."""
        places = list(self._places.values())
        tokens = {one.token_id for one in places} | {poll.token_id for one in places for poll in one.polls}
        good = await self._fl.database.single(lambda tx: live.good_tokens(tx, list(tokens)))
        self._gatekeeper.keep(good)
        self._send_away([poll for one in places for poll in one.polls if poll.token_id not in good])

    def _send_away(self, polls: Sequence[Poll]) -> None:
        for poll in polls:
            poll.is_revoked = True
            poll.woken.set()

    async def _sweep(self) -> None:
        """Make ready what has fallen due, and put back what others left behind: there may be no worker that does."""
        await stage(self._fl.database)
        if self._watchdog is None:
            settings = self._fl.settings
            self._watchdog = Watchdog(
                self._fl.database, lease_seconds=settings.lease_seconds, sweep_seconds=settings.sweep_seconds
            )
        await self._watchdog()

    def _is_deserted(self, now: float) -> bool:
        """Whether nobody has waited for a while, or the Fairlead itself was closed."""
        if any(place.polls for place in self._places.values()):
            self._left_at = None
        elif self._left_at is None:
            self._left_at = now
        return not self._fl.is_open or (self._left_at is not None and now - self._left_at > LINGER_SECONDS)

    def _forget(self, now: float) -> None:
        for host_id, place in list(self._places.items()):
            if not place.polls and now - place.heard_at > FORGET_SECONDS:
                del self._places[host_id]


def is_overdue(place: Place, now: float) -> bool:
    """Whether what was given should have been accepted by now."""
    return place.given_at is not None and now - place.given_at > UNSURE_SECONDS
