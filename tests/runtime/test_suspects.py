"""How a worker runs suspects: by themselves, and without standing in the way of others."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from fairlead.errors import DatabaseUnreachable
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Canceled, Change, Succeeded
from fairlead.runtime import finisher, suspect_turns, worker
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.worker import Worker
from fairlead.runtime.worker_attempt import WorkerAttempt
from tests.runtime.sources import EmptySource, held_job
from tests.waiting import SECONDS

LONG = 3600.0


def suspect(probation: float = LONG) -> HeldJob:
    return held_job(probation=probation)


class Source(EmptySource):
    """Hands out what the test puts there, and takes ends while it is reachable."""

    def __init__(self, *claims: list[HeldJob], suspects: Sequence[HeldJob] = ()) -> None:
        self.claims = list(claims)
        self.suspects = list(suspects)
        # suspects that are only for a worker that runs nothing
        self.accused = False
        self.claim_seconds = 0.0
        self.looks = 0
        self.reachable = True
        self.refusals = 0
        self.ends: list[tuple[Lease, Change]] = []

    async def claim(self, wanted: int) -> list[HeldJob]:
        assert wanted > 0
        await asyncio.sleep(self.claim_seconds)
        return self.claims.pop(0) if self.claims else []

    async def claim_suspect(self, *, idle: bool | None, free: int | None = None) -> list[HeldJob]:  # noqa: ARG002
        if self.accused and not idle:
            return []
        return [self.suspects.pop(0)] if self.suspects else []

    async def suspects_wait(self) -> bool:
        self.looks += 1
        return bool(self.suspects)

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        if not self.reachable:
            self.refusals += 1
            raise DatabaseUnreachable("away")
        self.ends += ends
        return await super().finish(ends)


class Clock:
    """The worker's clock, which the test can set forward, or stop."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.stopped_at: float | None = None

    def __call__(self) -> float:
        return (time.monotonic() if self.stopped_at is None else self.stopped_at) + self.ahead


class Crew:
    """A worker whose attempts run until the test ends them."""

    def __init__(self, source: Source, clock: Clock, *, lease_seconds: float) -> None:
        self.source = source
        self.clock = clock
        self.started: list[WorkerAttempt] = []
        self.worker = Worker(
            source,
            self.started.append,
            concurrency=10,
            lease_seconds=lease_seconds,
            poll_seconds=0.01,
            suspects=source,
        )
        self.worker._turns._clock = clock

    @property
    def running(self) -> list[Lease]:
        return [attempt.held.lease for attempt in self.started]

    async def until(self, look: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not look():
                await asyncio.sleep(0.005)

    async def begun(self, *jobs: HeldJob) -> None:
        await self.until(lambda: self.running == [one.lease for one in jobs])

    async def rounds(self) -> None:
        """Long enough for several polls: nothing else is known to happen."""
        looks = self.source.looks
        deadline = time.monotonic() + 0.2
        await self.until(lambda: time.monotonic() > deadline or self.source.looks > looks + 5)

    def end(self, one: HeldJob) -> None:
        [attempt] = [attempt for attempt in self.started if attempt.held is one]
        attempt.handle_end(Succeeded())

    def gave_back(self, *jobs: HeldJob) -> bool:
        return {lease for lease, _ in self.source.ends} == {one.lease for one in jobs}


@asynccontextmanager
async def crew(source: Source, *, lease_seconds: float = 60) -> AsyncIterator[Crew]:
    clock, stop = Clock(), asyncio.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "lease_clock", clock)
        made = Crew(source, clock, lease_seconds=lease_seconds)
        finishing = asyncio.create_task(made.worker.finisher.run())
        claiming = asyncio.create_task(made.worker.claim_until(stop))
        try:
            yield made
        finally:
            stop.set()
            await claiming
            finishing.cancel()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(suspect_turns, "VOLUNTEERS", 1.0)


def uncharged(change: Change) -> bool:
    return change.status is JobStatus.QUEUED and not change.charge and not change.loss


async def test_nothing_begins_beside_a_suspect_until_it_has_ended() -> None:
    one, plain = suspect(), held_job()
    async with crew(Source(suspects=[one])) as made:
        await made.begun(one)
        made.source.claims.append([plain])
        made.worker.wake()
        await made.rounds()
        assert made.running == [one.lease]
        made.end(one)
        await made.begun(one, plain)


async def test_after_its_probation_a_suspect_is_one_among_others() -> None:
    one, plain = suspect(0.05), held_job()
    async with crew(Source(suspects=[one])) as made:
        await made.begun(one)
        made.source.claims.append([plain])
        await made.begun(one, plain)


async def test_suspects_that_end_soon_follow_each_other_at_once() -> None:
    jobs = [suspect() for _ in range(50)]
    async with crew(Source(suspects=jobs)) as made:
        for number in range(1, 51):
            await made.begun(*jobs[:number])
            made.end(jobs[number - 1])
        await made.until(lambda: made.gave_back(*jobs))


async def test_a_suspect_begins_beside_those_that_have_settled() -> None:
    plain, one = held_job(), suspect()
    source = Source([plain])
    async with crew(source) as made:
        await made.begun(plain)
        source.suspects.append(one)
        await made.rounds()
        assert made.running == [plain.lease]
        made.clock.ahead += made.worker._turns.settling_seconds
        await made.begun(plain, one)


async def test_an_accused_one_begins_only_where_nothing_runs() -> None:
    plain, one = held_job(), suspect()
    source = Source([plain])
    source.accused = True
    async with crew(source) as made:
        await made.begun(plain)
        made.clock.ahead += made.worker._turns.settling_seconds
        source.suspects.append(one)
        looks = source.looks
        await made.until(lambda: source.looks > looks + 5)
        assert made.running == [plain.lease]
        made.end(plain)
        await made.begun(plain, one)


async def test_while_a_suspect_waits_nothing_begins_for_a_lease_at_most() -> None:
    first, second, one = held_job(), held_job(), suspect()
    source = Source([first])
    source.accused = True
    async with crew(source) as made:
        await made.begun(first)
        source.suspects.append(one)
        await made.until(lambda: made.worker._turns.is_quiet)
        source.claims.append([second])
        await made.rounds()
        assert made.running == [first.lease]
        made.clock.ahead += 60
        await made.begun(first, second)  # though the suspect still waits
        assert source.suspects == [one]


async def test_where_none_waits_suspects_are_looked_for_once_a_poll() -> None:
    source = Source(*[[held_job()] for _ in range(8)])
    async with crew(source) as made:
        made.clock.stopped_at = time.monotonic()
        await made.until(lambda: len(made.started) == 8)
        assert source.looks <= 1
        assert not made.worker._turns.is_quiet


async def test_a_suspect_that_is_given_back_on_probation_stays_one() -> None:
    one, plain = suspect(), held_job()
    async with crew(Source([plain], suspects=[one])) as made:
        await made.begun(one)
        made.started[0].released = True
        made.started[0].handle_end(Canceled())
        await made.until(lambda: made.gave_back(one))
    [(_, change)] = made.source.ends
    assert change.alone
    assert uncharged(change)


async def test_what_a_worker_stopped_for_want_of_the_database_is_given_back_uncharged() -> None:
    plain = held_job()
    source = Source([plain])
    async with crew(source) as made:
        await made.begun(plain)
        source.reachable = False
        made.started[0].lost = True
        made.started[0].handle_end(Canceled())
        await made.until(lambda: source.refusals > 2)
        assert made.worker.running == 1
        source.reachable = True
        await made.until(lambda: made.gave_back(plain))
        await made.until(lambda: made.worker.running == 0)
    [(_, change)] = source.ends
    assert change.attempt_status == "released"
    assert uncharged(change)


async def test_a_claim_that_was_answered_too_late_starts_nothing() -> None:
    """It was asked for so long ago that the lease may be over before the first heartbeat."""
    jobs = [held_job(), held_job()]
    source = Source(jobs)
    source.claim_seconds = 0.2
    async with crew(source, lease_seconds=0.3) as made:
        await made.until(lambda: made.gave_back(*jobs))
        assert made.running == []
        assert all(uncharged(change) for _, change in source.ends)
        await made.until(lambda: made.worker.running == 0)
