"""What happens to durable functions beside their runs: cancels, edits, moves, retention, quotas."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from fairlead import Context, EnqueuedJob, Fairlead, JobStatus
from fairlead.actions import dispatch, durable
from fairlead.db.tx import Tx, json_text
from fairlead.errors import DatabaseUnreachable
from fairlead.model.durable import NewWait, StepKind
from fairlead.model.job import Lease
from fairlead.store import durable as steps
from fairlead.store import quotas, retention, tenants
from tests import given
from tests.given import OTHER, TENANT
from tests.store.test_retention import id_of
from tests.test_durable import steps_of, waiting
from tests.waiting import SECONDS
from tests.working import ended, reopen, start
from tests.working import working_and_dispatching as working


async def children_of(fl: Fairlead, job: EnqueuedJob) -> list[tuple[UUID, str]]:
    return [(one.id, one.status) for one in await given.all_jobs(fl) if one.parent_id == job.id]


@pytest.mark.thorough
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

    await reopen(fl)
    await fl.pause(definition="waits")
    job = await parent.enqueue(tenant=TENANT)
    async with working(fl):
        await waiting(fl, job)
        await began.wait()
        await fl.cancel(job.id)
        async with asyncio.timeout(SECONDS):
            while [status for _, status in await children_of(fl, job)] != ["canceled", "canceled"]:
                await asyncio.sleep(0.02)
        assert (await job.read()).status is JobStatus.CANCELED
        assert {one[-1] for one in await steps_of(fl, job)} == {"retry"}
        entries = await given.audit_entries(fl, text="parent_canceled")
        assert {one.action for one in entries} == {"JOB_CANCELED", "JOB_CANCEL_REQUESTED"}
        assert {one.details["parent_id"] for one in entries} == {str(job.id)}

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

    await reopen(fl)
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

    job = await start(fl, talk)
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
    await given.set_tenant(tx, placement="leaving")
    assert await durable.settle_children(tx, limit=10) == 0
    await given.set_tenant(tx, placement="here")
    assert await durable.settle_children(tx, limit=10) == 1


async def test_an_attempt_reads_its_steps_only_with_its_lease(tx: Tx) -> None:
    """After a move there are none: an attempt that took this for the truth would run recorded steps again."""
    lease = await given.begun_wait(tx)
    [step] = await steps.load_steps(tx, lease) or []
    assert (step.name, step.position) == ("go", 0)

    new = await given.claimed_job(tx)
    assert await steps.load_steps(tx, new) == []

    await given.lose_leases(tx)
    assert await steps.load_steps(tx, lease) is None


async def test_a_wait_that_is_over_keeps_its_result(tx: Tx) -> None:
    def complete(lease: Lease, result: str) -> Any:
        return steps.complete_waits(tx, [steps.CompletedWait(lease.job_id, "", 0, result=result)])

    timed_out = await given.begun_wait(tx)
    await steps.give_up_wait(tx, timed_out, given.WAIT)
    assert await complete(timed_out, "late") == 0
    received = await given.begun_wait(tx)
    await complete(received, "first")
    await complete(received, "second")

    found = [await steps.load_steps(tx, lease) or [] for lease in (timed_out, received)]
    assert [[(step.status, step.result) for step in of] for of in found] == [
        [("timeout", None)],
        [("succeeded", "first")],
    ]


async def test_a_child_whose_call_was_not_recorded_is_not_enqueued_twice(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the worker had died between the enqueue and the record."""
    begin_wait, failures = steps.begin_wait, [DatabaseUnreachable("the connection is lost")]

    async def fail_once(tx: Tx, lease: Lease, wait: NewWait) -> Any:
        if failures:
            raise failures.pop()
        return await begin_wait(tx, lease, wait)

    @fl.job
    async def child() -> str:
        return "built"

    @fl.job(durable=True)
    async def parent(ctx: Context) -> str:
        return str(await ctx.call(child))

    monkeypatch.setattr(steps, "begin_wait", fail_once)
    job = await start(fl, parent)
    async with working(fl):
        assert (await ended(job)).output == "built"
    assert (len(failures), len(await children_of(fl, job))) == (0, 1)


async def test_an_event_is_compared_with_very_many_waits_in_parts_and_others_have_their_turns(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "MOST_COMPARED", 2)
    monkeypatch.setattr(steps, "PAGE", 2)

    async def wait_for(tenant: str, where: dict[str, Any]) -> None:
        job_id = await given.waiting_function(tx, tenant=tenant, kind=StepKind.EVENT, name=given.EVENT)
        values = {"id": job_id, "request": json_text({"where": where})}
        await tx.run("update fairlead.job_steps set request = %(request)s where job_id = %(id)s", values)

    async def count_waiting(tenant: str) -> int:
        [(number,)] = await tx.values(
            "select count(*) from fairlead.job_steps s join fairlead.tenants t on t.id = s.tenant_id "
            "where s.status = 'waiting' and t.slug = %(tenant)s",
            {"tenant": tenant},
        )
        return int(number)

    for least in (6, 6, 6, 6, 5):
        await wait_for(TENANT, {"n": {"gte": least}})
    await wait_for(OTHER, {})
    for tenant in (TENANT, TENANT, TENANT, OTHER):
        await given.event(tx, tenant=tenant, data={"n": 5})

    rounds = []
    while await given.count(tx, "events_waiting"):
        await dispatch.dispatch(tx, given.catalog(), limit=10, patience_seconds=600)
        rounds.append((await count_waiting(TENANT), await count_waiting(OTHER)))
    assert rounds[:2] == [(5, 1), (5, 0)]
    assert rounds[-1] == (4, 0)


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
