"""A worker's source, beside processes that were stopped with rows in their hands."""

import asyncio
from typing import Any

import pytest

from fairlead import Fairlead, JobStatus
from fairlead.db.tx import Tx
from fairlead.model.job import Lease
from fairlead.model.outcome import Backoff, RetryBudget, Succeeded, decide
from fairlead.runtime.finisher import Finisher
from fairlead.runtime.job_source import EndsPostponed
from fairlead.runtime.maintenance import Stager
from fairlead.runtime.store_source import StoreSource
from fairlead.store import bulk
from tests import given
from tests.runs import begun, diamond
from tests.waiting import SECONDS, eventually

DONE = decide(RetryBudget(1, 0, 0, Backoff()), Succeeded(None))


async def test_steps_of_a_run_that_another_process_holds_keep_no_others_from_ending(fl: Fairlead) -> None:
    held_run = await begun(fl, diamond(), input={"n": 1})
    await begun(fl, diamond(), input={"n": 2})
    plain = await fl.submit(given.request())
    source = StoreSource(fl.database, worker="w", lease_seconds=30, patient=False)
    held = await source.claim(3)
    ends = [(one.lease, DONE) for one in held]

    async with fl.transaction() as stopped:
        await given.hold(stopped, "run", held_run.id)
        with pytest.raises(EndsPostponed) as postponed:
            await source.finish(ends)
    left = postponed.value.left

    assert [(await fl.read(one.job_id)).workflow_run_id for one in left] == [held_run.id]
    assert postponed.value.done.keys() == {one.job_id for one, _ in ends if one not in left}
    assert (await plain.read()).status is JobStatus.SUCCEEDED
    assert set(await source.finish([end for end in ends if end[0] in left])) == {one.job_id for one in left}


async def test_the_finisher_writes_the_others_while_a_run_is_held_and_its_steps_afterwards(
    fl: Fairlead,
) -> None:
    run = await begun(fl, diamond(), input={"n": 1})
    source = StoreSource(fl.database, worker="w", lease_seconds=30, patient=False)
    written = set[Lease]()
    finisher = Finisher(source, written.update, lambda: None)
    running = asyncio.create_task(finisher.run())
    [step] = await source.claim(1)

    async with fl.transaction() as stopped:
        await given.hold(stopped, "run", run.id)
        finisher.add(step.lease, DONE)
        for _ in range(3):
            await fl.submit(given.request())
            [one] = await source.claim(1)
            finisher.add(one.lease, DONE)
            await eventually(lambda one=one: one.lease in written, "a job of no run is finished")  # type: ignore[misc]
        assert step.lease not in written

    async with asyncio.timeout(SECONDS):
        await finisher.wait_until_written()
    assert step.lease in written
    running.cancel()


async def test_a_stager_that_is_stopped_before_it_tells_holds_no_jobs(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fl.enqueue("anything", tenant=given.TENANT)
    await given.wait_again(fl)
    told: list[Any] = []

    async def stopped(tx: Tx, what: str) -> None:
        other = StoreSource(fl.database, worker="other", lease_seconds=30)
        told.append((what, len(await other.claim(1))))

    monkeypatch.setattr(bulk, "notify", stopped)

    await Stager(fl.database, 60)()

    assert told == [("ready", 1)]
