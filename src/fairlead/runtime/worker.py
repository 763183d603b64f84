"""A worker: claim → run → decide → finish, over a JobSource."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import structlog

from fairlead.errors import FairleadError
from fairlead.model.job import Lease
from fairlead.model.outcome import MAX_LOST, Canceled, Outcome, Released, Snoozed, decide
from fairlead.runtime.finisher import Finisher
from fairlead.runtime.heart import Heart
from fairlead.runtime.service import wait_any
from fairlead.runtime.source import Held, JobSource

log = structlog.get_logger(__name__)

CLAIM_BATCH = 250
STOP_SECONDS = 10.0


# Starts an attempt; the future is its outcome and never an exception.
Start = Callable[[Held, "Attempt"], asyncio.Future[Outcome]]


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt of ours: its lease, what will be its outcome, and how it is asked to stop."""

    held: Held
    future: asyncio.Future[Outcome] | None = None
    stop: Callable[[], object] | None = None
    log: Callable[[], str] | None = None
    lost: bool = False
    released: bool = False

    def ask_to_stop(self) -> None:
        """Ask the handler to stop."""
        if self.stop is not None:
            self.stop()


def _is_suspect(held: Held) -> bool:
    """Whether one more loss would condemn the job. At the first, a whole worker's jobs come back together."""
    return held.job.lost_count >= MAX_LOST - 1


def _shortly() -> float:
    return random.uniform(0.1, 0.5)  # noqa: S311


class Worker:
    """Claims no more than can start, runs each job beside the others, and writes the ends in batches."""

    def __init__(
        self,
        source: JobSource,
        start: Start,
        *,
        concurrency: int,
        lease_seconds: float,
        poll_seconds: float,
        later: Callable[[], None] = lambda: None,
    ) -> None:
        """`later` is told when something was put back for later."""
        self._source = source
        self._begin = start
        self._concurrency = concurrency
        self._poll_seconds = poll_seconds
        self._attempts: dict[Lease, Attempt] = {}
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.finisher = Finisher(source, self._written, later)
        self.heart = Heart(lease_seconds, canceled=self._hear_cancel, lost=self._hear_loss)
        self.done = 0

    @property
    def running(self) -> int:
        return len(self._attempts)

    def wake(self) -> None:
        """There may be work: look now."""
        self._wake.set()

    # Claiming

    async def claim_until(self, stop: asyncio.Event, worn_out: Callable[[], bool] = lambda: False) -> None:
        """Claim and start jobs until told to stop, or until this process is worn out."""
        while not stop.is_set() and not worn_out():
            self._changed.clear()
            free = self._concurrency - len(self._attempts)
            if free < 1:
                await wait_any(self._changed, stop)
                continue
            self._wake.clear()
            if not await self._claim(min(free, CLAIM_BATCH)):
                await wait_any(self._wake, stop, seconds=self._poll_seconds * random.uniform(0.8, 1.2))  # noqa: S311

    async def _claim(self, wanted: int) -> int:
        asked_at = time.monotonic()
        try:
            held = await self._source.claim(wanted)
        except FairleadError as error:
            log.warning("claim_failed", why=error.message)
            return 0
        suspects = [one for one in held if _is_suspect(one)]
        for one in held:
            if not _is_suspect(one):
                self._start(one, asked_at)
        if suspects:
            await self._admit(suspects, asked_at)
        return len(held)

    async def _admit(self, suspects: list[Held], asked_at: float) -> None:
        """Of suspects, run one at a time: if it kills this worker too, no other suspect is condemned with it.

        The others are given back, and known to be, before it starts.
        """
        taken = any(_is_suspect(attempt.held) for attempt in self._attempts.values())
        kept, back = ([], suspects) if taken else (suspects[:1], suspects[1:])
        if back:
            later = [(one.lease, decide(one.job.budget, Snoozed(_shortly()))) for one in back]
            try:
                await self._source.finish(later)
            except FairleadError as error:
                log.warning("suspects_not_given_back", jobs=len(back), why=error.message)
        for one in kept:
            self._start(one, asked_at)

    # Running

    def _start(self, held: Held, asked_at: float) -> None:
        attempt = Attempt(held)
        self._attempts[held.lease] = attempt
        self.heart.hold(held.lease, asked_at)
        attempt.future = self._begin(held, attempt)
        attempt.future.add_done_callback(partial(self._ended, attempt))

    def _ended(self, attempt: Attempt, future: asyncio.Future[Outcome]) -> None:
        held = attempt.held
        if attempt.lost:
            self._forget(held.lease)
            return
        outcome = future.result()
        if attempt.released and isinstance(outcome, Canceled):
            outcome = Released()
        change = decide(held.job.budget, outcome)
        if attempt.log is not None and (text := attempt.log()):
            change = replace(change, log=text)
        self.finisher.add(held.lease, change)

    def _written(self, lease: Lease) -> None:
        self.done += 1
        self._forget(lease)

    def _forget(self, lease: Lease) -> None:
        self._attempts.pop(lease, None)
        self.heart.drop(lease)
        self._changed.set()

    # What the heart hears, from its own thread

    def _hear_cancel(self, lease: Lease) -> None:
        self._loop.call_soon_threadsafe(self._stop_attempt, lease, False)

    def _hear_loss(self, lease: Lease) -> None:
        self._loop.call_soon_threadsafe(self._stop_attempt, lease, True)

    def _stop_attempt(self, lease: Lease, lost: bool) -> None:  # noqa: FBT001
        attempt = self._attempts.get(lease)
        if attempt is not None:
            attempt.lost = attempt.lost or lost
            attempt.ask_to_stop()

    # Ending

    def hurry(self) -> None:
        """Stop waiting for what runs: give it back now."""
        self._hurry.set()

    async def drain(self, seconds: float) -> None:
        """Let what runs end within the grace time, release the rest, and write it all."""
        await self._all_ended(seconds)
        for attempt in list(self._attempts.values()):
            if attempt.future is not None and not attempt.future.done():
                attempt.released = True
                attempt.ask_to_stop()
        self._hurry.clear()
        await self._all_ended(STOP_SECONDS)
        await self.finisher.flushed()

    async def _all_ended(self, seconds: float) -> None:
        """Wait until no attempt runs, for so long, or until told to hurry."""
        futures = [one.future for one in self._attempts.values() if one.future is not None]
        if not futures:
            return
        hurry = asyncio.ensure_future(self._hurry.wait())
        everything = asyncio.ensure_future(asyncio.wait(futures, timeout=seconds))
        await asyncio.wait((hurry, everything), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        everything.cancel()
