"""What happens to durable functions beside their runs: cancels, edits, moves, retention, quotas."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from fairlead import Context, EnqueuedJob, Fairlead, JobStatus, Settings
from fairlead.actions import dispatch, durable
from fairlead.db.tx import Tx
from fairlead.model.durable import StepKind
from fairlead.store import durable as steps
from fairlead.store import quotas, retention, tenants
from tests import given
from tests.given import TENANT
from tests.store.test_retention import id_of
from tests.test_durable import ended, steps_of, waiting, working


@pytest.fixture
async def fl(settings: Settings) -> AsyncIterator[Fairlead]:
    """A Fairlead that the test opens."""
    made = Fairlead(settings=settings, actor="tester")
    yield made
    await given.no_inconsistencies(made.database)
    await made.close()


async def children_of(fl: Fairlead, job: EnqueuedJob) -> list[tuple[UUID, str]]:
    query = "select id, status::text from fairlead.jobs where parent_id = %(id)s order by id"
    found = await fl.database.single(lambda tx: tx.values(query, {"id": job.id}))
    return [(job_id, status) for job_id, status in found]


async def test_a_canceled_function_cancels_the_children_that_it_waits_for(fl: Fairlead) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @fl.job
    async def runs() -> str:
        began.set()
        await go_on.wait()
        return "ran"

    @fl.job
    async def waits() -> str:
        return "waited"

    @fl.job(durable=True)
    async def parent(ctx: Context) -> list[Any]:
        return list(await ctx.gather(ctx.call(runs), ctx.call(waits)))

    await fl.open()
    await fl.pause(definition="waits")
    job = await parent.enqueue(tenant=TENANT)
    async with working(fl):
        await waiting(fl, job)
        await began.wait()
        await fl.cancel(job.id)
        async with asyncio.timeout(60):
            while [status for _, status in await children_of(fl, job)] != ["canceled", "canceled"]:
                await asyncio.sleep(0.02)
        assert (await job.read()).status is JobStatus.CANCELED
        assert {one[-1] for one in await steps_of(fl, job)} == {"retry"}
        entries = await fl.database.single(
            lambda tx: tx.values(
                "select details ->> 'parent_id' from fairlead.audit_log where details ->> 'reason' = 'parent_canceled'"
            )
        )
        assert entries == [(str(job.id),)]

        # a retry calls them again
        go_on.set()
        await fl.resume(definition="waits")
        await fl.retry(job.id)
        assert (await ended(job)).output == ["ran", "waited"]
    assert sorted(status for _, status in await children_of(fl, job)) == [
        "canceled",
        "canceled",
        "succeeded",
        "succeeded",
    ]


async def test_a_child_for_which_another_function_waits_goes_on(fl: Fairlead) -> None:
    @fl.job
    async def shared() -> str:
        return "shared"

    @fl.job(durable=True)
    async def parent(ctx: Context) -> str:
        return str(await ctx.call(shared, dedupe_key="one"))

    await fl.open()
    await fl.pause(definition="shared")
    one, other = await parent.enqueue(tenant=TENANT), await parent.enqueue(tenant=TENANT)
    async with working(fl):
        await waiting(fl, one, other)
        await fl.cancel(one.id)
        await fl.database.transact(lambda tx: durable.settle_children(tx, limit=10))
        await fl.resume(definition="shared")
        assert (await ended(other)).output == "shared"
    assert (await one.read()).status is JobStatus.CANCELED


async def test_an_edited_function_still_hears_what_it_waits_for(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def talk(ctx: Context) -> Any:
        return (await ctx.wait_for_signal("go")).data

    await fl.open()
    job = await talk.enqueue(tenant=TENANT)
    await fl.tick()
    await fl.edit(job.id, priority=7)
    await fl.signal(job.id, "go", "heard")
    await fl.tick()
    done = await job.read()
    assert (done.output, done.priority) == ("heard", 7)


async def test_steps_and_signals_are_removed_with_their_job(tx: Tx) -> None:
    job_id = await given.waiting_function(tx, id=id_of(9))
    other = await given.waiting_function(tx)
    await durable.send_signal(tx, given.TESTER, job_id, "other")
    await tx.run("delete from fairlead.later where job_id = %s", [job_id])
    await tx.run(
        "update fairlead.job_records set status = 'succeeded', finished_at = now() - interval '9 days' where id = %s",
        [job_id],
    )

    await retention.remove(tx, days=1)

    assert await tx.values("select job_id from fairlead.job_steps") == [(other,)]
    assert await tx.values("select job_id from fairlead.job_signals") == []


async def test_results_and_signals_count_as_stored_bytes(tx: Tx) -> None:
    job_id = await given.waiting_function(tx)
    tenant_id = (await tenants.get_ids(tx, [TENANT]))[TENANT]
    await quotas.measure_bytes(tx, place=None, limit=1000)
    before = await quotas.get_stored_bytes(tx, tenant_id)

    # random, so that it cannot be compressed
    noise = "(select jsonb_agg(random()) from generate_series(1, 100))"
    await tx.run(f"update fairlead.job_steps set result = {noise} where job_id = %s", [job_id])
    await durable.send_signal(tx, given.TESTER, job_id, "other")
    await tx.run(f"update fairlead.job_signals set data = {noise}")
    await quotas.measure_bytes(tx, place=None, limit=1000)

    assert await quotas.get_stored_bytes(tx, tenant_id) > before + 2000


async def test_children_of_a_tenant_that_is_being_moved_are_left_to_its_new_cell(tx: Tx) -> None:
    child = await given.claimed_job(tx)
    await given.waiting_function(tx, kind=StepKind.CALL, name="child", child_id=child.job_id)
    await tx.run(
        "insert into fairlead.ended_children (job_id, tenant_id) select id, tenant_id from fairlead.job_records where id = %s",
        [child.job_id],
    )
    await tx.run("update fairlead.tenants set placement = 'leaving'")
    assert await durable.settle_children(tx, limit=10) == 0
    await tx.run("update fairlead.tenants set placement = 'here'")
    assert await durable.settle_children(tx, limit=10) == 1


async def test_an_attempt_reads_its_steps_only_with_its_lease(tx: Tx) -> None:
    """After a move there are none: an attempt that took this for the truth would run recorded steps again."""
    lease = await given.begun_wait(tx)
    [step] = await steps.load_steps(tx, lease) or []
    assert (step.name, step.position) == ("go", 0)

    new = await given.claimed_job(tx)
    assert await steps.load_steps(tx, new) == []

    await tx.run("update fairlead.leases set token = gen_random_uuid()")
    assert await steps.load_steps(tx, lease) is None


async def test_an_event_for_very_many_functions_is_dispatched_in_parts_and_received_once(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "MOST_WOKEN", 2)
    monkeypatch.setattr(steps, "PAGE", 2)
    jobs = [await given.waiting_function(tx, kind=StepKind.EVENT, name=given.EVENT) for _ in range(5)]
    await given.event(tx)

    left = []
    for _ in range(3):
        await dispatch.dispatch(tx, given.catalog(), limit=10, patience_seconds=600)
        [(number,)] = await tx.values("select count(*) from fairlead.job_steps where status = 'waiting'")
        left.append(number)
        # one that has received it waits for the next one
        await tx.run(
            """
            insert into fairlead.job_steps (
                job_id, branch, position, attempt_no, status, kind, name, tenant_id, started_at)
            select job_id, branch, 1, 1, 'waiting', kind, name, tenant_id, started_at from fairlead.job_steps
            where status = 'succeeded' and position = 0 and not exists (
                select from fairlead.job_steps where position = 1)
            limit 1
            """
        )
    assert left == [3, 2, 1]
    assert await given.count(tx, "events_waiting") == 0
    assert await given.count(tx, "ready") == len(jobs)
