"""Ends are written in batches, and one that cannot be written keeps no other from it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import msgspec
import psycopg
import pytest

from fairlead import Fairlead
from fairlead.errors import DatabaseBusy
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Backoff, Change, RetryBudget, Succeeded, decide
from fairlead.runtime import finisher
from fairlead.runtime.finisher import Finisher
from fairlead.runtime.store_source import StoreSource
from tests import given
from tests.runtime.sources import EmptySource
from tests.waiting import SECONDS

DONE = decide(RetryBudget(1, 0, 0, Backoff()), Succeeded(None))


class Source(EmptySource):
    """Takes ends, but none that comes with one of these."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or DatabaseBusy("not this one")
        self.bad: set[Lease] = set()
        self.batches: list[int] = []
        self.ends: list[Change] = []

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        await asyncio.sleep(0)
        if any(lease in self.bad for lease, _ in ends):
            raise self.error
        self.batches.append(len(ends))
        self.ends += [change for _, change in ends]
        return {lease.job_id: JobStatus.SUCCEEDED for lease, _ in ends}


@asynccontextmanager
async def writing(source: Source, leases: Sequence[Lease]) -> AsyncIterator[set[Lease]]:
    """The ends of these are to be written; once the block is over, they must be."""
    written = set[Lease]()
    writer = Finisher(source, written.update, lambda: None)
    running = asyncio.create_task(writer.run())
    for lease in leases:
        writer.add(lease, DONE)
    yield written
    source.bad.clear()
    async with asyncio.timeout(SECONDS):
        await writer.wait_until_written()
    assert written == {*leases}
    running.cancel()


def new_leases(number: int) -> list[Lease]:
    return [Lease(uuid4(), 1, uuid4()) for _ in range(number)]


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("no_pauses")
async def test_an_end_that_cannot_be_written_keeps_no_other_from_it() -> None:
    source, leases = Source(), new_leases(100)
    source.bad.add(bad := leases[40])
    async with writing(source, leases) as written:
        for _ in range(10_000):  # nothing here takes time
            await asyncio.sleep(0)
        assert written == {*leases} - {bad}


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), psycopg.errors.InsufficientPrivilege("no")])
async def test_whatever_goes_wrong_nothing_is_forgotten(error: Exception) -> None:
    source, leases = Source(error), new_leases(1)
    source.bad.update(leases)
    async with writing(source, leases) as written:
        for _ in range(20):
            await asyncio.sleep(0)
        assert not written
    assert source.ends == [DONE]


async def test_an_end_that_cannot_be_kept_is_a_failure(fl: Fairlead) -> None:
    """Of one job only, and it is known."""

    class Dear(Source):
        async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
            return await stored.finish(ends)

    jobs = [await fl.submit(given.request()) for _ in range(3)]
    stored = StoreSource(fl.database, worker="w", lease_seconds=30)
    held = await stored.claim(3)
    writer = Finisher(Dear(), lambda _: None, lambda: None)
    running = asyncio.create_task(writer.run())
    for one in held:
        dear = one.lease.job_id == jobs[1].id
        writer.add(one.lease, msgspec.structs.replace(DONE, cost_cents=2**70 if dear else 1))

    async with asyncio.timeout(SECONDS):
        await writer.wait_until_written()
    running.cancel()

    assert [(await job.read()).status for job in jobs] == ["succeeded", "failed", "succeeded"]
    assert "cannot store this attempt's outcome (NumericValueOutOfRange)" in str(
        (await jobs[1].read()).last_error
    )


@pytest.mark.usefixtures("no_pauses")
async def test_what_waits_is_written_together_again_once_it_can_be() -> None:
    source, leases = Source(), new_leases(600)
    source.bad.update(leases)
    async with writing(source, leases) as written:
        for _ in range(100):
            await asyncio.sleep(0)
        assert not written
    assert len(source.batches) <= 12
