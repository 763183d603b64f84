"""What sets itself off again comes to an end: events carry the triggers that led to them."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from fairlead import Fairlead, Settings, sync
from fairlead.actions import events
from fairlead.db.tx import Tx
from fairlead.model.event import Event
from fairlead.model.job import Source
from fairlead.model.trigger import Firing, FiringOutcome
from fairlead.store import firings
from tests import given
from tests.given import TENANT, TESTER

MOST = 3


@pytest.fixture
async def fl(settings: Settings) -> AsyncIterator[Fairlead]:
    short = Settings(database_url=settings.database_url, max_trigger_chain=MOST)
    async with Fairlead(settings=short, actor="tester") as opened:
        yield opened


async def run_out(fl: Fairlead) -> None:
    """Until nothing is left to do; a circle without an end would go on."""
    await fl.close()
    await fl.open()
    await fl.sync_schedules()
    for _ in range(10 * MOST):
        if not (await fl.tick()).ran:
            return
    raise AssertionError("it goes on and on")


async def fired(fl: Fairlead, label: str) -> list[Firing]:
    """What became of a trigger's events, oldest first."""

    async def look(tx: Tx) -> list[Firing]:
        [(trigger_id,)] = await tx.values("select id from fairlead.job_triggers where label = %s", [label])
        return (await firings.list_page(tx, trigger_id, outcome=None, before=None, limit=100))[::-1]

    return await fl.database.transact(look)


async def event_of(fl: Fairlead, event_id: UUID) -> Event:
    event, _ = await fl.database.transact(lambda tx: events.get(tx, TESTER, event_id))
    return event


async def test_a_function_that_emits_its_own_event_runs_so_many_times(fl: Fairlead) -> None:
    @fl.on("ping", tenant=TENANT, window=0, name="pong")
    async def pong() -> None:
        await fl.emit("ping", tenant=TENANT)

    await fl.emit("ping", tenant=TENANT)
    await run_out(fl)

    *made, last = await fired(fl, "pong")
    assert [one.outcome for one in made] == [FiringOutcome.ENQUEUED] * MOST
    assert (last.outcome, last.reason) == (FiringOutcome.FAILED, "circle")
    assert last.detail is not None
    assert "'pong'" in last.detail


async def test_the_same_in_a_thread_through_the_synchronous_face(settings: Settings) -> None:
    with sync.Fairlead(settings=Settings(database_url=settings.database_url, max_trigger_chain=MOST)) as fl:

        @fl.on("ping", tenant=TENANT, window=0)
        def pong() -> None:
            fl.emit("ping", tenant=TENANT)

        fl.close()
        fl.open()
        fl.sync_schedules()
        fl.emit("ping", tenant=TENANT)
        ran = sum(fl.tick().ran for _ in range(2 * MOST))

    assert ran == MOST


@pytest.mark.parametrize("how", ["emit", "enqueue", "enqueue_many"])
async def test_an_end_that_leads_to_another_end_does_so_only_so_often(fl: Fairlead, how: str) -> None:
    @fl.job
    async def work() -> None: ...

    @fl.on("more", tenant=TENANT, window=0)
    async def more() -> None: ...

    @fl.on("job.succeeded", tenant=TENANT, window=0, name="follow")
    async def follow() -> None:
        if how == "emit":
            await fl.emit("more", tenant=TENANT)
        elif how == "enqueue":
            await work.enqueue(tenant=TENANT)
        else:
            await fl.enqueue_many([{"definition": work.key, "tenant": TENANT}])

    await fl.close()
    await fl.open()
    await fl.sync_schedules()
    await work.enqueue(tenant=TENANT)
    await run_out(fl)

    assert FiringOutcome.ENQUEUED in {one.outcome for one in await fired(fl, "follow")}


async def test_a_run_that_a_function_starts_is_part_of_the_chain(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    flow.step("a", "anything")

    @fl.on("ping", tenant=TENANT, window=0)
    async def pong() -> None:
        await fl.start("w", tenant=TENANT)

    @fl.on("workflow.succeeded", tenant=TENANT, window=0)
    async def again() -> None:
        await fl.emit("ping", tenant=TENANT)

    @fl.job(key="anything")
    async def anything() -> None: ...

    await fl.emit("ping", tenant=TENANT)
    await run_out(fl)


async def test_events_that_no_job_emits_begin_a_chain_each(fl: Fairlead) -> None:
    @fl.on("ping", tenant=TENANT, window=0, name="pong")
    async def pong() -> None: ...

    for _ in range(MOST + 2):
        await fl.emit("ping", tenant=TENANT)
    await run_out(fl)

    assert {one.outcome for one in await fired(fl, "pong")} == {FiringOutcome.ENQUEUED}


async def test_an_event_says_which_job_caused_it_and_by_which_triggers(fl: Fairlead) -> None:
    told: list[Any] = []

    @fl.on("ping", tenant=TENANT, window=0, name="pong")
    async def pong(ctx: Any) -> None:
        async with fl.transaction() as tx:
            told.extend([ctx.job_id, await fl.emit("done", tenant=TENANT, tx=tx.connection)])

    await fl.emit("ping", tenant=TENANT)
    await run_out(fl)

    job_id, event_id = told
    [one] = await fired(fl, "pong")
    event = await event_of(fl, event_id)
    assert (event.caused_by, event.lineage) == (job_id, (one.trigger_id,))


async def test_what_is_not_our_library_may_say_which_job_causes_an_event(fl: Fairlead) -> None:
    async def emitted(tx: Tx) -> tuple[UUID, UUID]:
        trigger = await given.trigger(tx)
        job_id = await given.queued_job(tx, source=Source.SCHEDULE, source_ref=str(trigger.id))
        await given.set_job(tx, job_id, created_by=f"trigger:{trigger.id}")
        return trigger.id, await given.event(tx, caused_by=job_id)

    trigger_id, event_id = await fl.database.transact(emitted)
    assert (await event_of(fl, event_id)).lineage == (trigger_id,)


async def test_a_job_that_is_not_there_begins_no_chain(fl: Fairlead) -> None:
    event_id = await fl.emit("done", tenant=TENANT, caused_by=uuid4())

    assert (await event_of(fl, event_id)).lineage == ()
