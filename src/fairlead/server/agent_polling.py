"""Long polls of agents: notifications wake them, and one query serves all hosts."""

import asyncio
import random
import time
from collections.abc import Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace
from pydantic import Field

from fairlead.actions import agents, definitions
from fairlead.errors import TooManyRequests
from fairlead.library.app import Fairlead
from fairlead.model.definition import MAX_SLOTS
from fairlead.model.host import HostState
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.service import wait_any
from fairlead.runtime.slot_reserve import SlotReserve
from fairlead.server.auth import Gatekeeper
from fairlead.server.host_watcher import (
    AgentPoll,
    HostWatcher,
    StillConnected,
    WatchedHost,
    is_delivery_overdue,
)
from fairlead.server.left_requests import go_on_without_client
from fairlead.server.long_polls import LongPolls
from fairlead.server.rest.leases import LONGEST_WAIT_SECONDS, MOST_JOBS
from fairlead.server.views import Id, Parameters, ReadableText

# Tries of a claim while another claim holds the lock of the same limit for some milliseconds.
CLAIM_TRIES = 4
CLAIM_PAUSE_SECONDS = 0.02
# Open polls of one host: an agent needs one, and a second after its connection broke.
MOST_POLLS = 32
# The pause after claims that took nothing though there is work: a gate, a limit or a definition may exclude it.
EMPTY_CLAIM_SECONDS = 0.05
LONGEST_EMPTY_CLAIM_SECONDS = 1.0
# How long the keys of definitions are cached; and how long a key counts as unknown.
KEYS_SECONDS = 60.0
# How long a poll waits if the next job needs more slots than the agent had when it asked.
SHORT_SECONDS = 0.5
UNKNOWN_KEYS_SECONDS = 2.0


class AgentPollAnswer(msgspec.Struct, frozen=True):
    """The answer to a poll: jobs to run, jobs to cancel, and the host's state."""

    jobs: list[HeldJob]
    cancel: list[UUID]
    state: HostState


class PollQuery(Parameters):
    """The jobs that the agent can take, and the host's state as the agent knows it. A different state is answered at once."""

    session: Id
    wait: float = Field(
        25,
        ge=0,
        le=LONGEST_WAIT_SECONDS,
        description="Seconds to wait for a job, a cancel or a change of the host.",
    )
    limit: int = Field(
        1,
        ge=0,
        le=MOST_JOBS,
        description="How many jobs the agent has room for; with `slots`, how many slots are free.",
    )
    slots: int | None = Field(
        None, ge=1, le=MAX_SLOTS, description="How many slots the agent has. Without it, each job takes one."
    )
    definitions: list[ReadableText] | None = Field(None, max_length=1000)
    paused: bool = False
    draining: bool = False


class AgentPolls:
    """The long polls of all agents that are connected to this process."""

    def __init__(self, fl: Fairlead, gatekeeper: Gatekeeper, polls: LongPolls) -> None:
        self._fl = fl
        self._polls = polls
        self._watcher = HostWatcher(fl, gatekeeper, polls)
        self._keys: dict[str, UUID] = {}
        self._keys_at = -KEYS_SECONDS
        self._is_closing = False

    def close(self) -> None:
        """Answer all polls now, since the server stops."""
        self._is_closing = True
        self._watcher.wake_all()

    async def wait(
        self,
        host_id: UUID,
        token_id: UUID,
        tenant_id: UUID | None,
        query: PollQuery,
        waits: StillConnected,
        *,
        ip: str | None = None,
    ) -> AgentPollAnswer:
        """Wait for jobs, cancels or a changed host, for at most `query.wait` seconds."""
        async with self._polls.limit.open(token_id, tenant_id):
            host = self._watcher.watch(host_id, token_id)
            if len(host.polls) >= MOST_POLLS:
                raise TooManyRequests(
                    f"This host's agent has {MOST_POLLS} long polls open at this server, which is the limit. Wait for their answers."
                )
            poll = AgentPoll(token_id, time.monotonic(), waits, ip)
            host.polls.add(poll)
            try:
                return await self._wait(host, poll, query)
            finally:
                host.polls.discard(poll)
                host.heard_at = time.monotonic()

    async def _wait(self, host: WatchedHost, poll: AgentPoll, query: PollQuery) -> AgentPollAnswer:
        until = poll.began + query.wait
        while True:
            # before the first read, so that every later change wakes this poll
            poll.woken.clear()
            if poll.refusal is not None:
                raise poll.refusal
            state = await self._read_state(host, query)
            fresh = [one for one in state.canceling if one not in host.cancels_sent]
            jobs = await self._take_jobs(host, poll, query) if query.limit else []
            left = 0.0 if self._is_closing else until - time.monotonic()
            if host.is_short and not jobs and left > 0:  # the agent may have more slots soon, and asks again
                await wait_any(poll.woken, seconds=min(left, SHORT_SECONDS))
                left = 0.0
            if jobs or fresh or left <= 0 or (state.paused, state.draining) != (query.paused, query.draining):
                host.cancels_sent = set(state.canceling)
                return AgentPollAnswer(jobs, list(state.canceling), state)
            await wait_any(poll.woken, seconds=left if host.opens_at is None else _until_opening(host, left))

    async def _read_state(self, host: WatchedHost, query: PollQuery) -> HostState:
        """The host's state. An unknown session is looked up before it is refused as superseded: it may be newer.

        A poll that does not wait cannot be woken, so it always reads the current state.
        """
        known = host.state if query.wait else None
        state = known or await self._watcher.state(host)
        if state.session_id != query.session:
            state = await self._watcher.state(host)
            agents.check_session(state, query.session)
        return state

    async def _take_jobs(self, host: WatchedHost, poll: AgentPoll, query: PollQuery) -> list[HeldJob]:
        """Take jobs for one poll at a time, so that a later poll sees the jobs of an earlier one."""
        # jobs that were taken are noted as given, so that the agent's next poll gets them if this one's client has left
        async with host.claim_lock:
            with go_on_without_client():
                return await self._take_jobs_in_turn(host, poll, query)

    async def _take_jobs_in_turn(self, host: WatchedHost, poll: AgentPoll, query: PollQuery) -> list[HeldJob]:
        jobs: list[HeldJob] = []
        host.is_short = False
        now = time.monotonic()
        # jobs given since this poll began belong to another poll's answer, which has probably arrived
        if host.given_at is not None and (poll.began > host.given_at or is_delivery_overdue(host, now)):
            jobs = await self._repeat_undelivered(host, query)
        state = host.state
        is_patient = query.wait > 0 and now < host.next_claim_at
        free = query.limit - sum(one.job.slots if query.slots else 1 for one in jobs)
        if free > 0 and state is not None and not is_patient and _may_have_jobs(state):
            jobs += await self._claim(host, poll, query, free)
        return jobs

    async def _repeat_undelivered(self, host: WatchedHost, query: PollQuery) -> list[HeldJob]:
        seconds = self._fl.settings.lease_seconds
        found = await self._fl.database.transact(
            lambda tx: agents.list_undelivered(
                tx, host.host_id, query.session, limit=query.limit, lease_seconds=seconds
            )
        )
        host.given_at = time.monotonic() if found else None
        return [HeldJob(lease, job) for lease, job in found]

    async def _claim(self, host: WatchedHost, poll: AgentPoll, query: PollQuery, limit: int) -> list[HeldJob]:
        if not await poll.waits():
            return []
        served = await self._definition_ids(query.definitions)
        seconds = self._fl.settings.lease_seconds
        sightings = host.sightings
        if host.reserve.capacity != query.slots:
            host.reserve = SlotReserve(query.slots)
        most_slots = host.reserve.count_most_slots(limit)
        for _ in range(CLAIM_TRIES):
            taken = await self._fl.database.transact(
                lambda tx: agents.claim_for_agent(
                    tx,
                    host.host_id,
                    query.session,
                    served=served,
                    limit=limit,
                    lease_seconds=seconds,
                    most_slots=most_slots,
                )
            )
            if taken.again and not taken.jobs:
                continue
            if taken.jobs or not taken.busy:
                break
            await asyncio.sleep(random.uniform(0.5, 1) * CLAIM_PAUSE_SECONDS)  # noqa: S311
        host.is_short = taken.short_of is not None and sum(job.slots for job in taken.jobs) < limit
        host.reserve.note(is_short=host.is_short)
        host.opens_at = None
        if taken.jobs:
            host.given_at, host.empty_claims = time.monotonic(), 0
        elif taken.opens_in is not None or taken.again:
            host.opens_at = host.next_claim_at = time.monotonic() + (taken.opens_in or 0.0)
        else:
            _note_empty_claim(host, is_over=host.sightings == sightings)
        return [HeldJob(taken.lease(job), job) for job in taken.jobs]

    async def _definition_ids(self, keys: Sequence[str] | None) -> list[UUID] | None:
        """The ids of the definitions that an agent can run (None: all), from a cache shared by all agents."""
        if keys is None:
            return None
        age = time.monotonic() - self._keys_at
        if age > KEYS_SECONDS or (age > UNKNOWN_KEYS_SECONDS and not self._keys.keys() >= set(keys)):
            self._keys_at = time.monotonic()
            self._keys = await self._fl.database.single(definitions.get_ids)
        return sorted(self._keys[key] for key in keys if key in self._keys)


def _may_have_jobs(state: HostState) -> bool:
    """Whether a claim may find jobs."""
    return state.has_work and not state.paused and not state.draining


def _until_opening(host: WatchedHost, left: float) -> float:
    """Seconds to wait for a host whose work waits for a rate."""
    return min(left, max(0.0, (host.opens_at or 0.0) - time.monotonic()), LONGEST_EMPTY_CLAIM_SECONDS)


def _note_empty_claim(host: WatchedHost, *, is_over: bool) -> None:
    """Note a claim that took nothing: the work is gone unless more was seen meanwhile, or a limit excludes it."""
    host.empty_claims += 1
    if host.empty_claims > 1:
        pause = min(EMPTY_CLAIM_SECONDS * 2 ** min(host.empty_claims, 10), LONGEST_EMPTY_CLAIM_SECONDS)
        host.next_claim_at = time.monotonic() + pause
    if is_over and host.state is not None:
        host.state = replace(host.state, has_work=False)
