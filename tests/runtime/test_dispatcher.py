"""The dispatcher's rounds: no event is lost, passed over, or in the way of others."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from fairlead.actions import dispatch, firing, tenants
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.trigger import FiringOutcome, Trigger
from fairlead.runtime import trigger_loops
from fairlead.runtime.duties import Duties
from fairlead.runtime.trigger_loops import FOLLOW_SECONDS, Dispatcher
from fairlead.store import events, firings
from fairlead.store.events import NO_TURN
from tests import given
from tests.given import TESTER
from tests.waiting import SECONDS

POLL = 10.0


@pytest.fixture
def dispatcher(db: Database) -> Dispatcher:
    return Dispatcher(db, given.catalog(), poll_seconds=POLL)


@pytest.fixture
async def trigger(db: Database) -> Trigger:
    return await db.transact(lambda tx: given.trigger(tx, dedupe_window_seconds=0))


async def seen(db: Database, trigger: Trigger) -> set[Any]:
    """The events that have their record."""
    async with db.transaction() as tx:
        found = await firings.list_page(tx, trigger.id, outcome=None, before=None, limit=1000)
    assert all(one.outcome is FiringOutcome.ENQUEUED for one in found)
    assert len({one.event_id for one in found}) == len(found)
    return {one.event_id for one in found}


async def test_a_round_dispatches_what_waits(db: Database, dispatcher: Dispatcher, trigger: Trigger) -> None:
    assert await dispatcher() == POLL
    emitted = {await db.transact(given.event) for _ in range(3)}

    assert await dispatcher() == 0

    assert await seen(db, trigger) == emitted
    assert await dispatcher() == POLL


async def test_an_event_that_is_committed_late_is_dispatched_and_one_that_is_not_never(
    db: Database, dispatcher: Dispatcher, trigger: Trigger
) -> None:
    """Its id is older than that of events long done."""
    async with db.transaction() as late, db.transaction() as failing:
        old = await given.event(late)
        lost = await given.event(failing)
        young = await db.transact(given.event)
        assert young > old
        await dispatcher()
        assert await seen(db, trigger) == {young}
        await given.roll_back(failing)

    await dispatcher()

    assert await seen(db, trigger) == {young, old}
    assert await db.transact(lambda tx: events.get(tx, lost)) is None


async def test_more_tenants_than_one_round_holds_take_turns(
    db: Database, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_loops, "BATCH", 2)
    names = [given.TENANT, given.OTHER, "globex", "initech", "wonka"]
    async with db.transaction() as tx:
        for name in names[2:]:
            await tenants.add(tx, TESTER, slug=name)
        for _ in range(6):
            for name in names:
                await given.event(tx, tenant=name)

    for _ in range(3):
        await dispatcher()

    dispatched = [event.tenant for event in await given.all_events(db) if event.dispatched_at]
    assert (len(dispatched), set(dispatched)) == (6, set(names))


async def test_what_another_has_in_hand_is_waited_for_without_haste(
    db: Database, dispatcher: Dispatcher, trigger: Trigger
) -> None:
    event_id = await db.transact(given.event)
    async with db.transaction() as other:
        await events.take_waiting(other, after=NO_TURN, limit=10, patience_seconds=60)
        assert await dispatcher() == FOLLOW_SECONDS
        await given.roll_back(other)

    assert await dispatcher() == 0
    assert await seen(db, trigger) == {event_id}


async def test_an_event_that_cannot_be_dispatched_does_not_hold_up_the_others(
    db: Database, dispatcher: Dispatcher, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [await db.transact(given.event) for _ in range(3)]
    poison = await db.transact(lambda tx: given.event(tx, data={"poison": True}))
    after = [await db.transact(given.event) for _ in range(3)]
    real = firing.fire_all

    async def failing(tx: Tx, catalog: Any, shots: Any) -> Any:
        made = await real(tx, catalog, shots)
        if any(shot.event_id == poison for shot in shots):
            raise ZeroDivisionError
        return made

    with monkeypatch.context() as broken:
        broken.setattr(dispatch, "fire_all", failing)
        async with asyncio.timeout(SECONDS):
            while (pause := await dispatcher()) == 0:
                pass
        assert await seen(db, trigger) == {*before, *after}
        [(tries, put_off)] = await db.transact(
            lambda tx: tx.values(
                "select w.tries, w.due_at - e.recorded_at from fairlead.events_waiting w "
                "join fairlead.events e on e.id = w.event_id"
            )
        )
        assert tries >= 1
        # a slow machine tries it again before there is nothing else to do
        assert put_off >= timedelta(seconds=2 ** (tries - 1)) >= timedelta(seconds=pause)

    await given.make_events_due(db)
    await dispatcher()
    assert await seen(db, trigger) == {*before, poison, *after}


async def test_it_waits_longer_each_time_but_not_for_ever(db: Database) -> None:
    event_id = await db.transact(given.event)
    for seconds in (1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300):
        async with db.transaction() as tx:
            [(before,)] = await tx.values("select clock_timestamp()")
            await events.postpone(tx, [event_id])
            left = await events.seconds_until_due(tx)
            [(due_at,)] = await tx.values("select due_at from fairlead.events_waiting")

        # it is counted from a moment between the two looks
        assert left is not None
        assert left <= seconds <= (due_at - before).total_seconds()


async def test_the_watchdog_forgets_old_events_and_firings(
    db: Database, dispatcher: Dispatcher, trigger: Trigger
) -> None:
    old, young = [await db.transact(given.event) for _ in range(2)]
    await dispatcher()
    await given.age_event(db, old, timedelta(days=31))

    await Duties(db, retention_days=30, audit_retention_days=0)()

    assert await seen(db, trigger) == {young}
    assert await db.transact(lambda tx: events.get(tx, old)) is None
    assert await db.transact(lambda tx: events.get(tx, young)) is not None
