"""The agent's long poll: it brings jobs and cancels, and shows the server that the agent is alive."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import structlog

from fairlead.errors import (
    AgentSuperseded,
    FairleadError,
    ServerNotWaitedFor,
    ServerUnreachable,
    Unauthenticated,
)
from fairlead.model.definition import MAX_SLOTS
from fairlead.runtime.http_jobs import ReceivedJob
from fairlead.runtime.http_source import HttpSource
from fairlead.runtime.server_client import ServerClient, backoff
from fairlead.runtime.service import wait_any

log = structlog.get_logger(__name__)

WAIT_SECONDS = 25.0
SHORTEST_WAIT_SECONDS = 0.5
# The pause after an empty answer: a server that does not hold the long poll gets at most five requests a second.
LULL_SECONDS = 0.2


class PollSession(msgspec.Struct):
    """The agent's session: a host has one agent session at a time."""

    session_id: UUID
    lease_seconds: float


class PollAnswer(msgspec.Struct):
    """The server's answer to a long poll."""

    items: list[ReceivedJob]
    cancel: list[UUID]
    paused: bool
    draining: bool
    note: str | None


class AgentPoller:
    """Polls for one session, and asks for no more jobs than the worker can start."""

    def __init__(
        self, line: ServerClient, source: HttpSource, keys: Sequence[str], *, slots: int = 1
    ) -> None:
        """`slots`: how many the worker has, free or not."""
        self._line = line
        self._source = source
        self._keys = list(keys)
        self._slots = min(slots, MAX_SLOTS)
        self._room = asyncio.Event()
        self._wait = WAIT_SECONDS
        self._paused = False
        self.draining = False
        # why the server refused this agent
        self.refusal: FairleadError | None = None
        source.asked = self._room.set

    async def begin(self, version: str, stop: asyncio.Event) -> PollSession | None:
        """Open a session as soon as the server can be reached; None if `stop` is set before."""
        failures = 0
        while not stop.is_set():
            try:
                body = {"version": version, "definitions": self._keys}
                return await self._line.post(f"{self._source.at}/session", body, PollSession)
            except ServerUnreachable as error:
                failures += 1
                log.warning("server_unreachable", why=error.message)
                await wait_any(stop, seconds=backoff(failures))
            except Unauthenticated:
                raise _revoked_error() from None
        return None

    async def listen(
        self,
        session: PollSession,
        stop: asyncio.Event,
        *,
        room: Callable[[], int],
        come: Callable[[], None],
        cancel: Callable[[], None],
    ) -> None:
        """Poll until the server refuses us. Calls `come` for new jobs and `cancel` for cancels; sets `stop` when the agent must end."""
        failures = 0
        while True:
            asked_at = time.monotonic()
            try:
                limit = 0 if stop.is_set() else max(0, room() - self._source.waiting)
                self._room.clear()
                word = await self._poll(session, limit, meanwhile=stop if limit else self._room)
                failures = 0
            except ServerUnreachable as error:
                cut = isinstance(error, ServerNotWaitedFor) and self._shorten_wait(
                    time.monotonic() - asked_at
                )
                failures = 1 if cut else failures + 1
                log.warning("server_unreachable", why=error.message)
                await asyncio.sleep(backoff(failures))
                continue
            except FairleadError as error:
                self.refusal = _revoked_error() if isinstance(error, Unauthenticated) else error
                log.warning("sent_away", code=error.code, why=error.message)
                stop.set()
                return
            if word is None:
                continue
            if word.cancel:
                cancel()
            fresh = self._source.give(word.items)
            if fresh:
                come()
            if not self._update_state(word, stop) and not fresh:
                await asyncio.sleep(LULL_SECONDS)

    def _shorten_wait(self, took: float) -> bool:
        """Shorten the long poll to fit a proxy's timeout; False if `took` shows that a proxy's timeout was not the cause."""
        if not SHORTEST_WAIT_SECONDS < took < self._wait:
            return False
        self._wait = max(SHORTEST_WAIT_SECONDS, took / 2)
        return True

    async def _poll(self, session: PollSession, limit: int, *, meanwhile: asyncio.Event) -> PollAnswer | None:
        """The server's next answer; None if `meanwhile` is set first, since the request must then change."""
        params: dict[str, Any] = {
            "session": str(session.session_id),
            "wait": self._wait,
            "limit": limit,
            # a server of an older version does not know it
            **({"slots": self._slots} if self._slots > 1 else {}),
            "definitions": self._keys,
            "paused": self._paused,
            "draining": self.draining,
        }
        at = f"{self._source.at}/jobs"
        asking = asyncio.ensure_future(self._line.get(at, params, PollAnswer, patience=self._wait))
        otherwise = asyncio.ensure_future(meanwhile.wait())
        try:
            await asyncio.wait((asking, otherwise), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            otherwise.cancel()

    def _update_state(self, word: PollAnswer, stop: asyncio.Event) -> bool:
        """Store whether the host is paused or draining; returns whether that changed."""
        if (word.paused, word.draining) == (self._paused, self.draining):
            return False
        self._paused, self.draining = word.paused, word.draining
        log.warning("host_state", paused=word.paused, draining=word.draining, note=word.note)
        if word.draining:
            stop.set()
        return True

    @property
    def may_finish_jobs(self) -> bool:
        """Whether running jobs may finish: yes if another agent replaced this one, or if the host drains."""
        return self.draining if self.refusal is None else isinstance(self.refusal, AgentSuperseded)


def _revoked_error() -> Unauthenticated:
    return Unauthenticated(
        "The agent's token was revoked or replaced. Its running jobs were stopped. "
        "To continue, create an enrolment code for the host and start the agent with --enrol."
    )
