"""What a fault is: its name, what it needs, and how it is done to a stage."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Literal

import msgspec

from fairlead.chaos.faults.proxy import FaultProxy, Proxies
from fairlead.chaos.history import now
from fairlead.chaos.stage import Role, Stage, StagedCommand, StagedProcess
from fairlead.db.database_errors import FAILED
from fairlead.errors import FairleadError

# Faults of a lane come one after the other; lanes overlap. So at most one worker is down at a time.
Lane = Literal["workers", "services", "clocks", "connections", "sessions", "postgres", "keys"]

LOOK_SECONDS = 0.02
GONE_SECONDS = 60.0
# How long a process may take until it works.
START_SECONDS = 60.0


class NothingToHit(Exception):
    """There is no target for this fault now."""


# What may go wrong while a fault is done, since other faults are done at the same time.
EXPECTED = (FairleadError, OSError, TimeoutError, *FAILED)


class FaultScene:
    """One fault as it is done: where, by which choices, and what it has hit."""

    def __init__(self, stage: Stage, proxies: Proxies, seed: int, over: asyncio.Event) -> None:
        self.stage = stage
        self.proxies = proxies
        self.chance = random.Random(seed)  # noqa: S311
        self._over = over
        self.at = now()
        self.has_begun = False
        self.over_at = 0.0
        # another kind than the one that was chosen
        self.kind = ""
        self.target = ""
        self.pids: list[int] = []
        self.notes: list[str] = []
        # a process that must work again before the next fault of the lane
        self.recovering: StagedProcess | None = None

    @property
    def is_over(self) -> bool:
        """Whether the faults of the run are over."""
        return self._over.is_set()

    def mark(self) -> None:
        """The fault begins now."""
        self.at, self.has_begun = now(), True

    def mark_over(self) -> None:
        """The fault is over now, although it is not done with: for example the next process still starts."""
        self.over_at = now()

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than the faults of the run last."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    def choose_process(self, *roles: Role) -> StagedProcess:
        """One of the running processes of these roles."""
        running = sorted(self.stage.processes(*roles), key=lambda one: one.name)
        if not running:
            raise NothingToHit(f"no {' or '.join(roles)} is running")
        chosen = self.chance.choice(running)
        self.target = chosen.name
        return chosen

    def choose_proxy(self) -> FaultProxy:
        """One of the proxies; that of PostgreSQL more often than one of a server."""
        every: list[FaultProxy] = [*[self.proxies.postgres] * 2, *self.proxies.http]
        chosen = self.chance.choice(every)
        self.target = chosen.name
        return chosen

    async def ends_within(
        self, process: StagedProcess, pid: int, seconds: float, *, or_is_ready: bool = False
    ) -> bool:
        """Wait until this process has ended, or for this time, or until the faults of the run are over.

        With `or_is_ready`, wait no longer than until it works.
        """
        ready = asyncio.create_task(process.wait_until_ready(seconds)) if or_is_ready else None
        deadline = now() + seconds
        try:
            while is_current(process, pid) and now() < deadline and not self._over.is_set():
                if ready is not None and ready.done():
                    break
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            if ready is not None:
                ready.cancel()
                await asyncio.gather(ready, return_exceptions=True)
        return not is_current(process, pid)

    async def restart_for_a_while(
        self, process: StagedProcess, environment: Mapping[str, str], seconds: float
    ) -> None:
        """Start a process again with these variables for a while, which begins when it works, and then as it was."""
        self.pids.append(process.pid)
        self.mark()
        process = await self.stage.restart(process, environment)
        pid = process.pid
        try:
            await self.ends_within(process, pid, START_SECONDS, or_is_ready=True)
            await self.pause(seconds)
        finally:
            if is_current(process, pid):  # else it died already, and the next one has none of the variables
                self.pids.append(pid)
                process = await self.stage.restart(process, {})
            self.mark_over()
            self.recovering = process

    async def wait_for_command(self, command: StagedCommand, seconds: float) -> int | None:
        """Wait until a command has ended: its exit code. None: it was killed after this time, or as the faults were over."""
        ended = asyncio.create_task(command.wait())
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait([ended, over], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else None
        finally:
            over.cancel()
            if command.returncode is None:
                command.kill()
            await ended

    async def wait_until_gone(self, process: StagedProcess, pid: int) -> None:
        """Wait until this process has ended."""
        async with asyncio.timeout(GONE_SECONDS):
            while is_current(process, pid):  # noqa: ASYNC110 - the kernel sets no event
                await asyncio.sleep(LOOK_SECONDS)


def is_current(process: StagedProcess, pid: int) -> bool:
    """Whether the process with this pid still runs."""
    return process.is_running() and process.pid == pid


Inject = Callable[[FaultScene], Awaitable[None]]
WhyNot = Callable[[Stage, Proxies], str | None]


def needs_nothing(_stage: Stage, _proxies: Proxies) -> str | None:
    """For faults that every run can have."""
    return None


class FaultKind(msgspec.Struct, frozen=True):
    """A kind of fault. `share` is how often it comes among those of its lane."""

    name: str
    text: str
    lane: Lane
    inject: Inject
    share: int = 1
    # why this stage cannot have it; None if it can
    why_not: WhyNot = needs_nothing
