"""The scheduler's rounds: what is due is fired, and it says when it is needed again."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead import Settings
from fairlead.actions import firing, schedule_firing, triggers
from fairlead.actions.dispatch import dispatch
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import PayloadTooDeep
from fairlead.model.trigger import FiringOutcome, Trigger
from fairlead.runtime.trigger_loops import FOLLOW_SECONDS, Scheduler, run_triggers
from fairlead.store import firings
from fairlead.store import triggers as stored
from tests import given
from tests.acting import act
from tests.given import TESTER
from tests.waiting import SECONDS

POLL = 600.0


@pytest.fixture
def scheduler(db: Database) -> Scheduler:
    return Scheduler(db, given.catalog(), poll_seconds=POLL)


async def outcomes(db: Database, trigger: Trigger) -> list[FiringOutcome]:
    found = await act(db, firings.list_page, trigger.id, outcome=None, before=None, limit=100)
    return [one.outcome for one in found]


async def test_a_round_fires_what_is_due_and_says_when_the_next_instant_comes(
    db: Database, scheduler: Scheduler
) -> None:
    assert await scheduler() == POLL
    trigger = await db.transact(given.due_trigger)
    assert await scheduler() == 0
    assert await outcomes(db, trigger) == [FiringOutcome.ENQUEUED]
    assert await scheduler() == POLL
    soon = datetime.now(UTC) + timedelta(seconds=500)
    await db.transact(lambda tx: given.trigger(tx, every_seconds=60, start_at=soon))

    assert 0 < await scheduler() <= 500 < POLL


async def test_one_that_does_not_lead_looks_again_soon(db: Database, scheduler: Scheduler) -> None:
    trigger = await db.transact(given.due_trigger)
    async with db.transaction() as leader:
        await stored.try_to_lead(leader, patience_seconds=60)
        assert await scheduler() == FOLLOW_SECONDS
    assert await outcomes(db, trigger) == []
    assert await scheduler() == 0
    assert await outcomes(db, trigger) == [FiringOutcome.ENQUEUED]


async def test_what_somebody_changes_at_the_moment_is_waited_for_and_not_fired(
    db: Database, scheduler: Scheduler
) -> None:
    trigger = await db.transact(given.due_trigger)
    async with db.transaction() as tx:
        await triggers.change(tx, TESTER, trigger.id, {"is_enabled": False})
        assert await scheduler() == FOLLOW_SECONDS

    assert await scheduler() == POLL
    assert await outcomes(db, trigger) == []


async def test_many_schedulers_at_once_fire_each_instant_once(db: Database) -> None:
    made = [await db.transact(lambda tx: given.due_trigger(tx, instants=3, catch_up="all")) for _ in range(5)]
    schedulers = [Scheduler(db, given.catalog(), poll_seconds=POLL) for _ in range(8)]

    for _ in range(3):
        await asyncio.gather(*(one() for one in schedulers))

    for trigger in made:
        assert len(await outcomes(db, trigger)) == 3
    assert await given.count(db, "jobs") == 5


@pytest.mark.parametrize("error", [ZeroDivisionError(), PayloadTooDeep("too deep")])
async def test_after_a_round_that_failed_the_next_one_is_careful(
    db: Database, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    poison = await db.transact(lambda tx: given.due_trigger(tx, label="poison"))
    fine = await db.transact(given.due_trigger)
    real = firing.fire_all

    async def failing(tx: Tx, catalog: Any, shots: Any) -> Any:
        if any(shot.trigger.label == "poison" for shot in shots):
            raise error
        return await real(tx, catalog, shots)

    monkeypatch.setattr(schedule_firing, "fire_all", failing)
    with pytest.raises(type(error)):
        await scheduler()
    assert await scheduler() == 0

    assert await outcomes(db, poison) == [FiringOutcome.FAILED]
    assert await outcomes(db, fine) == [FiringOutcome.ENQUEUED]


async def test_a_new_schedule_is_heard_of_at_once_and_runs_at_its_second(settings: Settings) -> None:
    """Not at the next look, which is a long time off: the first one was before the second schedule was there."""
    seldom = replace(settings, poll_seconds=600)
    async with (
        Database(str(settings.database_url), seldom) as db,
        run_triggers(db, db.url),
        asyncio.timeout(SECONDS),
    ):
        for seconds in (0, 1):
            start = datetime.now(UTC) + timedelta(seconds=seconds)
            trigger = await given.trigger(db, every_seconds=3600, start_at=start)
            while not await outcomes(db, trigger):
                await asyncio.sleep(0.01)
        [one] = await act(db, firings.list_page, trigger.id, outcome=None, before=None, limit=10)
    assert one.scheduled_at == start
    assert one.fired_at >= start


@pytest.mark.parametrize(("lease", "idle"), [(3.0, "1s"), (9.0, "3s"), (30.0, "5s")])
async def test_a_round_that_is_stopped_is_ended_within_a_lease(
    settings: Settings, lease: float, idle: str
) -> None:
    shown = "show idle_in_transaction_session_timeout"
    database = Database(str(settings.database_url), replace(settings, lease_seconds=lease))
    async with database:
        scheduler = Scheduler(database, given.catalog(), poll_seconds=POLL)

        async def fire(tx: Tx) -> list[tuple[Any, ...]]:
            await scheduler._round(tx)
            return await tx.values(shown)

        async def emit(tx: Tx) -> list[tuple[Any, ...]]:
            await given.event(tx)
            assert await dispatch(tx, given.catalog(), limit=10) == 1
            return await tx.values(shown)

        # repeated if this test itself is stopped in them
        assert await database.transact(fire) == await database.transact(emit) == [(idle,)]
