"""Schedules, events and windows in the database: what is due is found by index, and races have one winner."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec
import pytest
from uuid_utils.compat import uuid7

from fairlead import Settings
from fairlead.actions.dispatch import dispatch
from fairlead.actions.schedule_firing import fire_due
from fairlead.db.database import Database
from fairlead.db.tx import Tx, UniqueViolation
from fairlead.errors import DatabaseUnreachable
from fairlead.model.trigger import FiringOutcome, Trigger
from fairlead.store import events, firings, triggers
from fairlead.store.events import NO_TURN
from fairlead.store.firings import NewFiring, Window, WindowClaim
from tests import given
from tests.store.test_claim_flat import cost, is_flat, tidy
from tests.waiting import SECONDS

DUE = 100
MANY = 10_000

LATER = """
insert into fairlead.job_triggers (tenant_id, label, trigger_type, every_seconds, start_at, definition_id, next_fire_at)
select g.tenant_id, 'later', 'schedule', 3600, now(), g.definition_id, now() + n * interval '1 minute'
from generate_series(60, %(many)s + 60) n, (select * from fairlead.job_triggers limit 1) g
"""
NOW = """
insert into fairlead.job_triggers (tenant_id, label, trigger_type, every_seconds, start_at, definition_id, next_fire_at)
select g.tenant_id, 'now', 'schedule', 3600, now(), g.definition_id, now()
from generate_series(1, %(due)s) n, (select * from fairlead.job_triggers limit 1) g
"""


# What is due


async def found(tx: Tx) -> None:
    assert len(await triggers.lock_due(tx, limit=10 * DUE)) == DUE


async def next_one(tx: Tx) -> None:
    seconds = await triggers.seconds_until_due(tx)
    assert seconds is not None
    assert seconds <= 0


async def a_round(tx: Tx) -> None:
    assert await fire_due(tx, given.catalog(), limit=10 * DUE, grace_seconds=3600) == DUE


async def test_a_round_costs_what_is_due_and_not_what_there_is(settings: Settings) -> None:
    """Ten thousand schedules of which a hundred are due; more are asked for than there are."""
    works = [(found, DUE), (next_one, 1), (a_round, 2 * DUE)]
    async with Database(str(settings.database_url), replace(settings, pool_size=1)) as db:
        async with db.transaction() as tx:
            await given.trigger(tx, cron_expr="0 0 1 1 *")
            await tx.run(NOW, {"due": DUE})
        await tidy(settings, analyze=True)
        small = [await cost(db, work) for work, _ in works]
        await db.transact(lambda tx: tx.run(LATER, {"many": MANY}))
        for (work, rows), before in zip(works, small, strict=True):
            assert is_flat(before, after := await cost(db, work), rows), (before, after, "old plans")
    await tidy(settings, analyze=True)
    async with Database(str(settings.database_url), replace(settings, pool_size=1)) as db:
        for (work, rows), before in zip(works, small, strict=True):
            assert is_flat(before, after := await cost(db, work), rows), (before, after, "new plans")


async def waiting(tx: Tx) -> None:
    assert len(await events.take_waiting(tx, after=NO_TURN, limit=1000, patience_seconds=600)) == DUE


async def test_taking_events_costs_what_waits_and_not_what_was_put_off_or_is_over(settings: Settings) -> None:
    grow = """
        with old as (
            insert into fairlead.events (tenant_id, name, data, dispatched_at)
            select id, 'old', '{}', now() from fairlead.tenants, generate_series(1, 5000) where slug = 'acme'
            returning id, tenant_id
        )
        insert into fairlead.events_waiting (event_id, tenant_id, due_at)
        select id, tenant_id, now() + interval '1 minute' from old
    """
    async with Database(str(settings.database_url), replace(settings, pool_size=1)) as db:
        async with db.transaction() as tx:
            for _ in range(DUE):
                await given.event(tx)
        await tidy(settings, analyze=True)
        before = await cost(db, waiting)
        await db.transact(lambda tx: tx.run(grow))
        await tidy(settings, analyze=True)
        assert is_flat(before, after := await cost(db, waiting), 5 * DUE), (before, after)


# Who fires


async def test_what_one_has_in_hand_the_other_does_not_find(db: Database) -> None:
    first, second = [await given.due_trigger(db) for _ in range(2)]
    async with db.transaction() as one, db.transaction() as other:
        [held] = await triggers.lock_due(one, limit=1)
        [left] = await triggers.lock_due(other, limit=10)
        assert {held.id, left.id} == {first.id, second.id}


async def test_the_database_admits_one_record_for_a_slot(tx: Tx) -> None:
    trigger = await given.trigger(tx)
    record = NewFiring(
        trigger_id=trigger.id,
        tenant_id=trigger.tenant_id,
        slot="x",
        outcome=FiringOutcome.SKIPPED,
        reason="test",
    )
    await firings.add(tx, [record])

    with pytest.raises(UniqueViolation):
        async with tx.connection.transaction():
            await firings.add(tx, [msgspec.structs.replace(record, id=uuid7())])


async def _fire_due(tx: Tx) -> None:
    assert await fire_due(tx, given.catalog(), limit=10, grace_seconds=60) == 1


async def _dispatch(tx: Tx) -> None:
    assert await dispatch(tx, given.catalog(), limit=10) == 1


async def _stands(tx: Tx) -> list[object]:
    """All that a firing changes."""
    tables = (
        "trigger_firings",
        "job_records",
        "ready",
        "active_keys",
        "dedupe_windows",
        "events_waiting",
        "audit_log",
    )
    counts = [await given.count(tx, table) for table in tables]
    return [
        *counts,
        *await tx.values("select next_fire_at, last_fired_at from fairlead.job_triggers order by id"),
    ]


@pytest.mark.parametrize(
    ("work", "module", "name"),
    [
        (_fire_due, firings, "add"),
        (_fire_due, triggers, "store_firings"),
        (_dispatch, firings, "take_windows"),
        (_dispatch, firings, "add"),
        (_dispatch, triggers, "mark_fired"),
        (_dispatch, events, "mark_dispatched"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
async def test_a_transaction_that_ends_in_between_leaves_nothing(
    db: Database, monkeypatch: pytest.MonkeyPatch, work: Any, module: Any, name: str
) -> None:
    async with db.transaction() as tx:
        await given.due_trigger(tx)
        await given.trigger(tx)
        await given.event(tx)
        before = await _stands(tx)
    real = getattr(module, name)

    async def dying(tx: Tx, *args: Any, **named: Any) -> None:
        await real(tx, *args, **named)
        await tx.run("select pg_terminate_backend(pg_backend_pid())")

    with monkeypatch.context() as broken:
        broken.setattr(module, name, dying)
        with pytest.raises(DatabaseUnreachable):
            await db.transact(work)

    assert await db.transact(_stands) == before
    await db.transact(work)
    assert await db.transact(_stands) != before


# Windows


def window(trigger: Trigger) -> Window:
    return Window(trigger.tenant_id, b"0" * 32)


async def take(tx: Tx, whose: Window, seconds: int = 60) -> tuple[UUID, UUID]:
    """(who asked, who has it)"""
    own = uuid7()
    return own, (await firings.take_windows(tx, {whose: WindowClaim(own, seconds)}))[whose]


async def blocked(db: Database, count: int = 1) -> None:
    """Until so many wait for a lock."""
    query = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    async with asyncio.timeout(SECONDS):
        while len(await db.transact(lambda tx: tx.values(query))) < count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("commits", [True, False])
async def test_the_second_waits_for_the_first_and_has_the_window_only_if_that_fails(
    db: Database,
    commits: bool,  # noqa: FBT001
) -> None:
    whose = window(await db.transact(given.trigger))
    async with db.transaction() as one:
        first, holder = await take(one, whose)
        assert holder == first
        waiting = asyncio.create_task(db.transact(lambda tx: take(tx, whose)))
        await blocked(db)
        assert not waiting.done()
        if not commits:
            await given.roll_back(one)
    second, holder = await waiting

    assert holder == (first if commits else second)


async def test_windows_in_opposite_order_wait_but_never_for_each_other(db: Database) -> None:
    """Somebody has the one in the middle until both are under way."""
    tenant_id = (await db.transact(given.trigger)).tenant_id
    windows = [Window(tenant_id, bytes([n]) * 32) for n in range(9)]

    async def all_of(order: list[Window]) -> set[UUID]:
        async with db.transaction() as tx:  # and not `transact`, which tries again after a deadlock
            return set(
                (await firings.take_windows(tx, {one: WindowClaim(uuid7(), 60) for one in order})).values()
            )

    async with db.transaction() as holder:
        await take(holder, windows[4])
        tasks = [asyncio.create_task(all_of(order)) for order in (windows, windows[::-1])]
        await blocked(db, 2)
        await given.roll_back(holder)
    one, other = await asyncio.gather(*tasks)

    assert one == other
    assert len(one) == len(windows)


async def test_a_window_that_is_over_is_taken_anew_by_one(db: Database) -> None:
    whose = window(await db.transact(given.trigger))
    first, _ = await db.transact(lambda tx: take(tx, whose))
    await db.transact(lambda tx: tx.run("update fairlead.dedupe_windows set expires_at = clock_timestamp()"))

    taken = await asyncio.gather(*(db.transact(lambda tx: take(tx, whose)) for _ in range(10)))

    [holder] = {holder for _, holder in taken}
    assert holder != first
    assert holder in {own for own, _ in taken}
    assert await db.transact(lambda tx: firings.find_window_holder(tx, whose)) == holder


# Retention


async def test_what_is_old_and_done_is_forgotten_and_nothing_else(tx: Tx) -> None:
    trigger = await given.trigger(tx)
    old, waiting_still, young = [await given.event(tx, data={"n": n}) for n in range(3)]
    assert await dispatch(tx, given.catalog(), limit=10) == 3
    await tx.run(
        "update fairlead.events set recorded_at = now() - interval '31 days' where id <> %s", [young]
    )
    await tx.run("update fairlead.events set dispatched_at = null where id = %s", [waiting_still])
    await tx.run(
        "update fairlead.trigger_firings set fired_at = now() - interval '31 days' where event_id = %s", [old]
    )
    whose = window(trigger)
    await take(tx, whose, seconds=60)
    await tx.run(
        "update fairlead.dedupe_windows set expires_at = now() - interval '2 hours' where hash <> %s",
        [whose.hash],
    )

    assert await events.remove_old(tx, days=30, limit=100) == 1
    assert await firings.remove_old(tx, days=30, limit=100) == 1
    assert await firings.remove_ended_windows(tx, limit=100) == 1

    assert await events.get(tx, old) is None
    assert await events.get(tx, waiting_still) is not None
    assert [
        one.event_id for one in await firings.list_page(tx, trigger.id, outcome=None, before=None, limit=9)
    ] == [
        young,
        waiting_still,
    ]
    assert await firings.find_window_holder(tx, whose) is not None
