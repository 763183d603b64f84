"""What triggers did and will do, for the strip and the list of upcoming runs."""

from datetime import timedelta

import pytest

from fairlead.actions import outlook
from fairlead.actions.schedule_firing import fire_due
from fairlead.db.tx import Tx
from fairlead.errors import Forbidden
from fairlead.model.access import Principal, Role
from fairlead.model.trigger import FiringOutcome
from fairlead.server.console.firing_strip import draw_strip
from fairlead.store import triggers
from tests import given
from tests.given import TESTER


async def test_missed_and_enqueued_runs_are_marks_before_now_and_the_next_ones_after(tx: Tx) -> None:
    made = await given.due_trigger(tx, instants=4, late=5, every_seconds=3600)
    await fire_due(tx, given.catalog(), limit=10, grace_seconds=3600)

    found = await outlook.show_outlook(tx, TESTER, [made])

    [row] = found.rows
    assert [one.outcome for one in row.fired] == [FiringOutcome.SKIPPED] * 3 + [FiringOutcome.ENQUEUED]
    assert len(row.next_runs) == 24
    [drawn] = draw_strip(found).rows
    assert [mark.kind for mark in drawn.marks] == ["missed"] * 3 + ["enqueued"] + ["next"] * 24
    assert all(mark.x + mark.width <= 50.5 for mark in drawn.marks[:4])
    assert all(mark.x > 50 for mark in drawn.marks[4:])
    assert (drawn.fired, drawn.failed) == (4, 3)


async def test_what_fires_every_minute_is_one_mark(tx: Tx) -> None:
    made = await given.trigger(tx, cron_expr="* * * * *")

    strip = draw_strip(await outlook.show_outlook(tx, TESTER, [made]))

    [mark] = strip.rows[0].marks
    assert mark.kind == "next"
    assert mark.width > 49


async def test_upcoming_runs_are_in_order_and_a_frequent_trigger_hides_no_other(tx: Tx) -> None:
    now = await triggers.read_clock(tx)
    nightly = now + timedelta(hours=10)
    await given.trigger(tx, label="minutely", cron_expr="* * * * *")
    await given.trigger(
        tx, label="nightly", cron_expr=f"{nightly.minute} {nightly.hour} * * *", timezone="UTC"
    )
    await given.trigger(tx, label="off", cron_expr="0 * * * *", is_enabled=False)
    await given.trigger(tx, label="event")

    runs = await outlook.list_upcoming(tx, TESTER)

    assert [(run.trigger.label, run.repeats is None) for run in runs] == [
        ("minutely", False),
        ("nightly", True),
    ]
    assert runs[1].at == nightly.replace(second=0, microsecond=0)
    assert [row.trigger.label for row in (await outlook.show_outlook(tx, TESTER)).rows] == [
        "minutely",
        "nightly",
    ]


async def test_other_tenants_see_nothing_and_workers_are_refused(tx: Tx) -> None:
    await given.trigger(tx, cron_expr="* * * * *")
    other = await given.tenant_id(tx, given.OTHER)

    assert await outlook.list_upcoming(tx, Principal("x", Role.TENANT_ADMIN, other)) == []
    assert not (await outlook.show_outlook(tx, Principal("x", Role.TENANT_ADMIN, other))).rows
    with pytest.raises(Forbidden):
        await outlook.list_upcoming(tx, Principal("x", Role.WORKER, other))
