"""Log writes: fenced by the lease, beside heartbeats and against the end of the attempt."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus
from fairlead.model.log import NewChunk
from fairlead.model.outcome import Backoff, RetryBudget, Succeeded, decide
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.store_source import StoreSource
from fairlead.store import jobs, logs, queue, rescue, testing
from fairlead.store.logs import AppendResult, NewChunks
from tests import given
from tests.waiting import SECONDS, until_somebody_waits

SUCCESS = decide(RetryBudget(1, 0, 0, Backoff()), Succeeded("x"))


@pytest.fixture
async def held(db: Database) -> HeldJob:
    await given.queued_job(db)
    [one] = await StoreSource(db, worker="w", lease_seconds=30).claim(1)
    return one


async def test_log_writes_cancels_and_heartbeats_do_not_hold_each_other_up(
    db: Database, held: HeldJob
) -> None:
    lease, job = held.lease, held.job

    async def write(tx: Tx, seq: int) -> None:
        assert await logs.append(tx, lease, job.tenant_id, [NewChunk(seq, "stdout", "text")])

    async with asyncio.timeout(SECONDS), db.transaction() as one, db.transaction() as two:
        await write(one, 1)
        assert await jobs.request_cancel(one, job.job_id)
        assert (await queue.heartbeat(two, [lease], lease_seconds=90))[lease].renewed
    async with asyncio.timeout(SECONDS), db.transaction() as one, db.transaction() as two:
        assert (await queue.heartbeat(one, [lease], lease_seconds=90))[lease].renewed
        await write(two, 2)


async def test_nothing_is_added_to_the_log_of_an_attempt_that_is_being_ended(
    db: Database, held: HeldJob
) -> None:
    lease, job = held.lease, held.job
    chunk = NewChunk(1, "stdout", "too late")
    async with db.transaction() as one:
        assert await queue.finish(one, [(lease, SUCCESS)], actor="w")
        writing = asyncio.create_task(db.single(lambda tx: logs.append(tx, lease, job.tenant_id, [chunk])))
        await until_somebody_waits(one)
    assert await writing is None
    async with db.transaction() as tx:
        assert await logs.read(tx, job.job_id, limit=9) == []


async def test_a_stale_owner_adds_nothing_to_the_log_while_the_next_attempt_runs(
    db: Database, held: HeldJob
) -> None:
    chunk = NewChunk(1, "stdout", "of an attempt that was lost")
    async with db.transaction() as tx:
        await given.end_leases(tx)
        await rescue.rescue(tx)
        await testing.make_all_due(tx)
        await queue.stage_due(tx)
    [again] = await StoreSource(db, worker="other", lease_seconds=30).claim(1)
    assert again.lease.attempt_no == 2

    async with db.transaction() as tx:
        assert await logs.append(tx, held.lease, held.job.tenant_id, [chunk]) is None
        new = NewChunks(held.lease, held.job.tenant_id, [chunk])
        assert await logs.append_all(tx, [new]) == logs.AppendResults({}, set())
        assert await logs.read(tx, held.job.job_id, limit=9) == []


async def test_an_attempt_does_not_end_while_its_log_is_being_written(db: Database, held: HeldJob) -> None:
    lease, job = held.lease, held.job
    async with db.transaction() as one:
        await logs.append(one, lease, job.tenant_id, [NewChunk(1, "stdout", "in time")])
        ending = asyncio.create_task(db.single(lambda tx: queue.finish(tx, [(lease, SUCCESS)], actor="w")))
        await until_somebody_waits(one)
    assert await ending == {lease.job_id: JobStatus.SUCCEEDED}


async def test_calls_at_once_do_not_take_an_attempts_log_past_its_bounds(db: Database, held: HeldJob) -> None:
    lease, job = held.lease, held.job

    def write(seq: int) -> Callable[[Tx], Awaitable[Any]]:
        chunk = NewChunk(seq, "stdout", "x" * 60)
        return lambda tx: logs.append(tx, lease, job.tenant_id, [chunk], max_bytes=100)

    async with db.transaction() as one:
        assert await write(1)(one) == AppendResult(1, truncated=False)
        second = asyncio.create_task(db.single(write(2)))
        await until_somebody_waits(one)
    assert await second == AppendResult(0, truncated=True)
