"""Triggers as they are made, changed, fired by hand and removed: each in its tenant, each in the audit log."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlead.actions import triggers
from fairlead.actions.schedule_firing import fire_due
from fairlead.db.tx import Tx
from fairlead.errors import TriggerInvalid, TriggerUnknown
from fairlead.model.access import Principal, Role
from fairlead.model.trigger import FiringOutcome
from fairlead.store import jobs, tenants
from tests import given
from tests.given import TENANT, TESTER

NIGHTLY = {
    "label": "Nightly",
    "trigger_type": "schedule",
    "cron_expr": "0 2 * * *",
    "definition_key": "anything",
}


async def somebody(tx: Tx, role: Role, tenant: str = TENANT) -> Principal:
    return Principal("somebody", role, (await tenants.get_ids(tx, [tenant]))[tenant])


async def audited(tx: Tx, trigger_id: UUID) -> list[tuple[Any, ...]]:
    entries = await given.audit_entries(tx, resource_type="trigger", resource_id=str(trigger_id))
    return [(entry.actor, entry.action, entry.details) for entry in entries]


async def test_every_change_is_in_the_audit_log(tx: Tx) -> None:
    trigger = (await triggers.create(tx, TESTER, TENANT, NIGHTLY)).trigger
    await triggers.change(tx, TESTER, trigger.id, {"label": "Late"})
    record = await triggers.fire_now(tx, TESTER, given.catalog(), trigger.id)
    await triggers.remove(tx, TESTER, trigger.id)

    rows = await audited(tx, trigger.id)

    assert [(actor, action) for actor, action, _ in rows] == [
        ("tester", "trigger_created"),
        ("tester", "trigger_changed"),
        ("tester", "trigger_fired"),
        ("tester", "trigger_deleted"),
    ]
    assert rows[1][2]["fields"] == ["label"]
    assert rows[2][2]["job_id"] == str(record.job_id)


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({"label": "Other"}, False),
        ({"payload_template": {"a": 1}}, False),
        ({"cron_expr": "0 3 * * *"}, True),
        ({"timezone": "Asia/Kathmandu"}, True),
        ({"is_enabled": False}, True),
    ],
)
async def test_a_change_moves_the_next_run_only_where_it_says_another_time(
    tx: Tx,
    change: dict[str, Any],
    moves: bool,  # noqa: FBT001
) -> None:
    """What is due and not yet fired stays due."""
    trigger = (await triggers.create(tx, TESTER, TENANT, NIGHTLY)).trigger
    due = datetime(2026, 1, 1, 2, tzinfo=UTC)
    await given.behind(tx, trigger, due)

    changed = (await triggers.change(tx, TESTER, trigger.id, change)).trigger

    assert (changed.next_fire_at != due) is moves


@pytest.mark.parametrize(
    ("says", "warned"),
    [
        ({"catch_up": "all"}, ["catch_up"]),
        ({"catch_up": "all", "overlap": "allow"}, []),
        ({"catch_up": "one"}, []),
        ({}, []),
    ],
)
async def test_catching_up_with_each_run_that_may_not_overlap_is_warned_of(
    tx: Tx, says: dict[str, Any], warned: list[str]
) -> None:
    made = await triggers.create(tx, TESTER, TENANT, NIGHTLY | says)
    changed = await triggers.change(tx, TESTER, made.trigger.id, {"label": "Late"})

    assert [one.path for one in made.warnings] == warned
    assert changed.warnings == made.warnings


@pytest.mark.parametrize("is_enabled", [True, False])
async def test_firing_by_hand_is_one_more_and_leaves_the_schedule_alone(tx: Tx, *, is_enabled: bool) -> None:
    says = NIGHTLY | {"overlap": "allow", "is_enabled": is_enabled}
    trigger = (await triggers.create(tx, TESTER, TENANT, says)).trigger

    records = [await triggers.fire_now(tx, TESTER, given.catalog(), trigger.id) for _ in range(2)]

    assert [record.outcome for record in records] == [FiringOutcome.ENQUEUED] * 2
    assert len({record.job_id for record in records}) == 2
    assert records[0].job_id is not None
    job = await jobs.get(tx, records[0].job_id)
    assert job is not None
    assert (job.source, job.source_ref, job.created_by) == ("manual", str(trigger.id), "tester")
    now = await triggers.get(tx, TESTER, trigger.id)
    assert now.next_fire_at == trigger.next_fire_at
    assert now.last_fired_at is not None


async def test_firing_by_hand_while_its_job_runs_is_skipped_where_none_may_overlap(tx: Tx) -> None:
    trigger = await given.due_trigger(tx)
    await fire_due(tx, given.catalog(), limit=10, grace_seconds=60)

    record = await triggers.fire_now(tx, TESTER, given.catalog(), trigger.id)

    assert (record.outcome, record.reason) == (FiringOutcome.SKIPPED, "overlap")


async def test_an_event_trigger_is_not_fired_by_hand(tx: Tx) -> None:
    trigger = await given.trigger(tx)

    with pytest.raises(TriggerInvalid):
        await triggers.fire_now(tx, TESTER, given.catalog(), trigger.id)


async def test_a_removed_trigger_keeps_its_firings_and_its_jobs(tx: Tx) -> None:
    trigger = await given.due_trigger(tx)
    await fire_due(tx, given.catalog(), limit=10, grace_seconds=60)

    await triggers.remove(tx, TESTER, trigger.id)

    with pytest.raises(TriggerUnknown):
        await triggers.get(tx, TESTER, trigger.id)
    assert await given.count(tx, "trigger_firings") == 1
    assert await given.count(tx, "jobs") == 1


async def test_a_schedule_that_began_just_now_has_not_missed_its_beginning(tx: Tx) -> None:
    start = datetime.now(UTC) - timedelta(seconds=5)
    every = {"label": "x", "trigger_type": "schedule", "definition_key": "anything", "start_at": start}

    young = (await triggers.create(tx, TESTER, TENANT, every | {"every_seconds": 60})).trigger
    old = (await triggers.create(tx, TESTER, TENANT, every | {"every_seconds": 2})).trigger

    assert young.next_fire_at == start
    assert old.next_fire_at is not None
    assert old.next_fire_at == start + timedelta(seconds=6)


async def test_half_a_surrogate_pair_is_a_fault_of_its_field(tx: Tx) -> None:
    """JSON may have one, escaped; UTF-8 cannot."""
    with pytest.raises(TriggerInvalid) as refused:
        await triggers.create(tx, TESTER, TENANT, {"label": "x", "every_seconds": "\ud800"})

    assert "every_seconds" in [fault.path for fault in refused.value.faults]


@pytest.mark.parametrize("options", [5, ["priority"], "x", []])
async def test_options_that_are_no_object_are_refused(tx: Tx, options: Any) -> None:
    every = {
        "label": "x",
        "trigger_type": "schedule",
        "every_seconds": 60,
        "definition_key": "anything",
        "job_options": options,
    }
    with pytest.raises(TriggerInvalid, match="must be an object"):
        await triggers.create(tx, TESTER, TENANT, every)
