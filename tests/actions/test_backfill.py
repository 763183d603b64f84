"""Backfills: each instant of a past range gets its job once, all of them or none."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.actions import backfill as backfills
from fairlead.actions import definitions, tenants, triggers
from fairlead.actions.schedule_firing import fire_due
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import (
    BackfillTooLarge,
    DefinitionInactive,
    InvalidInput,
    QueueFull,
    Refused,
    TemplateFailed,
    TriggerInvalid,
)
from fairlead.model.job import Job
from fairlead.model.schedule.backfill import Backfill, BackfillPreview
from fairlead.model.trigger import Trigger
from fairlead.store import jobs, queue
from fairlead.store import triggers as stored
from tests import given
from tests.given import OTHER, TENANT, TESTER

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


async def hourly(tx: Tx, **fields: Any) -> Trigger:
    says = {
        "every_seconds": 3600,
        "start_at": MIDNIGHT,
        "payload_template": {"at": "{{schedule.scheduled_for}}"},
    }
    return await given.trigger(tx, **{**says, **fields})


async def filled(tx: Tx, trigger: Trigger, since: datetime, until: datetime | None, **more: Any) -> Backfill:
    return await backfills.backfill(tx, TESTER, given.catalog(), trigger.id, since=since, until=until, **more)


async def looked(
    tx: Tx, trigger: Trigger, since: datetime, until: datetime | None, **more: Any
) -> BackfillPreview:
    return await backfills.preview_backfill(tx, TESTER, trigger.id, since=since, until=until, **more)


async def made_by(tx: Tx, trigger: Trigger) -> list[Job]:
    """The jobs of a trigger, by their instants."""
    made = [job for job in await given.all_jobs(tx) if job.source_ref == str(trigger.id)]
    return sorted(made, key=lambda job: job.scheduled_for)


async def test_each_instant_of_the_range_gets_its_job_and_the_same_range_again_none(tx: Tx) -> None:
    trigger = await hourly(tx)
    seen = await looked(tx, trigger, MIDNIGHT + HOUR, MIDNIGHT + 4 * HOUR)

    done = await filled(tx, trigger, MIDNIGHT + HOUR, MIDNIGHT + 4 * HOUR, priority=70)
    again = await filled(tx, trigger, MIDNIGHT, MIDNIGHT + 5 * HOUR)
    once_more = await filled(tx, trigger, MIDNIGHT, MIDNIGHT + 5 * HOUR)

    instants = [MIDNIGHT + n * HOUR for n in (1, 2, 3)]
    assert [one.at for one in seen.instants] == instants
    assert (seen.count, seen.fired, seen.is_too_large, seen.jobs) == (3, 0, False, {})
    assert (done.count, done.enqueued, done.fired) == (3, 3, 0)
    assert (again.count, again.enqueued, again.fired) == (5, 2, 3)
    assert (once_more.enqueued, once_more.fired) == (0, 5)
    made = await made_by(tx, trigger)
    assert [job.scheduled_for for job in made] == [MIDNIGHT + n * HOUR for n in range(5)]
    assert [job.payload["at"] for job in made] == [(MIDNIGHT + n * HOUR).isoformat() for n in range(5)]
    assert [job.priority for job in made[1:4]] == [70, 70, 70]
    assert {job.correlation_id for job in made[1:4]} == {done.correlation_id}
    assert {job.source for job in made} == {"schedule"}
    entry, *_ = await given.audit_entries(tx, "trigger_backfilled", resource_id=str(trigger.id))
    assert (entry.actor, entry.details["from"]) == (TESTER.actor, (MIDNIGHT + HOUR).isoformat())
    assert (entry.details["to"], entry.details["enqueued"]) == ((MIDNIGHT + 4 * HOUR).isoformat(), 3)
    assert entry.details["correlation_id"] == done.correlation_id
    assert await jobs.list_inconsistencies(tx) == []


async def test_the_preview_shows_the_jobs_and_how_far_they_are(tx: Tx) -> None:
    trigger = await hourly(tx)
    await filled(tx, trigger, MIDNIGHT, MIDNIGHT + 2 * HOUR)
    first, *_ = await made_by(tx, trigger)
    await jobs.cancel_queued(tx, first.id)

    seen = await looked(tx, trigger, MIDNIGHT, MIDNIGHT + 3 * HOUR, count=2)

    assert (seen.count, seen.fired, len(seen.instants)) == (3, 2, 2)
    assert seen.instants[0].job_id == first.id
    assert seen.jobs == {"canceled": 1, "queued": 1}


async def test_an_instant_that_was_fired_is_left_alone_and_one_that_was_skipped_is_made_up_for(
    tx: Tx,
) -> None:
    trigger = await given.due_trigger(tx, instants=3, every_seconds=3600)
    await fire_due(tx, given.catalog(), limit=10, grace_seconds=60)
    start = trigger.start_at
    assert start is not None

    done = await filled(tx, trigger, start, start + HOUR)
    whole = await filled(tx, trigger, start, None)

    assert (done.count, done.enqueued) == (1, 1)  # overtaken by the latest
    assert (whole.count, whole.enqueued, whole.fired) == (3, 1, 2)
    assert len(await made_by(tx, trigger)) == 3
    assert (await filled(tx, trigger, start, None)).enqueued == 0


async def test_the_scheduler_does_not_fire_an_instant_again_that_a_backfill_fired(tx: Tx) -> None:
    trigger = await given.due_trigger(tx, instants=2, catch_up="all", overlap="allow")
    start = trigger.start_at
    assert start is not None

    done = await filled(tx, trigger, start, None)
    await fire_due(tx, given.catalog(), limit=10, grace_seconds=60)

    assert done.enqueued == 2
    assert len(await made_by(tx, trigger)) == 2
    now = await triggers.get(tx, TESTER, trigger.id)
    assert now.next_fire_at == start + 2 * HOUR


async def test_overlap_and_the_dedupe_window_do_not_hold_a_backfill_back(tx: Tx) -> None:
    trigger = await hourly(tx, payload_template={}, overlap="skip", dedupe_window_seconds=300)

    assert (await filled(tx, trigger, MIDNIGHT, MIDNIGHT + 4 * HOUR)).enqueued == 4


async def test_clock_changes_and_the_end_apply_as_when_the_schedule_fires(tx: Tx) -> None:
    trigger = await given.trigger(
        tx,
        cron_expr="30 2 * * *",
        timezone="America/New_York",
        end_at=datetime(2026, 3, 10, tzinfo=UTC),
        is_enabled=False,
    )

    seen = await looked(tx, trigger, datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 3, 15, tzinfo=UTC))

    assert [f"{one.at:%d %H:%M}" for one in seen.instants] == ["07 07:30", "08 07:00", "09 06:30"]


async def test_more_instants_than_the_limit_are_refused_with_a_code(tx: Tx) -> None:
    trigger = await given.trigger(tx, cron_expr="* * * * *")
    limit = tx.settings.max_backfill
    most = MIDNIGHT + limit * timedelta(minutes=1)

    seen = await looked(tx, trigger, MIDNIGHT, most + timedelta(minutes=1))
    with pytest.raises(BackfillTooLarge) as refused:
        await filled(tx, trigger, MIDNIGHT, most + DAY)
    done = await filled(tx, trigger, MIDNIGHT, most)

    assert (seen.count, seen.limit, seen.is_too_large) == (limit, limit, True)
    assert refused.value.code == "backfill_too_large"
    assert most.isoformat() in refused.value.message
    assert done.enqueued == limit


@pytest.mark.parametrize(
    ("since", "until", "field"),
    [
        (MIDNIGHT, MIDNIGHT, "from"),
        (MIDNIGHT + DAY, MIDNIGHT, "from"),
        (MIDNIGHT, datetime(2999, 1, 1, tzinfo=UTC), "to"),
        (MIDNIGHT.replace(tzinfo=None), None, "from"),
        (datetime(1960, 1, 1, tzinfo=UTC), None, "from"),
    ],
)
async def test_a_range_that_is_empty_or_not_in_the_past_is_refused(
    tx: Tx, since: datetime, until: datetime | None, field: str
) -> None:
    trigger = await hourly(tx)
    for act in (filled, looked):
        with pytest.raises(InvalidInput) as refused:
            await act(tx, trigger, since, until)
        assert [fault.path for fault in refused.value.faults] == [field]


async def test_a_refused_backfill_enqueues_nothing(tx: Tx) -> None:
    misfit = await hourly(tx, definition_key="greet", payload_template={"nobody": 1})
    lost = await hourly(tx, payload_template={"a": "{{schedule.nothing}}"})
    off = await hourly(tx)
    full = await hourly(tx)
    event = await given.trigger(tx)

    async def refuse(error: type[Refused], trigger: Trigger) -> None:
        before = await given.count(tx, "trigger_firings"), await given.count(tx, "job_records")
        with pytest.raises(error):
            async with tx.connection.transaction():
                await filled(tx, trigger, MIDNIGHT, MIDNIGHT + 3 * HOUR)
        assert (await given.count(tx, "trigger_firings"), await given.count(tx, "job_records")) == before

    await refuse(Refused, misfit)
    await refuse(TemplateFailed, lost)
    await refuse(TriggerInvalid, event)
    await tenants.change(tx, TESTER, TENANT, {"quotas": {"queued_jobs": 2}})
    await refuse(QueueFull, full)
    await definitions.patch(tx, TESTER, "anything", {"is_active": False})
    await refuse(DefinitionInactive, off)


async def test_a_backfill_takes_turns_with_other_tenants_and_waits_behind_older_jobs_of_its_own(
    tx: Tx,
) -> None:
    older = await given.queued_job(tx, definition="anything", payload={})
    trigger = await hourly(tx)
    await filled(tx, trigger, MIDNIGHT, MIDNIGHT + 100 * HOUR)
    others = [await given.queued_job(tx, tenant=OTHER, definition="anything", payload={}) for _ in range(2)]

    claim = await queue.claim(tx, worker="w", wanted=4, lease_seconds=30)

    taken = [job.job_id for job in claim.jobs]
    assert len(taken) == 4
    assert {older, *others} <= set(taken)


async def test_backfills_and_schedulers_at_the_same_time_fire_each_instant_once(db: Database) -> None:
    async with db.transaction() as tx:
        trigger = await given.due_trigger(tx, instants=40, catch_up="all", overlap="allow")
        since = trigger.start_at or MIDNIGHT

    async def fill() -> int:
        return (await db.transact(lambda tx: filled(tx, trigger, since, None))).enqueued

    async def fire() -> int:
        return await db.transact(lambda tx: fire_due(tx, given.catalog(), limit=10, grace_seconds=60))

    await asyncio.gather(*(act() for _ in range(3) for act in (fill, fire)))

    async with db.transaction() as tx:
        made = [job.scheduled_for for job in await made_by(tx, trigger)]
        assert len(made) == len(set(made)) == 40
        now = await stored.read_clock(tx)
        assert (await filled(tx, trigger, since, now)).enqueued == 0
    await given.no_inconsistencies(db)
