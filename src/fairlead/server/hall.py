"""Where agents wait: long polls of many hosts, woken by notifications and not by asking for each."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions import agents
from fairlead.app import Fairlead
from fairlead.errors import TooManyRequests, Unauthenticated
from fairlead.runtime.source import Held
from fairlead.server.auth import Gatekeeper
from fairlead.server.lookout import Lookout, Place, Poll, is_overdue
from fairlead.store import definitions
from fairlead.store.hosts import HostState

# Somebody claims under the same limit at this moment: it is free again in a few milliseconds.
CLAIMS = 4
CLAIM_SECONDS = 0.02
# Of one host at a time: an agent needs one, and one more whose connection was cut.
MOST_POLLS = 32
# After claims that brought nothing though there is work: it waits for a gate, a limit, or another agent's skills.
VAIN_SECONDS = 0.05
LONGEST_VAIN_SECONDS = 1.0
# How long keys of definitions are remembered; and for how long that one of them is not there.
KEYS_SECONDS = 60.0
UNKNOWN_KEYS_SECONDS = 2.0


class Word(msgspec.Struct, frozen=True):
    """What an agent is told: jobs to run, jobs to stop, and how its host stands."""

    jobs: list[Held]
    cancel: list[UUID]
    state: HostState


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent waits for, and what it thinks of its host: it is told at once if that is not so."""

    session_id: UUID
    definitions: Sequence[str] | None = None
    limit: int = 1
    seconds: float = 0.0
    paused: bool = False
    draining: bool = False
    # whether the agent still waits for the answer
    waits: Callable[[], Awaitable[bool]]


class Hall:
    """All agents that wait at this process."""

    def __init__(self, fl: Fairlead, gatekeeper: Gatekeeper) -> None:
        self._fl = fl
        self._lookout = Lookout(fl, gatekeeper)
        self._keys: dict[str, UUID] = {}
        self._keys_at = -KEYS_SECONDS
        self._is_closing = False

    def close(self) -> None:
        """The server stops: answer those who wait, so that it need not wait for them."""
        self._is_closing = True
        self._lookout.wake_all()

    async def wait(self, host_id: UUID, token_id: UUID, wish: Wish) -> Word:
        """What there is for a host's agent, as soon as there is something; at the latest when its time is over."""
        place = self._lookout.place(host_id, token_id)
        if len(place.polls) >= MOST_POLLS:
            raise TooManyRequests(
                f"This host's agent has {MOST_POLLS} long polls open at this server, as many as it may. Wait for their answers."
            )
        poll = Poll(token_id, time.monotonic())
        place.polls.add(poll)
        try:
            return await self._wait(place, poll, wish)
        finally:
            place.polls.discard(poll)
            place.heard_at = time.monotonic()

    async def _wait(self, place: Place, poll: Poll, wish: Wish) -> Word:
        until = poll.began + wish.seconds
        while True:
            # before anything is read: what changes from here on wakes us again
            poll.woken.clear()
            if poll.is_revoked:
                raise Unauthenticated(
                    "This token is expired or revoked. Enrol the agent again with: fairlead hosts enrol HOST"
                )
            state = await self._state(place, wish)
            fresh = [one for one in state.canceling if one not in place.told]
            jobs = await self._jobs(place, poll, wish) if wish.limit else []
            left = 0.0 if self._is_closing else until - time.monotonic()
            if jobs or fresh or left <= 0 or (state.paused, state.draining) != (wish.paused, wish.draining):
                place.told = set(state.canceling)
                return Word(jobs, list(state.canceling), state)
            await _woken(poll, left)

    async def _state(self, place: Place, wish: Wish) -> HostState:
        """How the host stands. Before one is refused as superseded, it is looked up: it may be new itself.

        Nothing wakes a poll that does not wait, so what was seen a moment ago is no answer to it.
        """
        known = place.state if wish.seconds else None
        state = known or await self._lookout.state(place)
        if state.session_id != wish.session_id:
            state = await self._lookout.state(place)
            agents.check_session(state, wish.session_id)
        return state

    async def _jobs(self, place: Place, poll: Poll, wish: Wish) -> list[Held]:
        """One poll of a host after the other: a later one sees what an earlier one was given."""
        async with place.giving:
            jobs: list[Held] = []
            now = time.monotonic()
            # not what was given since this poll began: that is another's answer, and probably arrived
            if place.given_at is not None and (poll.began > place.given_at or is_overdue(place, now)):
                jobs = await self._again(place, wish)
            state = place.state
            is_patient = wish.seconds > 0 and now < place.vain_until
            if len(jobs) < wish.limit and state is not None and not is_patient and _is_worth_it(state):
                jobs += await self._claim(place, wish, wish.limit - len(jobs))
            return jobs

    async def _again(self, place: Place, wish: Wish) -> list[Held]:
        seconds = self._fl.settings.lease_seconds
        found = await self._fl.database.transact(
            lambda tx: agents.given(
                tx, place.host_id, wish.session_id, limit=wish.limit, lease_seconds=seconds
            )
        )
        place.given_at = time.monotonic() if found else None
        return [Held(lease, job) for lease, job in found]

    async def _claim(self, place: Place, wish: Wish, limit: int) -> list[Held]:
        if not await wish.waits():
            return []
        served = await self._served(wish.definitions)
        seconds = self._fl.settings.lease_seconds
        sightings = place.sightings
        for _ in range(CLAIMS):
            taken = await self._fl.database.transact(
                lambda tx: agents.give(
                    tx, place.host_id, wish.session_id, served=served, limit=limit, lease_seconds=seconds
                )
            )
            if taken.jobs or not taken.busy:
                break
            await asyncio.sleep(random.uniform(0.5, 1) * CLAIM_SECONDS)  # noqa: S311
        if taken.jobs:
            place.given_at, place.in_vain = time.monotonic(), 0
        else:
            _note_vain(place, is_over=place.sightings == sightings)
        return [Held(taken.lease(job), job) for job in taken.jobs]

    async def _served(self, keys: Sequence[str] | None) -> list[UUID] | None:
        """The definitions that an agent can run, remembered for all agents together; None for all."""
        if keys is None:
            return None
        age = time.monotonic() - self._keys_at
        if age > KEYS_SECONDS or (age > UNKNOWN_KEYS_SECONDS and not self._keys.keys() >= set(keys)):
            self._keys_at = time.monotonic()
            self._keys = await self._fl.database.single(lambda tx: definitions.ids(tx, None))
        return sorted(self._keys[key] for key in keys if key in self._keys)


def _is_worth_it(state: HostState) -> bool:
    """Whether a claim may bring something."""
    return state.has_work and not state.paused and not state.draining


def _note_vain(place: Place, *, is_over: bool) -> None:
    """A claim brought nothing: the work that was seen is gone, unless more was seen meanwhile; or it cannot be had."""
    place.in_vain += 1
    if place.in_vain > 1:
        pause = min(VAIN_SECONDS * 2 ** min(place.in_vain, 10), LONGEST_VAIN_SECONDS)
        place.vain_until = time.monotonic() + pause
    if is_over and place.state is not None:
        place.state = replace(place.state, has_work=False)


async def _woken(poll: Poll, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await poll.woken.wait()
    except TimeoutError:
        return
