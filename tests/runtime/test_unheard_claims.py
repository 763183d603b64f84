"""A claim whose answer is lost has taken jobs that nobody knows of: they are given back, since none of them began."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseUnreachable, FairleadError
from fairlead.model.job import Lease
from fairlead.model.outcome import Released, decide
from fairlead.runtime import store_source
from fairlead.runtime.store_source import StoreSource
from fairlead.store import jobs
from fairlead.store.queue import Claim
from tests import given
from tests.waiting import until_somebody_waits


class Deaf:
    """A database whose answers to claims can be lost after they were given."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.settings = database.settings
        self.lose = 0

    async def single(self, work: Callable[[Tx], Awaitable[Any]]) -> Any:
        answer = await self._database.single(work)
        if self.lose and isinstance(answer, Claim):
            self.lose -= 1
            raise DatabaseUnreachable("the connection broke")
        return answer

    async def reach(self, work: Callable[[Tx], Awaitable[Any]]) -> Any:
        return await self._database.reach(work)


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_source, "LOOK_AGAIN_SECONDS", 0.0)


def source_of(database: Any) -> StoreSource:
    return StoreSource(database, worker="w", lease_seconds=30)


async def test_a_job_whose_claim_went_unheard_three_times_runs_and_is_not_charged(db: Database) -> None:
    job_id = await given.queued_job(db)
    deaf = Deaf(db)
    source = source_of(deaf)
    for _ in range(3):
        deaf.lose = 1
        with pytest.raises(FairleadError):
            await source.claim(1)
        await source.release_unanswered()

    [held] = await source.claim(1)

    assert held.lease.job_id == job_id
    async with db.transaction() as tx:
        job = await given.read_job(tx, job_id)
        attempts = await jobs.list_attempts(tx, job_id)
    assert (job.lost_count, job.failure_count) == (0, 0)
    assert [one.status for one in attempts] == ["released"] * 3 + ["running"]


async def test_the_next_claim_gives_back_what_the_last_one_took_unheard(db: Database) -> None:
    taken = [await given.queued_job(db) for _ in range(3)]
    deaf = Deaf(db)
    source = source_of(deaf)
    deaf.lose = 1
    with pytest.raises(FairleadError):
        await source.claim(2)

    held = await source.claim(3)

    assert sorted(one.lease.job_id for one in held) == sorted(taken)


async def test_a_claim_that_is_committed_late_is_found_when_it_is(db: Database) -> None:
    """Whoever asked has given up, and the database goes on with it."""
    job_id = await given.queued_job(db)
    late: asyncio.Task[Any] | None = None

    class GivesUp(Deaf):
        async def single(self, work: Callable[[Tx], Awaitable[Any]]) -> Any:
            nonlocal late
            if late is None:
                late = asyncio.create_task(db.single(work))
                raise DatabaseUnreachable("no answer in time")
            return await super().single(work)

    source = source_of(GivesUp(db))
    async with db.transaction() as tx:
        await tx.run("lock table fairlead.leases in share row exclusive mode")
        with pytest.raises(FairleadError):
            await source.claim(1)
        await until_somebody_waits(tx)
        await source.release_unanswered()  # nothing is there yet
    assert late is not None
    await late

    [held] = await source.claim(1)

    assert (held.lease.job_id, held.lease.attempt_no) == (job_id, 2)


async def test_what_was_heard_is_not_given_back(db: Database) -> None:
    await given.queued_job(db)
    deaf = Deaf(db)
    source = source_of(deaf)
    deaf.lose = 1
    with pytest.raises(FairleadError):
        await source.claim(1)
    [held] = await source.claim(1)

    await source.release_unanswered()

    assert await source.finish([(held.lease, decide(held.job, Released()))])


async def test_a_suspect_of_an_unheard_claim_is_given_back_as_a_suspect(db: Database) -> None:
    job_id = await given.queued_job(db)
    await given.wait_again(db, alone=True)
    deaf = Deaf(db)
    source = source_of(deaf)
    deaf.lose = 1
    with pytest.raises(FairleadError):
        await source.claim_suspect(idle=True)

    await source.release_unanswered()

    assert await source.claim(1) == []
    [held] = await source.claim_suspect(idle=True)
    assert held.lease == Lease(job_id, 2, held.lease.token)
