"""Deadlines of waits: an event that was stored in time is received, also if no scheduler has dispatched it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from fairlead import Context, Fairlead
from fairlead.actions import dispatch, durable
from fairlead.db.arrays import UuidArray
from fairlead.db.tx import Tx
from fairlead.model.durable import NewWait, Place, StepKind, StepRecord, StepStatus
from fairlead.model.job import Lease
from fairlead.store import durable as steps
from fairlead.store import tenants
from tests import given
from tests.given import TENANT
from tests.plans import count_rows, read_scans
from tests.test_durable import waiting
from tests.waiting import SECONDS
from tests.working import ended, start, working

HOUR = 3600.0
FIRST, SECOND = Place("", 0), Place("", 1)


async def tenant_of(tx: Tx) -> UUID:
    return (await tenants.get_ids(tx, [TENANT]))[TENANT]


async def begin(
    tx: Tx, lease: Lease, place: Place = FIRST, *, lookback: float | None = None, **where: Any
) -> StepRecord:
    wait = NewWait(place=place, kind=StepKind.EVENT, name=given.EVENT, seconds=HOUR, request={"where": where})
    begun = await durable.begin_event_wait(tx, lease, await tenant_of(tx), wait, lookback=lookback)
    assert begun is not None
    return begun


async def end_time(tx: Tx) -> None:
    """The deadlines of all waits pass now."""
    await tx.run("update fairlead.job_steps set due_at = clock_timestamp() where status = 'waiting'")


async def give_up(tx: Tx, lease: Lease, place: Place = FIRST, *, lookback: float | None = None) -> StepRecord:
    ended_wait = await durable.give_up_event_wait(
        tx, lease, await tenant_of(tx), place, given.EVENT, lookback=lookback
    )
    assert ended_wait is not None
    return ended_wait


async def dispatch_all(tx: Tx) -> None:
    await dispatch.dispatch(tx, given.catalog(), limit=10, patience_seconds=600)


async def test_an_event_that_was_stored_in_time_is_received_once(tx: Tx) -> None:
    lease = await given.claimed_job(tx)
    assert (await begin(tx, lease, n=1)).status is StepStatus.WAITING
    await given.event(tx, data={"n": 0})
    event_id = await given.event(tx, data={"n": 1, "first": True})
    await given.event(tx, data={"n": 1})
    await end_time(tx)

    received = await give_up(tx, lease)
    assert (received.status, received.result["id"]) == (StepStatus.SUCCEEDED, str(event_id))
    assert received.result["data"] == {"n": 1, "first": True}

    # neither the next wait nor the late dispatch has it again
    assert (await begin(tx, lease, SECOND, first=True)).status is StepStatus.WAITING
    await dispatch_all(tx)
    assert (await give_up(tx, lease, SECOND)).status is StepStatus.TIMEOUT


async def test_an_event_that_does_not_count_does_not_end_a_wait_whose_time_is_over(tx: Tx) -> None:
    await given.event(tx, data={"n": 1})  # before the job was enqueued
    lease = await given.claimed_job(tx)
    await begin(tx, lease, n=1)
    await given.event(tx, data={"n": 2})
    await given.event(tx, name="other", data={"n": 1})
    await end_time(tx)
    await given.event(tx, data={"n": 1})  # too late

    assert (await give_up(tx, lease)).status is StepStatus.TIMEOUT


async def test_the_time_to_look_back_counts_from_the_beginning_of_the_wait(tx: Tx) -> None:
    lease = await given.claimed_job(tx)
    await begin(tx, lease, lookback=HOUR)
    event_id = await given.event(tx)
    # two hours later: the wait began an hour after its event was stored
    await tx.run("update fairlead.job_steps set started_at = started_at - interval '2 hours'")
    await tx.run("update fairlead.events set recorded_at = recorded_at - interval '170 minutes'")
    await end_time(tx)

    received = await give_up(tx, lease, lookback=HOUR)
    assert (received.status, received.result["id"]) == (StepStatus.SUCCEEDED, str(event_id))


async def test_a_lost_attempt_does_not_give_up(tx: Tx) -> None:
    lease = await given.claimed_job(tx)
    await begin(tx, lease)
    await end_time(tx)
    await given.lose_leases(tx)
    assert (
        await durable.give_up_event_wait(tx, lease, await tenant_of(tx), FIRST, given.EVENT, lookback=None)
        is None
    )


async def test_many_stored_events_are_compared_page_by_page(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PAGE", 2)
    lease = await given.claimed_job(tx)
    await begin(tx, lease, n=4)
    for number in range(6):
        await given.event(tx, data={"n": number})
    await end_time(tx)
    assert (await give_up(tx, lease)).result["data"] == {"n": 4}


async def test_only_the_newest_stored_events_are_compared(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PAGE", 2)
    monkeypatch.setattr(durable, "MOST_EARLIER", 4)
    lease = await given.claimed_job(tx)
    await begin(tx, lease, n=1)
    await begin(tx, lease, SECOND, n=2)
    for number in range(6):
        await given.event(tx, data={"n": number})
    await end_time(tx)
    assert (await give_up(tx, lease)).status is StepStatus.TIMEOUT
    assert (await give_up(tx, lease, SECOND)).result["data"] == {"n": 2}


async def test_the_number_of_pages_is_bounded(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = 0

    async def list_page(*_: object, **__: object) -> list[steps.StoredEvent]:
        nonlocal pages
        pages += 1
        assert pages <= 20
        return [event] * steps.PAGE

    monkeypatch.setattr(steps, "list_undispatched_events", list_page)
    lease = await given.claimed_job(tx)
    await begin(tx, lease, n=1)
    event = steps.StoredEvent(uuid7(), given.EVENT, {"n": 0}, datetime.now(UTC))
    await end_time(tx)
    assert (await give_up(tx, lease)).status is StepStatus.TIMEOUT
    assert pages == 20


async def test_a_page_of_stored_events_reads_none_of_other_names(tx: Tx) -> None:
    lease = await given.claimed_job(tx)
    await begin(tx, lease, n=1)
    tenant_id = await tenant_of(tx)
    await store_events(tx, tenant_id, given.EVENT, 5)
    await store_events(tx, tenant_id, "other", 3000)
    await end_time(tx)
    # as a server that has run for a while: it has counted the rows
    await tx.run("analyze fairlead.events, fairlead.events_waiting")
    # the rest of the transaction has its settings for the planner
    assert (await give_up(tx, lease)).status is StepStatus.TIMEOUT
    values = {
        "tenant_id": tenant_id,
        "name": given.EVENT,
        "job_id": lease.job_id,
        "branch": "",
        "position": 0,
        "jobs": UuidArray([lease.job_id]),
        "lookback": None,
        "place": None,
        "newest": durable.MOST_EARLIER,
        "limit": steps.PAGE,
    }
    query = steps.sql.undispatched_events.replace("<counts>", steps.sql.counts)

    read = await read_scans(tx, query, values, "events", "events_waiting")

    assert [node for node in read if count_rows(node) > 5] == []


async def store_events(tx: Tx, tenant_id: UUID, name: str, number: int) -> None:
    """Events that no scheduler has dispatched."""
    values = {"ids": UuidArray(uuid7() for _ in range(number)), "tenant": tenant_id, "name": name}
    await tx.run(
        "with event as (insert into fairlead.events (id, tenant_id, name, data) "
        "select id, %(tenant)s, %(name)s, '{}' from unnest(%(ids)s::uuid[]) id returning id, tenant_id) "
        "insert into fairlead.events_waiting (event_id, tenant_id) select id, tenant_id from event",
        values,
    )


async def make_due(fl: Fairlead) -> None:
    async def change(tx: Tx) -> None:
        await end_time(tx)
        await tx.run("update fairlead.later set due_at = clock_timestamp()")
        await tx.run(
            "update fairlead.job_records set scheduled_for = clock_timestamp() where status = 'queued'"
        )
        tx.notify("ready")

    await fl.database.transact(change)


async def test_without_a_scheduler_a_function_gets_the_event_that_was_stored_in_time(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def wait(ctx: Context) -> Any:
        first = await ctx.wait_for_event("paid", where={"n": 1}, timeout=timedelta(days=1))
        second = await ctx.wait_for_event("paid", where={"n": 1}, timeout=timedelta(days=1))
        return [first and first.data, second and second.data]

    job = await start(fl, wait)
    async with working(fl):
        await waiting(fl, job)
        await fl.emit("paid", data={"n": 1}, tenant=TENANT)
        await make_due(fl)
        async with asyncio.timeout(SECONDS):
            while len(await fl.steps(job.id)) < 2:
                await asyncio.sleep(0.02)
        await waiting(fl, job)
        await fl.database.transact(
            lambda tx: dispatch.dispatch(tx, fl.catalog, limit=10, patience_seconds=600)
        )
        await make_due(fl)
        assert (await ended(job)).output == [{"n": 1}, None]
