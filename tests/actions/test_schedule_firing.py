"""Instants of schedules become firings: each has one record, and one job or the reason why not."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead.actions import definitions, firing, schedule_firing, tenants, triggers
from fairlead.actions.catalog import Catalog
from fairlead.actions.firing import TriggerShot
from fairlead.actions.schedule_firing import fire_due
from fairlead.db.tx import Tx
from fairlead.errors import ScheduleInvalid
from fairlead.model.schedule.due import CHANGED, MISSED, MOST_MISSED, OVERTAKEN, TOO_MANY
from fairlead.model.schedule.spec import find_fire_time
from fairlead.model.trigger import Firing, FiringOutcome, Trigger
from fairlead.model.trigger_kinds.schedule import schedule_of_trigger
from fairlead.store import firings, jobs
from fairlead.store import triggers as stored
from tests import given
from tests.given import TENANT, TESTER

ENQUEUED, SKIPPED, FAILED = FiringOutcome.ENQUEUED, FiringOutcome.SKIPPED, FiringOutcome.FAILED
GRACE = 60.0


async def fired(tx: Tx, *, limit: int = 100, careful: bool = False) -> int:
    return await fire_due(tx, given.catalog(), limit=limit, grace_seconds=GRACE, careful=careful)


async def of(tx: Tx, trigger: Trigger) -> list[Firing]:
    """A trigger's firings, oldest first."""
    return (await firings.list_page(tx, trigger.id, outcome=None, before=None, limit=2000))[::-1]


async def outcomes(tx: Tx, trigger: Trigger) -> list[tuple[FiringOutcome, str | None]]:
    return [(one.outcome, one.reason) for one in await of(tx, trigger)]


async def reread(tx: Tx, trigger: Trigger) -> Trigger:
    return await triggers.get(tx, TESTER, trigger.id)


async def test_a_due_instant_makes_a_record_and_a_job_and_moves_on(tx: Tx) -> None:
    trigger = await given.due_trigger(
        tx, late=1, payload_template={"at": "{{schedule.scheduled_for}}", "of": "{{trigger.id}}"}
    )
    at = trigger.start_at
    assert at is not None

    assert await fired(tx) == 1

    [one] = await of(tx, trigger)
    assert (one.outcome, one.scheduled_at, one.slot) == (ENQUEUED, at, at.astimezone(UTC).isoformat())
    assert one.job_id is not None
    job = await jobs.get(tx, one.job_id)
    assert job is not None
    assert (job.source, job.source_ref, job.scheduled_for) == ("schedule", str(trigger.id), at)
    assert job.payload == {"at": at.astimezone(UTC).isoformat(), "of": str(trigger.id)}
    now = await reread(tx, trigger)
    assert (now.next_fire_at, now.last_fired_at) == (at + timedelta(hours=1), at)
    assert await fired(tx) == 0
    assert await jobs.list_inconsistencies(tx) == []


async def test_what_is_disabled_deleted_or_not_due_is_left_alone(tx: Tx) -> None:
    later = await given.trigger(tx, cron_expr="0 2 * * *")
    disabled = await given.due_trigger(tx)
    await triggers.change(tx, TESTER, disabled.id, {"is_enabled": False})
    deleted = await given.due_trigger(tx)
    await triggers.remove(tx, TESTER, deleted.id)

    assert await fired(tx) == 0

    for one in (later, disabled, deleted):
        assert await of(tx, one) == []


# Catching up


@pytest.mark.parametrize(
    ("catch_up", "late", "expected"),
    [
        ("skip", 0, [(SKIPPED, OVERTAKEN)] * 2 + [(ENQUEUED, None)]),
        ("skip", 120, [(SKIPPED, OVERTAKEN)] * 2 + [(SKIPPED, MISSED)]),
        ("one", 120, [(SKIPPED, OVERTAKEN)] * 2 + [(ENQUEUED, None)]),
        ("all", 120, [(ENQUEUED, None)] * 3),
    ],
)
async def test_missed_instants_are_caught_up_with_as_the_trigger_says(
    tx: Tx, catch_up: str, late: float, expected: Any
) -> None:
    trigger = await given.due_trigger(tx, instants=3, late=late, catch_up=catch_up, overlap="allow")

    assert await fired(tx) == 1

    assert await outcomes(tx, trigger) == expected
    assert trigger.start_at is not None
    assert [one.scheduled_at for one in await of(tx, trigger)] == [
        trigger.start_at + timedelta(hours=n) for n in range(3)
    ]


async def test_beyond_the_latest_thousand_they_share_a_record(tx: Tx) -> None:
    trigger = await given.due_trigger(tx, instants=MOST_MISSED + 500, every_seconds=60)

    await fired(tx)

    first, *rest = await of(tx, trigger)
    assert (first.outcome, first.reason, first.covers) == (SKIPPED, TOO_MANY, 500)
    assert first.scheduled_at == trigger.start_at
    assert trigger.start_at is not None
    assert first.covers_until == trigger.start_at + timedelta(minutes=499)
    assert len(rest) == MOST_MISSED
    assert rest[0].scheduled_at == trigger.start_at + timedelta(minutes=500)


# Overlap


async def test_one_job_at_a_time_unless_they_may_overlap(tx: Tx) -> None:
    single = await given.due_trigger(tx, instants=3, catch_up="all")
    many = await given.due_trigger(tx, instants=3, catch_up="all", overlap="allow")

    await fired(tx)

    assert await outcomes(tx, single) == [(ENQUEUED, None), (SKIPPED, "overlap"), (SKIPPED, "overlap")]
    assert len({one.job_id for one in await of(tx, single)}) == 1
    assert await outcomes(tx, many) == [(ENQUEUED, None)] * 3
    assert len({one.job_id for one in await of(tx, many)}) == 3


async def test_when_the_job_before_it_is_over_the_next_one_is_made(tx: Tx) -> None:
    trigger = await given.due_trigger(tx)
    await fired(tx)
    [one] = await of(tx, trigger)
    assert one.job_id is not None
    assert await jobs.cancel_queued(tx, one.job_id)
    second_ago = await stored.read_clock(tx) - timedelta(seconds=1)
    await given.set_trigger(tx, trigger.id, start_at=second_ago, next_fire_at=second_ago)

    await fired(tx)

    assert await outcomes(tx, trigger) == [(ENQUEUED, None)] * 2


# What goes wrong


async def test_a_schedule_that_cannot_make_its_job_says_so_and_goes_on(tx: Tx) -> None:
    misfit = await given.due_trigger(tx, definition_key="greet", payload_template={"name": 5})
    fine = await given.due_trigger(tx)
    stopped = await given.due_trigger(tx, definition_key="greet", payload_template={"name": "Ada"})
    await definitions.patch(tx, TESTER, "greet", {"is_active": False})

    assert await fired(tx) == 3

    assert await outcomes(tx, misfit) == [(FAILED, "definition_inactive")]
    assert await outcomes(tx, stopped) == [(FAILED, "definition_inactive")]
    assert await outcomes(tx, fine) == [(ENQUEUED, None)]
    for one in (misfit, fine, stopped):
        assert (await reread(tx, one)).next_fire_at is not None


@pytest.mark.parametrize("schedule", [{"cron_expr": "* * * * *"}, {"every_seconds": 60}])
async def test_a_schedule_whose_zone_is_gone_says_so_and_stops(tx: Tx, schedule: dict[str, Any]) -> None:
    trigger = await given.trigger(tx, **schedule)
    fine = await given.due_trigger(tx)
    at = await stored.read_clock(tx) - timedelta(seconds=30)
    await given.behind(tx, trigger, at)
    if "cron_expr" in schedule:
        await given.set_trigger(tx, trigger.id, timezone="Mars/Olympus")
    else:  # it needs the tenant's only to show the time
        await given.set_tenant(tx, given.OTHER, timezone="Mars/Olympus")
        await given.set_trigger(tx, trigger.id, start_at=at, tenant_id=await given.tenant_id(tx, given.OTHER))

    await fired(tx)

    [one] = await of(tx, trigger)
    assert (one.outcome, one.reason) == (FAILED, "timezone_unknown")
    assert "Mars/Olympus" in str(one.detail)
    assert (await reread(tx, trigger)).next_fire_at is None
    assert await outcomes(tx, fine) == [(ENQUEUED, None)]


async def test_a_failure_that_nobody_thought_of_holds_up_no_other(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = await given.due_trigger(tx, instants=2, catch_up="all", label="poison")
    fine = await given.due_trigger(tx)
    real = firing.fire_all

    async def failing(tx: Tx, catalog: Catalog, shots: Sequence[TriggerShot]) -> list[Any]:
        made = await real(tx, catalog, shots)
        if any(shot.trigger.label == "poison" for shot in shots):
            raise ZeroDivisionError
        return made

    monkeypatch.setattr(schedule_firing, "fire_all", failing)
    with pytest.raises(ZeroDivisionError):
        async with tx.connection.transaction():
            await fired(tx)

    assert await fired(tx, careful=True) == 2

    assert await outcomes(tx, poison) == [(FAILED, "internal_error")] * 2
    assert await outcomes(tx, fine) == [(ENQUEUED, None)]
    assert await given.count(tx, "jobs") == 1
    assert (await reread(tx, poison)).next_fire_at is not None
    assert await jobs.list_inconsistencies(tx) == []


async def test_a_schedule_that_cannot_even_be_reckoned_holds_up_no_other(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = await given.due_trigger(tx, label="poison")
    fine = await given.due_trigger(tx)
    real = schedule_of_trigger

    def failing(trigger: Trigger) -> Any:
        return 1 / 0 if trigger.label == "poison" else real(trigger)

    monkeypatch.setattr(schedule_firing, "schedule_of_trigger", failing)

    assert await fired(tx, careful=True) == 2

    assert await outcomes(tx, poison) == [(FAILED, "internal_error")]
    assert await outcomes(tx, fine) == [(ENQUEUED, None)]


# Schedules that change


async def test_an_instant_that_has_its_record_never_fires_again(tx: Tx) -> None:
    """A shorter interval from the same start comes by the same instants."""
    trigger = await given.due_trigger(tx, late=1, overlap="allow")
    await fired(tx)
    changed = (await triggers.change(tx, TESTER, trigger.id, {"every_seconds": 1800})).trigger
    assert changed.next_fire_at == trigger.start_at

    await fired(tx)

    assert await outcomes(tx, trigger) == [(ENQUEUED, None)]
    assert trigger.start_at is not None
    assert (await reread(tx, trigger)).next_fire_at == trigger.start_at + timedelta(minutes=30)
    assert await given.count(tx, "jobs") == 1


async def test_a_slot_has_the_same_name_whatever_zone_the_database_speaks(tx: Tx) -> None:
    await tx.run("set local timezone = 'Asia/Kathmandu'")
    trigger = await given.due_trigger(tx, instants=MOST_MISSED + 2, every_seconds=60)

    await fired(tx)

    told = await of(tx, trigger)
    assert all(one.slot.endswith("+00:00") for one in told)
    assert {datetime.fromisoformat(one.slot) for one in told} == {one.scheduled_at for one in told}


@pytest.mark.parametrize(
    ("instants", "told"),
    [
        (1, [(SKIPPED, CHANGED)]),
        (3, [(SKIPPED, CHANGED)] * 3),
        (MOST_MISSED + 2, [(SKIPPED, TOO_MANY)] + [(SKIPPED, CHANGED)] * MOST_MISSED),
    ],
)
async def test_what_had_come_of_a_schedule_is_on_record_when_it_is_changed(
    tx: Tx, instants: int, told: list[tuple[FiringOutcome, str]]
) -> None:
    trigger = await given.due_trigger(tx, instants=instants, late=1)

    changed = await triggers.change(
        tx, TESTER, trigger.id, {"every_seconds": None, "start_at": None, "cron_expr": "0 2 * * *"}
    )

    assert await outcomes(tx, trigger) == told
    assert changed.trigger.next_fire_at is not None
    assert changed.trigger.next_fire_at > await stored.read_clock(tx)
    assert await fired(tx) == 0


async def test_what_had_come_in_the_old_zone_of_the_tenant_is_on_record(tx: Tx) -> None:
    trigger = await given.trigger(tx, cron_expr="0 2 * * *")
    today = (await stored.read_clock(tx)).astimezone(UTC).replace(hour=2, minute=0, second=0, microsecond=0)
    come = [today - timedelta(days=days) for days in (2, 1)]
    await given.behind(tx, trigger, come[0])

    await tenants.change(tx, TESTER, TENANT, {"timezone": "Asia/Kathmandu"})

    records = await of(tx, trigger)
    assert [one.scheduled_at for one in records[:2]] == come
    assert {(one.outcome, one.reason) for one in records} == {(SKIPPED, CHANGED)}


async def test_a_change_that_leaves_its_instants_alone_takes_none_away(tx: Tx) -> None:
    trigger = await given.due_trigger(tx, late=1)

    await triggers.change(tx, TESTER, trigger.id, {"label": "new", "catch_up": "one"})

    assert await of(tx, trigger) == []
    assert await fired(tx) == 1
    assert await outcomes(tx, trigger) == [(ENQUEUED, None)]


async def test_an_instant_that_the_new_schedule_has_too_is_fired(tx: Tx) -> None:
    trigger = await given.due_trigger(tx, instants=3, late=1)
    assert trigger.start_at is not None
    latest = trigger.start_at + timedelta(hours=2)

    await triggers.change(tx, TESTER, trigger.id, {"start_at": latest})

    assert await fired(tx) == 1
    assert await outcomes(tx, trigger) == [(SKIPPED, CHANGED)] * 2 + [(ENQUEUED, None)]


async def test_a_schedule_whose_zone_is_gone_can_be_mended_before_it_is_fired(tx: Tx) -> None:
    trigger = await given.trigger(tx, cron_expr="0 2 * * *", timezone="UTC")
    await given.set_trigger(tx, trigger.id, timezone="Mars/Olympus")
    await given.behind(tx, trigger, await stored.read_clock(tx) - timedelta(days=1))

    await triggers.change(tx, TESTER, trigger.id, {"timezone": "UTC"})

    assert await outcomes(tx, trigger) == [(FAILED, "timezone_unknown")]


async def test_a_new_zone_of_the_tenant_moves_its_schedules(tx: Tx) -> None:
    own = await given.trigger(tx, cron_expr="0 2 * * *")
    fixed = await given.trigger(tx, cron_expr="0 2 * * *", timezone="UTC")
    paused = await given.trigger(tx, cron_expr="0 2 * * *", is_enabled=False)

    await tenants.change(tx, TESTER, TENANT, {"timezone": "Asia/Kathmandu"})

    moved = (await reread(tx, own)).next_fire_at
    assert moved is not None
    assert (moved.astimezone(UTC).hour, moved.astimezone(UTC).minute) == (20, 15)
    assert (await reread(tx, fixed)).next_fire_at == fixed.next_fire_at
    assert (await reread(tx, paused)).next_fire_at is None


# Many


async def test_a_round_sees_to_so_many_instants_and_leaves_the_rest(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_firing, "MOST_AT_ONCE", 5)
    made = [await given.due_trigger(tx, instants=3, late=10 - n, catch_up="all") for n in range(4)]

    assert await fired(tx) == 4
    assert [len(await of(tx, one)) for one in made] == [3, 3, 0, 0]
    assert await fired(tx) == 2
    assert [len(await of(tx, one)) for one in made] == [3, 3, 3, 3]


# The end


async def test_after_its_end_a_schedule_is_over(tx: Tx) -> None:
    now = await stored.read_clock(tx)
    start = now - timedelta(seconds=30)
    trigger = await given.trigger(tx, every_seconds=60, start_at=start, end_at=start + timedelta(seconds=60))
    assert (trigger.next_fire_at, trigger.is_over) == (start, False)

    await fired(tx)

    over = await reread(tx, trigger)
    assert await outcomes(tx, trigger) == [(ENQUEUED, None)]
    assert (over.next_fire_at, over.is_over, over.is_enabled) == (None, True, True)
    assert await fired(tx) == 0


async def test_a_later_end_or_none_lets_a_schedule_go_on(tx: Tx) -> None:
    now = await stored.read_clock(tx)
    start, past, future = now - timedelta(hours=9), now - timedelta(minutes=1), now + timedelta(days=2)
    made = await triggers.create(
        tx,
        TESTER,
        TENANT,
        {
            "label": "Short",
            "trigger_type": "schedule",
            "every_seconds": 86_400,
            "start_at": start,
            "end_at": past,
            "definition_key": "anything",
        },
    )
    assert (made.trigger.is_over, made.warnings) == (False, [])  # it began less than an interval ago
    await fired(tx)

    longer = (await triggers.change(tx, TESTER, made.trigger.id, {"end_at": future})).trigger
    shorter = await triggers.change(tx, TESTER, longer.id, {"end_at": past})
    endless = (await triggers.change(tx, TESTER, longer.id, {"end_at": None})).trigger

    assert (longer.is_over, endless.is_over, shorter.trigger.is_over) == (False, False, True)
    assert longer.next_fire_at == endless.next_fire_at == start + timedelta(days=1)
    assert shorter.trigger.next_fire_at is None
    assert [one.path for one in shorter.warnings] == ["end_at"]


@pytest.mark.parametrize("end", [timedelta(0), -timedelta(hours=1)])
async def test_an_end_that_is_not_after_the_start_is_refused(tx: Tx, end: timedelta) -> None:
    now = await stored.read_clock(tx)
    for start in (now, None):
        with pytest.raises(ScheduleInvalid) as refused:
            await given.trigger(tx, every_seconds=60, start_at=start, end_at=now + end)
        assert [fault.path for fault in refused.value.faults] == ["end_at"]
    trigger = await given.trigger(tx, every_seconds=60, start_at=now)
    with pytest.raises(ScheduleInvalid):
        await triggers.change(tx, TESTER, trigger.id, {"end_at": now + end})


# Jitter


async def test_with_jitter_it_fires_later_and_the_instant_stays_exact(tx: Tx) -> None:
    now = await stored.read_clock(tx)
    start = now - timedelta(hours=1)
    trigger = await given.trigger(tx, every_seconds=7200, start_at=start, jitter_seconds=7200)
    at = trigger.next_fire_at
    assert at is not None
    assert trigger.next_instant == start
    assert at == find_fire_time(schedule_of_trigger(trigger), trigger.id, start)
    # as if its time had come
    await given.set_trigger(
        tx, trigger.id, start_at=start - timedelta(days=1), next_fire_at=at - timedelta(days=1)
    )
    moved = await reread(tx, trigger)
    assert moved.next_instant == start - timedelta(days=1)

    await fired(tx)

    [*_, last] = await of(tx, trigger)
    after = await reread(tx, trigger)
    assert all(
        ((one.scheduled_at or now) - start) % timedelta(hours=2) == timedelta()
        for one in await of(tx, trigger)
    )
    assert after.next_instant == (last.scheduled_at or now) + timedelta(hours=2)
    assert after.next_fire_at == find_fire_time(schedule_of_trigger(after), trigger.id, after.next_instant)


async def test_a_change_of_the_jitter_keeps_the_instant_and_a_change_of_the_times_records_it(tx: Tx) -> None:
    now = await stored.read_clock(tx)
    start = now - timedelta(seconds=5)
    trigger = await given.trigger(tx, every_seconds=86_400, start_at=start, jitter_seconds=86_400)
    assert trigger.next_instant == start

    plain = (await triggers.change(tx, TESTER, trigger.id, {"jitter_seconds": None})).trigger
    assert (plain.next_instant, plain.next_fire_at) == (start, start)
    await triggers.change(tx, TESTER, trigger.id, {"jitter_seconds": 86_400})
    moved = await triggers.change(
        tx, TESTER, trigger.id, {"every_seconds": 43_200, "start_at": now + timedelta(days=1)}
    )

    assert await outcomes(tx, trigger) == [(SKIPPED, CHANGED)]
    assert moved.trigger.next_instant == now + timedelta(days=1)
