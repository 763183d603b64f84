"""What a worker may not start, it gives back; and while it cannot, nothing that is dangerous starts."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest

from fairlead.errors import DatabaseUnreachable
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import MAX_LOST, Backoff, Change, Succeeded
from fairlead.runtime import finisher
from fairlead.runtime.source import Held
from fairlead.runtime.worker import Attempt, Worker
from fairlead.store.queue import Beat, Claimed, Terms, Whose

SECONDS = 30
TERMS = Terms("greet", 60, Backoff())
WHOSE = Whose(uuid4(), "acme")


def held(*, lost: int = 0) -> Held:
    job = Claimed(uuid4(), lost + 1, str(WHOSE.id), 0, {}, 3, 0, lost, None, None, WHOSE, TERMS)
    return Held(Lease(job.job_id, job.attempt_no, uuid4()), job)


def suspect() -> Held:
    return held(lost=MAX_LOST - 1)


class Source:
    """Hands out what the test puts there, and takes ends while it is reachable."""

    crowded = False

    def __init__(self, *claims: list[Held]) -> None:
        self.claims = list(claims)
        self.claim_seconds = 0.0
        self.reachable = True
        self.refusals = 0
        self.ends: list[tuple[Lease, Change]] = []

    async def claim(self, wanted: int) -> list[Held]:
        assert wanted > 0
        await asyncio.sleep(self.claim_seconds)
        return self.claims.pop(0) if self.claims else []

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, Beat]:
        raise NotImplementedError

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        if not self.reachable:
            self.refusals += 1
            raise DatabaseUnreachable("away")
        self.ends += ends
        return {lease.job_id: change.status for lease, change in ends}


class Crew:
    """A worker whose attempts run until the test ends them."""

    def __init__(self, source: Source, *, lease_seconds: float) -> None:
        self.source = source
        self.started: list[Attempt] = []
        self.worker = Worker(
            source, self.started.append, concurrency=10, lease_seconds=lease_seconds, poll_seconds=0.01
        )

    @property
    def running(self) -> list[Lease]:
        return [attempt.held.lease for attempt in self.started]

    async def until(self, look: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not look():
                await asyncio.sleep(0.005)

    def gave_back(self, *jobs: Held) -> bool:
        return {lease for lease, _ in self.source.ends} == {one.lease for one in jobs}


@asynccontextmanager
async def crew(source: Source, *, lease_seconds: float = 30) -> AsyncIterator[Crew]:
    made, stop = Crew(source, lease_seconds=lease_seconds), asyncio.Event()
    finishing = asyncio.create_task(made.worker.finisher.run())
    claiming = asyncio.create_task(made.worker.claim_until(stop))
    try:
        yield made
    finally:
        stop.set()
        await claiming
        finishing.cancel()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "PAUSE_SECONDS", 0.01)


def uncharged(change: Change) -> bool:
    return change.status is JobStatus.QUEUED and change.delay > 0 and not change.charge and not change.loss


async def test_of_suspects_one_runs_and_the_others_are_given_back_first() -> None:
    one, *others = suspects = [suspect() for _ in range(3)]
    async with crew(Source(suspects)) as made:
        await made.until(lambda: made.started)
        assert made.running == [one.lease]
        assert made.gave_back(*others)
        made.started[0].ended(Succeeded())
        await made.until(lambda: made.gave_back(*suspects))


async def test_while_suspects_cannot_be_given_back_none_of_them_starts() -> None:
    first, second, later, plain = suspect(), suspect(), suspect(), held()
    source = Source([first, second, plain])
    source.reachable = False
    async with crew(source) as made:
        await made.until(lambda: source.refusals > 2)
        source.claims.append([later])  # one alone, which would otherwise run
        await made.until(lambda: made.worker.running == 4)
        assert made.running == [plain.lease]
        source.reachable = True
        await made.until(lambda: made.gave_back(first, second, later))
        assert made.running == [plain.lease]
        assert all(uncharged(change) for _, change in source.ends)

        again = suspect()
        source.claims.append([again])  # nothing stands in its way now
        await made.until(lambda: again.lease in made.running)
        assert not made.worker.heart._until.keys() & {first.lease, second.lease, later.lease}


async def test_a_claim_that_was_answered_too_late_starts_nothing() -> None:
    """It was asked for so long ago that the lease may be over before the first heartbeat."""
    jobs = [held(), suspect()]
    source = Source(jobs)
    source.claim_seconds = 0.2
    async with crew(source, lease_seconds=0.3) as made:
        await made.until(lambda: made.gave_back(*jobs))
        assert made.running == []
        assert all(uncharged(change) for _, change in source.ends)
        assert made.worker.running == 0
