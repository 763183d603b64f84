"""Events become firings: one record for each trigger that an event matches, whatever becomes of it."""

from datetime import datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fairlead.actions import definitions, events, firing, triggers
from fairlead.actions import dispatch as dispatching
from fairlead.actions.dispatch import dispatch
from fairlead.db.tx import Tx
from fairlead.model.template.spec import Template
from fairlead.model.trigger import Firing, FiringOutcome, Trigger
from fairlead.store import firings, jobs
from fairlead.store import triggers as stored
from tests import given
from tests.given import OTHER, TENANT, TESTER

ENQUEUED, DEDUPLICATED, FAILED = FiringOutcome.ENQUEUED, FiringOutcome.DEDUPLICATED, FiringOutcome.FAILED


async def dispatched(tx: Tx, limit: int = 100) -> int:
    return await dispatch(tx, given.catalog(), limit=limit)


async def of(tx: Tx, trigger: Trigger) -> list[Firing]:
    """A trigger's firings, oldest first."""
    return (await firings.list_page(tx, trigger.id, outcome=None, before=None, limit=1000))[::-1]


async def payload(tx: Tx, job_id: UUID | None) -> Any:
    assert job_id is not None
    job = await jobs.get(tx, job_id)
    assert job is not None
    return job.payload


async def test_an_event_makes_a_job_of_each_trigger_that_it_matches(tx: Tx) -> None:
    one = await given.trigger(tx, payload_template={"id": "{{event.id}}", "by": "{{trigger.label}}"})
    two = await given.trigger(tx, label="Second", payload_template={"tenant": "{{tenant.slug}}"})
    other_name = await given.trigger(tx, event_name="folder.deleted")
    other_tenant = await given.trigger(tx, tenant=OTHER)
    disabled = await given.trigger(tx, is_enabled=False)
    deleted = await given.trigger(tx)
    await triggers.remove(tx, TESTER, deleted.id)
    event_id = await given.event(tx, data={"id": 7}, correlation_id="trace")

    assert await dispatched(tx) == 1

    [first] = await of(tx, one)
    [second] = await of(tx, two)
    assert (first.outcome, first.slot, first.event_id) == (ENQUEUED, str(event_id), event_id)
    assert await payload(tx, first.job_id) == {"id": 7, "by": "Rule"}
    assert await payload(tx, second.job_id) == {"tenant": TENANT}
    for silent in (other_name, other_tenant, disabled, deleted):
        assert await of(tx, silent) == []
    assert first.job_id is not None
    job = await jobs.get(tx, first.job_id)
    assert job is not None
    assert (job.source, job.source_ref, job.correlation_id) == ("event", str(event_id), "trace")
    assert job.created_by == f"trigger:{one.id}"
    event, seen = await events.get(tx, TESTER, event_id)
    assert event.dispatched_at is not None
    assert {firing.trigger_id for firing in seen} == {one.id, two.id}
    assert (await triggers.get(tx, TESTER, one.id)).last_fired_at is not None
    assert await jobs.list_inconsistencies(tx) == []


async def test_an_event_that_nothing_waits_for_is_done_too(tx: Tx) -> None:
    event_id = await given.event(tx)

    assert await dispatched(tx) == 1

    event, seen = await events.get(tx, TESTER, event_id)
    assert event.dispatched_at is not None
    assert seen == []
    assert await dispatched(tx) == 0


async def test_a_filter_decides_what_is_meant(tx: Tx) -> None:
    large = await given.trigger(tx, filter={"size": {"gt": 10}, "kind": "file"}, dedupe_window_seconds=0)
    every = await given.trigger(tx, dedupe_window_seconds=0)
    for data in ({"size": 11, "kind": "file"}, {"size": 9, "kind": "file"}, {"size": 11}, {}):
        await given.event(tx, data=data)

    assert await dispatched(tx) == 4

    assert [firing.outcome for firing in await of(tx, large)] == [ENQUEUED]
    assert [firing.outcome for firing in await of(tx, every)] == [ENQUEUED] * 4


async def test_a_filter_that_can_no_longer_be_read_is_told_and_makes_no_job(tx: Tx) -> None:
    broken = await given.trigger(tx)
    fine = await given.trigger(tx)
    await given.set_trigger(tx, broken.id, filter={"a": {"?": 1}})
    await given.event(tx)

    await dispatched(tx)

    [firing] = await of(tx, broken)
    assert (firing.outcome, firing.reason, firing.job_id) == (FAILED, "filter_invalid", None)
    assert [firing.outcome for firing in await of(tx, fine)] == [ENQUEUED]


async def test_a_place_that_finds_nothing_fails_with_its_name_and_only_there(tx: Tx) -> None:
    broken = await given.trigger(tx, payload_template={"id": "{{event.folder.id}}"})
    fine = await given.trigger(tx, payload_template={"id": "{{event.folder.id | default: 0}}"})
    await given.event(tx, data={"folder": {}})

    await dispatched(tx)

    [firing] = await of(tx, broken)
    assert (firing.outcome, firing.reason) == (FAILED, "template_failed")
    assert "event.folder.id" in str(firing.detail)
    assert [firing.outcome for firing in await of(tx, fine)] == [ENQUEUED]
    [seen] = await triggers.list_firings(tx, TESTER, broken.id, outcome=FAILED)
    assert seen == firing


async def test_a_payload_that_does_not_fit_fails_with_every_fault(tx: Tx) -> None:
    misfit = await given.trigger(
        tx, definition_key="greet", payload_template={"name": "{{event.n}}", "n": "{{event.name}}"}
    )
    fine = await given.trigger(tx, definition_key="greet", payload_template={"name": "{{event.name}}"})
    await given.event(tx, data={"name": "Ada", "n": 5})

    await dispatched(tx)

    [firing] = await of(tx, misfit)
    assert (firing.outcome, firing.reason, firing.job_id) == (FAILED, "payload_invalid", None)
    assert "/name" in str(firing.detail)
    assert "/n:" in str(firing.detail)
    assert [firing.outcome for firing in await of(tx, fine)] == [ENQUEUED]


async def test_the_payload_is_checked_against_the_definition_as_it_is_then(tx: Tx) -> None:
    trigger = await given.trigger(
        tx, definition_key="greet", payload_template={"name": "Ada"}, dedupe_window_seconds=0
    )
    catalog = given.catalog()
    await given.event(tx)
    await dispatch(tx, catalog, limit=10)
    schema = {"type": "object", "required": ["age"]}
    await definitions.patch(tx, TESTER, "greet", {"arg_schema": schema})
    await given.event(tx)

    await dispatch(tx, catalog, limit=10)

    assert [firing.outcome for firing in await of(tx, trigger)] == [ENQUEUED, FAILED]


# Windows


async def test_the_same_payload_within_the_window_makes_one_job(tx: Tx) -> None:
    trigger = await given.trigger(
        tx, payload_template={"id": "{{event.id}}", "n": "{{event.n | default: 1}}"}, dedupe_window_seconds=60
    )
    twin = await given.trigger(
        tx, payload_template={"id": "{{event.id}}", "n": "{{event.n | default: 1}}"}, dedupe_window_seconds=60
    )
    for data in ({"id": "a"}, {"id": "b"}, {"n": 1.0, "id": "a"}):
        await given.event(tx, data=data)
    assert await dispatched(tx) == 3
    await given.event(tx, data={"id": "a", "size": 3})
    assert await dispatched(tx) == 1

    first, second, third, fourth = await of(tx, trigger)

    assert [one.outcome for one in (first, second, third, fourth)] == [
        ENQUEUED,
        ENQUEUED,
        DEDUPLICATED,
        DEDUPLICATED,
    ]
    assert first.job_id == third.job_id == fourth.job_id != second.job_id
    # another trigger has windows of its own
    assert [one.outcome for one in await of(tx, twin)].count(ENQUEUED) == 2
    assert await given.count(tx, "jobs") == 4


async def test_what_could_not_make_its_job_holds_no_window(tx: Tx) -> None:
    trigger = await given.trigger(tx, definition_key="greet", payload_template={"name": 5})
    for _ in range(2):
        await given.event(tx)
    await dispatched(tx)
    assert [one.outcome for one in await of(tx, trigger)] == [FAILED, FAILED]
    assert await given.count(tx, "dedupe_windows") == 0
    await definitions.patch(tx, TESTER, "greet", {"arg_schema": {"type": "object"}})
    await given.event(tx)

    await dispatched(tx)

    assert [one.outcome for one in await of(tx, trigger)] == [FAILED, FAILED, ENQUEUED]


# Replay


async def test_a_replay_is_a_new_event_that_no_window_holds_back(tx: Tx) -> None:
    trigger = await given.trigger(tx)
    other = await given.trigger(tx)
    event_id = await given.event(tx, data={"id": 1}, correlation_id="trace")
    await dispatched(tx)

    again = await events.replay(tx, TESTER, event_id, only_trigger_id=trigger.id)
    await dispatched(tx)

    assert [one.outcome for one in await of(tx, trigger)] == [ENQUEUED, ENQUEUED]
    assert [one.event_id for one in await of(tx, trigger)] == [event_id, again]
    assert len(await of(tx, other)) == 1
    event, _ = await events.get(tx, TESTER, again)
    assert (event.replay_of, event.data, event.correlation_id) == (event_id, {"id": 1}, "trace")
    await events.replay(tx, TESTER, event_id)
    await dispatched(tx)
    assert (len(await of(tx, trigger)), len(await of(tx, other))) == (3, 2)


async def test_emitting_and_replaying_are_in_the_audit_log(tx: Tx) -> None:
    event_id = await given.event(tx)
    again = await events.replay(tx, TESTER, event_id)

    entries = await given.audit_entries(tx, resource_type="event", resource_id=str(event_id))

    assert [(entry.actor, entry.action, entry.details) for entry in entries] == [
        ("tester", "event_emitted", {"name": given.EVENT}),
        ("tester", "event_replayed", {"name": given.EVENT, "as": str(again)}),
    ]


@pytest.mark.parametrize("limit", [1, 3])
async def test_events_are_taken_oldest_first_and_so_many_at_once(tx: Tx, limit: int) -> None:
    trigger = await given.trigger(tx, payload_template={"n": "{{event.n}}"})
    for n in range(4):
        await given.event(tx, data={"n": n})

    assert await dispatched(tx, limit) == limit

    made = [await payload(tx, one.job_id) for one in await of(tx, trigger)]
    assert made == [{"n": n} for n in range(limit)]


async def test_one_that_works_for_long_is_not_taken_for_stopped(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets PostgreSQL end the transaction when it is idle for long, and says something more often than that."""
    trigger = await given.trigger(tx, dedupe_window_seconds=0)
    for _ in range(50):
        await given.event(tx)
    render, read_clock, now, spoken = Template.render, stored.read_clock, 0.0, [0.0]

    def slow(self: Template, *args: Any, **named: Any) -> Any:
        nonlocal now
        now += 0.15
        return render(self, *args, **named)

    async def speaking(tx: Tx) -> datetime:
        spoken.append(now)
        return await read_clock(tx)

    monkeypatch.setattr(Template, "render", slow)
    monkeypatch.setattr(stored, "read_clock", speaking)
    monkeypatch.setattr(firing, "time", SimpleNamespace(monotonic=lambda: now))
    assert await dispatch(tx, given.catalog(), limit=90, patience_seconds=120) == 50
    assert [one.outcome for one in await of(tx, trigger)] == [ENQUEUED] * 50
    assert now > firing.PATIENCE_SECONDS
    assert max(after - before for before, after in pairwise([*spoken, now])) < firing.PATIENCE_SECONDS / 10
    assert await tx.values("select current_setting('idle_in_transaction_session_timeout')") == [("2min",)]


async def test_no_more_is_made_at_once_than_is_affordable_and_each_tenant_has_its_turn(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in (TENANT, OTHER):
        await given.trigger(tx, tenant=tenant, payload_template={"e": "{{event}}"})
    for n in range(4):
        await given.event(tx, data={"n": n, "large": "x" * 1000})
    await given.event(tx, tenant=OTHER, data={"n": 4})
    monkeypatch.setattr(dispatching, "MOST_BYTES", 1500)

    seen = []
    while done := await dispatched(tx):
        seen.append((done, [event.data["n"] for event in await given.all_events(tx) if event.dispatched_at]))

    assert seen == [(2, [0, 4]), (1, [0, 1, 4]), (1, [0, 1, 2, 4]), (1, [0, 1, 2, 3, 4])]
    assert await given.count(tx, "jobs") == 5
    assert await given.count(tx, "events_waiting") == 0


@pytest.mark.parametrize("data", [{"large": "x" * 1000}, {"many": [{}] * 29}], ids=["bytes", "values"])
async def test_a_large_event_with_many_triggers_goes_in_parts_and_others_have_their_turns(
    tx: Tx, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]
) -> None:
    for n in range(10):
        await given.trigger(tx, label=f"t{n}", payload_template={"e": "{{event}}"})
    await given.trigger(tx, tenant=OTHER)
    large = await given.event(tx, data=data)
    await given.event(tx, tenant=OTHER)
    monkeypatch.setattr(dispatching, "MOST_BYTES", 6000)

    made = []
    while await dispatched(tx):
        tenants = [job.tenant for job in await given.all_jobs(tx)]
        made.append((tenants.count(OTHER), len(tenants)))

    assert made == [(1, 3), (1, 5), (1, 7), (1, 9), (1, 11)]
    rows = await tx.values(
        "select count(*), count(distinct trigger_id) from fairlead.trigger_firings where event_id = %(id)s",
        {"id": large},
    )
    assert rows == [(10, 10)]
    assert await given.count(tx, "events_waiting") == 0


@pytest.mark.parametrize("lock", ["limit key", "dedupe key", "debounced key"])
async def test_rounds_lock_keys_in_one_order(tx: Tx, lock: str) -> None:
    """Two rounds with the keys in opposite order would deadlock otherwise."""
    if lock == "limit key":
        by_key = {"pointer": "/c", "max_running": 1, "strategy": "replace_queued"}
        await definitions.patch(tx, TESTER, "anything", {"by_key": by_key})
    options = {"debounce": {"key": "{{event.c}}", "seconds": 60}} if lock == "debounced key" else {}
    for customer in "badc":
        await given.trigger(
            tx,
            filter={"c": customer},
            overlap="skip" if lock == "dedupe key" else "allow",
            payload_template={"c": "{{event.c}}"},
            dedupe_window_seconds=0,
            job_options=options,
        )

    async def fire(customers: str) -> list[str]:
        for customer in customers:
            await given.event(tx, data={"c": customer})
        assert await dispatched(tx) == len(customers)
        order = [job.payload["c"] for job in sorted(await given.all_jobs(tx), key=lambda job: job.queued_at)]
        await given.free_keys(tx)
        await given.forget_jobs(tx)
        return order

    assert await fire("bdca") == await fire("acdb")


async def test_a_payload_that_is_too_deep_is_told_and_holds_up_no_other(tx: Tx) -> None:
    """Also where a window is to be found for it."""
    deep: Any = "{{event}}"
    for _ in range(60):
        deep = {"k": deep}
    poison = await given.trigger(tx, payload_template=deep)
    fine = await given.trigger(tx)
    data: Any = {}
    for _ in range(50):
        data = {"k": data}
    await given.event(tx, data=data)

    assert await dispatched(tx) == 1

    assert [(one.outcome, one.reason) for one in await of(tx, poison)] == [(FAILED, "payload_too_deep")]
    assert [one.outcome for one in await of(tx, fine)] == [ENQUEUED]


async def test_a_tenant_that_emits_a_flood_delays_others_by_one_turn_at_most(tx: Tx) -> None:
    """Whichever tenant the circle begins with: each time a few of the flood go, and whatever others have."""
    for n in range(40):
        await given.event(tx, data={"n": n})
    for _ in range(3):
        single = await given.event(tx, tenant=OTHER)

        assert await dispatched(tx, limit=5) == 5

        event, _ = await events.get(tx, TESTER, single)
        assert event.dispatched_at is not None
    dispatched_ns = [event.data.get("n", 0) for event in await given.all_events(tx) if event.dispatched_at]
    assert max(dispatched_ns) == 11  # four at a time, the oldest first
    assert await dispatched(tx) == 28


async def test_events_that_are_compared_with_many_triggers_delay_others_by_one_turn_at_most(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they are the oldest or not, and however few rounds there are."""
    monkeypatch.setattr(dispatching, "MOST_COST", 8 * dispatching.RULE_COST)
    for _ in range(9):
        await given.trigger(tx, filter={"n": -1})
    await given.trigger(tx, tenant=OTHER, filter={"n": -1})
    heavy = [await given.event(tx, data={"n": n}) for n in range(3)]
    light = [await given.event(tx, tenant=OTHER, data={"n": n}) for n in range(3)]

    async def list_dispatched(ids: list[UUID]) -> int:
        return sum([(await events.get(tx, TESTER, one))[0].dispatched_at is not None for one in ids])

    await dispatched(tx)
    assert await list_dispatched(light) == 3
    for _ in range(100):  # the other tenant always has more
        if await list_dispatched(heavy) == 3:
            break
        await given.event(tx, tenant=OTHER)
        await dispatched(tx)
    assert await list_dispatched(heavy) == 3


async def test_an_event_of_many_values_that_fires_few_triggers_is_weighed_when_it_is_stored(tx: Tx) -> None:
    event_id = await given.event(tx, data={"text": "x" * 10_000, "n": 1})
    replayed = await events.replay(tx, TESTER, event_id)
    rows = await tx.values("select event_id, data_bytes from fairlead.events_waiting")
    sizes: dict[UUID, int] = dict(rows)
    assert sizes.keys() == {event_id, replayed}
    assert min(sizes.values()) > 10_000


async def test_an_event_that_fires_many_triggers_leaves_half_of_a_round_to_others(
    tx: Tx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is not the oldest, and where others have more than one event."""
    monkeypatch.setattr(dispatching, "MOST_SHOTS", 10)
    for _ in range(20):
        await given.trigger(tx)
    single = await given.trigger(tx, tenant=OTHER, dedupe_window_seconds=0)
    for tenant in (OTHER, TENANT, *[OTHER] * 5):
        await given.event(tx, tenant=tenant)
    await dispatched(tx)

    assert len(await of(tx, single)) == 6
    assert await given.count(tx, "jobs") > 6
    while await dispatched(tx):
        pass
    assert await given.count(tx, "jobs") == 26


async def test_an_event_fires_so_many_triggers_in_one_round(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "MOST_SHOTS", 4)
    fired = [await given.trigger(tx) for _ in range(5)]
    await given.trigger(tx, tenant=OTHER)
    await given.event(tx)
    await given.event(tx, tenant=OTHER)

    made = []
    while await dispatched(tx):
        made.append(await given.count(tx, "jobs"))

    assert made == [3, 5, 6]
    for trigger in fired:
        assert [one.outcome for one in await of(tx, trigger)] == [ENQUEUED]
    assert await given.count(tx, "events_waiting") == 0
