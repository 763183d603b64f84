"""What an enqueue does to other jobs of its key, and strict order."""

import json
from typing import Any
from uuid import UUID

import pytest

from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Backoff, Failed, RetryBudget, Succeeded, decide
from fairlead.store import jobs, queue, testing
from tests import given


async def limit_by_key(tx: Tx, **rule: Any) -> None:
    text = json.dumps({"pointer": "/name", "max_running": 1, **rule})
    await tx.run(
        "update fairlead.job_definitions set by_key = %s, version = version + 1 where key = 'greet'", [text]
    )


async def claim(tx: Tx, wanted: int = 10) -> dict[UUID, Any]:
    got = await queue.claim(tx, worker="w", wanted=wanted, lease_seconds=600)
    while got.again and not got.jobs:
        got = await queue.claim(tx, worker="w", wanted=wanted, lease_seconds=600)
    return {job.job_id: got.lease(job) for job in got.jobs}


async def statuses(tx: Tx, *ids: UUID) -> list[str]:
    found: dict[UUID, str] = dict(
        await tx.values("select id, status from fairlead.jobs where id = any(%s)", [list(ids)])
    )
    return [found[one] for one in ids]


async def test_the_next_job_of_a_key_starts_when_one_has_ended(tx: Tx) -> None:
    await limit_by_key(tx)
    one, two, three = [await given.queued_job(tx) for _ in range(3)]
    other = await given.queued_job(tx, payload={"name": "Bob"})
    first = await claim(tx)
    assert set(first) == {one, other}
    assert await claim(tx) == {}
    await queue.finish(tx, [(first[one], decide(RetryBudget(3, 0, 0, Backoff()), Succeeded()))], actor="w")
    assert set(await claim(tx)) == {two}
    assert await jobs.cancel_queued(tx, three)
    assert await jobs.list_inconsistencies(tx) == []


async def test_drop_new(tx: Tx) -> None:
    await limit_by_key(tx, strategy="drop_new")
    one = await given.queued_job(tx)
    assert await given.queued_job(tx) == one
    [lease] = (await claim(tx)).values()
    assert await given.queued_job(tx) == one
    await queue.finish(tx, [(lease, decide(RetryBudget(3, 0, 0, Backoff()), Succeeded()))], actor="w")
    assert await given.queued_job(tx) != one


async def test_replace_queued(tx: Tx) -> None:
    await limit_by_key(tx, strategy="replace_queued")
    one = await given.queued_job(tx)
    await claim(tx)
    two = await given.queued_job(tx)
    await claim(tx)  # it is held back now
    three = await given.queued_job(tx)
    assert await statuses(tx, one, two, three) == ["running", "canceled", "queued"]
    four = await given.queued_job(tx)
    assert await statuses(tx, one, three, four) == ["running", "canceled", "queued"]
    assert await jobs.list_inconsistencies(tx) == []


async def test_cancel_running(tx: Tx) -> None:
    await limit_by_key(tx, strategy="cancel_running")
    one = await given.queued_job(tx)
    [lease] = (await claim(tx)).values()
    two = await given.queued_job(tx)
    [(asked,)] = await tx.values(
        "select cancel_requested_at is not null from fairlead.jobs where id = %s", [one]
    )
    assert asked
    assert await claim(tx) == {}
    done = await queue.finish(
        tx, [(lease, decide(RetryBudget(3, 0, 0, Backoff()), Failed("Canceled", "")))], actor="w"
    )
    assert done == {one: JobStatus.CANCELED}
    assert set(await claim(tx)) == {two}


@pytest.mark.parametrize("fifo", [True, False])
async def test_in_strict_order_a_retry_blocks_its_key(tx: Tx, *, fifo: bool) -> None:
    await limit_by_key(tx, fifo=fifo)
    one, two, three = [await given.queued_job(tx, priority=100 - n) for n in range(3)]
    first = await claim(tx, 1)
    assert set(first) == ({one} if fifo else {three})
    [(job, lease)] = first.items()
    await queue.finish(
        tx, [(lease, decide(RetryBudget(3, 0, 0, Backoff(base_seconds=60)), Failed("E", "m")))], actor="w"
    )
    after = await claim(tx)
    assert set(after) == (set() if fifo else {two})
    assert await jobs.list_inconsistencies(tx) == []
    if fifo:
        await testing.make_all_due(tx)
        await queue.stage_due(tx)
        [(again, lease)] = (await claim(tx)).items()
        assert again == job
        await queue.finish(tx, [(lease, decide(RetryBudget(3, 0, 0, Backoff()), Succeeded()))], actor="w")
        assert set(await claim(tx)) == {two}
