"""Functions that are registered to run again and again: each rule of it, with several instances on one database."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from structlog.testing import capture_logs

from fairlead import Context, Fairlead, JobStatus, Settings
from fairlead.actions import definitions, triggers
from fairlead.db import migrate
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import (
    AlreadyRegistered,
    DefinitionUnknown,
    NotOpen,
    RegistrationUnknown,
    ScheduleInvalid,
    SignatureInvalid,
    TenantUnknown,
    TriggerUnknown,
)
from fairlead.model.access import Principal, Role
from fairlead.model.job import Job
from fairlead.model.trigger import Firing, FiringOutcome, Trigger
from fairlead.runtime.worker_process import WorkerProcess
from fairlead.store import tenants
from tests import given
from tests.acting import act
from tests.given import OTHER, TENANT
from tests.tables import each_case
from tests.waiting import SECONDS, eventually

FAR = datetime(2999, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
Instance = Callable[..., Awaitable[Fairlead]]


def ago(**span: float) -> datetime:
    return datetime.now(UTC) - timedelta(**span)


async def nothing() -> None: ...


@each_case("interval", ["x", None, float("nan"), float("inf"), True, -1, 1.5, [60]])
async def test_an_interval_that_is_no_whole_number_of_seconds_is_refused_by_name(
    interval: Any,
) -> None:
    fl = Fairlead(settings=Settings())
    with pytest.raises(ScheduleInvalid) as refused:
        await fl.register(TENANT, "sync", FAR, interval, nothing)
    assert [fault.path for fault in refused.value.faults] == ["repeat_every"]
    with pytest.raises(ScheduleInvalid) as refused:
        fl.every(interval)
    assert [fault.path for fault in refused.value.faults] == ["every_seconds"]


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """Opens one more instance of the application on the test's database."""
    async with AsyncExitStack() as stack:

        async def opened(**changed: Any) -> Fairlead:
            made = Fairlead(settings=replace(settings, **changed), actor="tester")
            return await stack.enter_async_context(made)

        yield opened


async def history(fl: Fairlead, trigger: Trigger) -> list[Firing]:
    return await act(fl, triggers.list_firings, fl.principal, trigger.id, limit=1000)


async def stands(fl: Fairlead, trigger: Trigger) -> Trigger:
    return await act(fl, triggers.get, fl.principal, trigger.id)


async def fire(fl: Fairlead, trigger: Trigger) -> UUID:
    """Have a schedule fired now; its job's id."""
    fired = await act(fl, triggers.fire_now, fl.principal, fl.catalog, trigger.id)
    assert fired.job_id is not None
    return fired.job_id


async def ended(fl: Fairlead, job_id: UUID | None) -> Job:
    """The job, when it has ended."""
    assert job_id is not None
    deadline = time.monotonic() + SECONDS
    while not (job := await fl.read(job_id)).status.terminal:
        assert time.monotonic() < deadline, f"{job.definition_key} is still {job.status}"
        await asyncio.sleep(0.01)
    return job


async def serving(fl: Fairlead) -> list[str]:
    """What the workers say that they serve, as soon as one says anything."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = await act(fl, Tx.values, "select unnest(queues) from fairlead.job_workers order by 1")
            if found:
                return [one for (one,) in found]
            await asyncio.sleep(0.01)


async def audited(fl: Fairlead) -> list[str]:
    """The actions in the audit log so far, but for what jobs do."""
    actions = [entry.action for entry in await given.audit_entries(fl)]
    return [action for action in actions if not action.startswith("JOB_SUCC")]


# Running


async def test_a_function_runs_at_its_instants_and_each_run_is_in_the_history(fl: Fairlead) -> None:
    begin, runs = datetime.now(UTC), list[Context]()

    async def cleanup(ctx: Context) -> int:
        runs.append(ctx)
        return len(runs)

    trigger = await fl.register(TENANT, "cleanup", begin, 1, cleanup)
    await eventually(lambda: len(runs) >= 3, "three runs")
    await fl.cancel_periodic()

    told = await history(fl, trigger)
    made = list(filter(was_enqueued, reversed(told)))
    slots = [one.scheduled_at for one in made]
    assert slots == sorted(set(slots)), "an instant twice, or out of turn"  # type: ignore[type-var]
    # on a busy machine one may be missed, and is skipped
    assert all((one.scheduled_at - begin) % timedelta(seconds=1) == timedelta(0) for one in told)  # type: ignore[operator]
    jobs = [await fl.read(one.job_id) for one in made[:3]]  # type: ignore[arg-type]
    assert [(job.status, job.output, job.tenant) for job in jobs] == [
        ("succeeded", number, TENANT) for number in (1, 2, 3)
    ]
    assert {(job.source, job.source_ref) for job in jobs} == {("schedule", str(trigger.id))}
    assert [ctx.job_id for ctx in runs[:3]] == [job.id for job in jobs]


async def test_a_function_may_be_a_def_or_a_method_and_take_nothing(fl: Fairlead) -> None:
    class Shop:
        def __init__(self) -> None:
            self.threads: list[str] = []

        def restock(self, shelves: int = 3) -> None:
            assert shelves == 3
            self.threads.append(threading.current_thread().name)

    shop = Shop()
    await fl.register(TENANT, "restock", ago(seconds=1), 0, shop.restock)

    await eventually(lambda: shop.threads, "a run")
    assert shop.threads != [threading.current_thread().name]


async def test_a_registration_has_an_end_and_jitter(fl: Fairlead) -> None:
    end = FAR + timedelta(hours=2)

    trigger = await fl.register(TENANT, "spread", FAR, 3600, nothing, end_at=end, jitter=60)

    assert (trigger.end_at, trigger.jitter_seconds, trigger.next_instant) == (end, 60, FAR)
    assert trigger.next_fire_at is not None
    assert FAR <= trigger.next_fire_at < FAR + timedelta(minutes=1)
    await fl.unregister(TENANT, "spread")
    with pytest.raises(ScheduleInvalid):
        await fl.register(TENANT, "wrong", FAR, 3600, nothing, end_at=FAR)


async def firings(
    fl: Fairlead, trigger: Trigger, count: int, counts: Callable[[Firing], bool] = bool
) -> list[Firing]:
    """A schedule's firings, newest first, when there are so many that count: by default all do."""
    deadline = time.monotonic() + SECONDS
    while sum(map(counts, found := await history(fl, trigger))) < count:
        assert time.monotonic() < deadline, f"waited {SECONDS:.0f} s for {count} of {found}"
        await asyncio.sleep(0.01)
    return found


def was_enqueued(firing: Firing) -> bool:
    return firing.outcome == FiringOutcome.ENQUEUED


@pytest.mark.thorough
async def test_a_new_registration_runs_at_once_however_seldom_the_loops_look(instance: Instance) -> None:
    fl = await instance(poll_seconds=600)
    for name in ("first", "second", "third"):
        ran = asyncio.Event()

        async def run(ran: asyncio.Event = ran) -> None:
            ran.set()

        await fl.register(TENANT, name, datetime.now(UTC), HOUR, run)
        await asyncio.wait_for(ran.wait(), SECONDS)


@pytest.mark.thorough
async def test_several_registrations_run_side_by_side(fl: Fairlead) -> None:
    meeting = asyncio.Barrier(5)

    async def meet() -> None:
        await meeting.wait()

    made = [await fl.register(TENANT, f"guest-{n}", ago(seconds=1), 0, meet) for n in range(5)]

    for trigger in made:
        [firing] = await firings(fl, trigger, 1)
        assert (await ended(fl, firing.job_id)).status is JobStatus.SUCCEEDED


async def test_an_exception_is_recorded_and_the_schedule_moves_on(fl: Fairlead) -> None:
    async def break_down() -> None:
        raise ConnectionError("no shop there")

    trigger = await fl.register(TENANT, "broken", datetime.now(UTC), 1, break_down)
    # on a busy machine instants may be too late for a job, and are skipped for that
    fired = await firings(fl, trigger, 2, was_enqueued)
    for firing in filter(was_enqueued, fired):
        job = await ended(fl, firing.job_id)
        assert (job.status, job.last_error) == ("dead_letter", "ConnectionError: no shop there")
    await fl.cancel_periodic()  # only now: it stops this instance's worker, too

    found = await act(fl, Tx.values, "select distinct status, error_text from fairlead.attempts")
    assert [(status, "no shop there" in error) for status, error in found] == [("failed", True)]
    assert (await stands(fl, trigger)).next_fire_at is not None


# Across instances and restarts


@pytest.mark.thorough
async def test_a_slow_function_never_overlaps_itself_in_two_instances(instance: Instance) -> None:
    running, most, ran = 0, 0, set[str]()
    go_on = asyncio.Event()

    def slow(where: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            ran.add(where)
            await go_on.wait()
            running -= 1

        return run

    start = datetime.now(UTC)
    first, second = await instance(), await instance()
    trigger = await first.register(TENANT, "slow", start, 1, slow("first"))
    assert (await second.register(TENANT, "slow", start, 1, slow("second"))).id == trigger.id
    # on a busy machine instants may be too late for a job, and are skipped for that
    told = await firings(first, trigger, 2, lambda one: one.reason == "overlap")
    assert sum(one.outcome == "enqueued" for one in told) == 1
    assert {one.job_id for one in told if one.reason == "overlap"} == {one.job_id for one in told} - {None}
    go_on.set()
    await firings(first, trigger, 2, was_enqueued)

    assert most == 1


@pytest.mark.thorough
async def test_a_schedule_without_a_function_here_is_known_and_not_run(instance: Instance) -> None:
    has, has_not = await instance(), await instance()
    ran: list[str] = []

    async def mine() -> None:
        ran.append("mine")

    trigger = await has.register(TENANT, "mine", FAR, HOUR, mine)
    other = await has_not.register(TENANT, "other", FAR, HOUR, nothing)
    assert (await stands(has_not, trigger)).next_fire_at == FAR

    await ended(has, await fire(has_not, trigger))
    assert ran == ["mine"]
    await has.cancel_periodic()
    waiting = await fire(has_not, trigger)
    for _ in range(3):  # it works, and passes over the one that is not its own
        await ended(has_not, await fire(has_not, other))
    assert (await has_not.read(waiting)).status is JobStatus.QUEUED

    await has_not.register(TENANT, "mine", FAR, HOUR, mine)
    assert (await ended(has_not, waiting)).status is JobStatus.SUCCEEDED
    assert ran == ["mine", "mine"]


@pytest.mark.thorough
async def test_the_same_id_of_two_tenants_is_two_schedules_each_with_its_own_function(
    instance: Instance,
) -> None:
    first, second = await instance(), await instance()
    ran: list[tuple[str, str]] = []

    def noting(where: str) -> Callable[[Context], Awaitable[None]]:
        async def run(ctx: Context) -> None:
            ran.append((where, ctx.tenant))

        return run

    here = await first.register(TENANT, "sweep", FAR, HOUR, noting("first"))
    there = await second.register(OTHER, "sweep", FAR, HOUR, noting("second"))
    assert here.id != there.id
    for _ in range(5):
        for trigger in (here, there):
            await ended(first, await fire(first, trigger))
    both = await second.register(TENANT, "sweep", FAR, HOUR, noting("second, for both"))

    assert both.id == here.id
    assert sorted(ran) == [("first", TENANT)] * 5 + [("second", OTHER)] * 5


async def test_a_job_of_a_tenant_whose_function_nobody_has_says_that_no_worker_serves_it(
    fl: Fairlead,
) -> None:
    await fl.register(OTHER, "sweep", FAR, HOUR, nothing)
    await fl.cancel_periodic()  # the tenant has the definition, and no instance the function for it
    mine = await fl.register(TENANT, "sweep", FAR, HOUR, nothing)
    assert await serving(fl) == [f"periodic.sweep {mine.tenant_id}"]

    waiting = await fl.enqueue("periodic.sweep", tenant=OTHER)

    assert [one.code for one in (await fl.why(waiting.id)).reasons] == ["no_worker"]


async def test_an_id_that_the_database_knows_is_attached_and_its_schedule_changed(instance: Instance) -> None:
    first = await instance()
    before = await first.register(TENANT, "report", FAR, HOUR, nothing)
    await first.close()
    second = await instance()
    after = await second.register(TENANT, "report", FAR + HOUR, timedelta(days=1), nothing)

    assert (after.id, after.start_at, after.every_seconds) == (before.id, FAR + HOUR, 86_400)
    assert after.next_fire_at == FAR + HOUR
    assert (await audited(second))[-2:] == ["trigger_created", "trigger_changed"]
    assert (await ended(second, await fire(second, after))).status is JobStatus.SUCCEEDED


@pytest.mark.thorough
async def test_an_unchanged_schedule_goes_on_as_if_nothing_had_happened(instance: Instance) -> None:
    start = ago(minutes=90)
    first = await instance()
    trigger = await first.register(TENANT, "report", start, HOUR, nothing, timeout=60)
    [firing] = await firings(first, trigger, 1)
    await ended(first, firing.job_id)
    before, said = await stands(first, trigger), await audited(first)
    await first.close()
    second = await instance()

    assert await second.register(TENANT, "report", start, HOUR, nothing, timeout=60) == before
    assert before.next_fire_at == start + 2 * HOUR
    assert await audited(second) == said
    assert await history(second, trigger) == [firing]


@pytest.mark.thorough
async def test_a_one_shot_that_ran_does_not_run_again_unless_its_time_is_another(instance: Instance) -> None:
    start, ran = ago(hours=1), []

    async def once() -> None:
        ran.append(1)

    first = await instance()
    trigger = await first.register(TENANT, "once", start, 0, once)
    await eventually(lambda: ran, "a run")
    await first.close()
    second = await instance()
    await second.register(TENANT, "once", start, 0, once)
    barrier = await second.register(TENANT, "barrier", start, 0, nothing)
    await ended(second, (await firings(second, barrier, 1))[0].job_id)
    assert (len(ran), len(await history(second, trigger))) == (1, 1)

    await second.unregister(TENANT, "barrier")
    await second.cancel_periodic()
    await second.register(TENANT, "once", start + timedelta(minutes=1), 0, once)
    await eventually(lambda: len(ran) == 2, "a second run")


async def test_after_an_absence_it_runs_once_and_what_was_missed_is_skipped(instance: Instance) -> None:
    start, ran = ago(hours=10, minutes=30), []

    async def report() -> None:
        ran.append(1)

    first = await instance()
    trigger = await first.register(TENANT, "report", start, HOUR, report)
    await eventually(lambda: ran, "a run, since it began in the past")
    await first.close()
    second = await instance()
    async with second.transaction() as tx:  # as if it had last run nine hours ago
        await tx.run("delete from fairlead.trigger_firings")
        await given.behind(tx, trigger, start + 2 * HOUR)
    await second.register(TENANT, "report", start, HOUR, report)

    told = sorted(await firings(second, trigger, 9), key=lambda one: one.slot, reverse=True)
    assert [(one.outcome, one.reason) for one in told] == [("enqueued", None)] + [
        ("skipped", "overtaken")
    ] * 8
    assert told[0].scheduled_at == start + 10 * HOUR
    await ended(second, told[0].job_id)
    assert len(ran) == 2
    assert (await stands(second, trigger)).next_fire_at == start + 11 * HOUR


async def test_what_an_operator_disabled_stays_so_when_the_code_registers_it_again(
    instance: Instance,
) -> None:
    first = await instance()
    trigger = await first.register(TENANT, "report", FAR, HOUR, nothing)
    await act(first, triggers.change, first.principal, trigger.id, {"is_enabled": False})
    await first.close()

    again = await (await instance()).register(TENANT, "report", ago(minutes=1), HOUR, nothing)

    assert (again.id, again.is_enabled, again.next_fire_at) == (trigger.id, False, None)


# Registering


async def test_a_second_registration_is_refused_and_the_first_goes_on(fl: Fairlead) -> None:
    ran: list[str] = []

    async def first() -> None:
        ran.append("first")

    async def second() -> None:
        ran.append("second")

    trigger = await fl.register(TENANT, "report", FAR, HOUR, first)
    whose = str(trigger.tenant_id)
    for tenant in (TENANT, whose, trigger.tenant_id):
        with pytest.raises(AlreadyRegistered, match="unregister it first"):
            await fl.register(tenant, "report", ago(seconds=1), 1, second)

    assert await stands(fl, trigger) == trigger
    await ended(fl, await fire(fl, trigger))
    assert ran == ["first"]


async def test_of_registrations_at_the_same_moment_one_is_made(fl: Fairlead) -> None:
    ran: list[int] = []

    def numbered(number: int) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            ran.append(number)

        return run

    answers = await asyncio.gather(
        *(fl.register(TENANT, "report", FAR, HOUR, numbered(n)) for n in range(8)), return_exceptions=True
    )

    [made] = [number for number, answer in enumerate(answers) if isinstance(answer, Trigger)]
    assert sum(isinstance(answer, AlreadyRegistered) for answer in answers) == 7
    await ended(fl, await fire(fl, answers[made]))  # type: ignore[arg-type]
    assert ran == [made]


@pytest.mark.thorough
async def test_instances_that_register_at_the_same_moment_share_one_schedule(instance: Instance) -> None:
    instances = [await instance() for _ in range(4)]

    made = await asyncio.gather(*(one.register(TENANT, "report", FAR, HOUR, nothing) for one in instances))

    assert len({trigger.id for trigger in made}) == 1
    assert (await audited(instances[0])).count("trigger_created") == 1
    assert "trigger_changed" not in await audited(instances[0])


async def test_what_cannot_be_is_refused_and_leaves_nothing_behind(fl: Fairlead) -> None:
    async def needy(ctx: Context, shop: str) -> None: ...

    start = ago(seconds=1)
    refused: list[tuple[type[Exception], tuple[Any, ...]]] = [
        (TenantUnknown, ("nobody", "report", start, 1, nothing)),
        (ScheduleInvalid, (TENANT, "not an id", start, 1, nothing)),
        (ScheduleInvalid, (TENANT, "x" * 120, start, 1, nothing)),
        (ScheduleInvalid, (TENANT, "report", start.replace(tzinfo=None), 1, nothing)),
        (ScheduleInvalid, (TENANT, "report", start, timedelta(days=400), nothing)),
        (SignatureInvalid, (TENANT, "report", start, 1, needy)),
        (SignatureInvalid, (TENANT, "report", start, 1, print)),
    ]
    for kind, arguments in refused:
        with pytest.raises(kind):
            await fl.register(*arguments)
    assert await given.count(fl, "job_triggers") == 0

    await fl.register(TENANT, "report", FAR, 1, nothing)
    with pytest.raises(NotOpen):
        await Fairlead(settings=fl.settings).register(TENANT, "report", start, 1, nothing)


# Unregistering


async def test_unregistering_what_is_not_registered_here_is_refused(instance: Instance) -> None:
    fl, other = await instance(), await instance()
    trigger = await other.register(TENANT, "theirs", FAR, HOUR, nothing)

    for tenant, name in ((TENANT, "nobodys"), (TENANT, "theirs"), (OTHER, "theirs")):
        with pytest.raises(RegistrationUnknown):
            await fl.unregister(tenant, name)
    with pytest.raises(TenantUnknown):
        await fl.unregister("nobody", "theirs")
    assert await stands(fl, trigger) == trigger


async def test_unregistering_removes_the_schedule_and_cancels_what_waits(fl: Fairlead) -> None:
    trigger = await fl.register(TENANT, "report", FAR, HOUR, nothing)
    await fl.pause(tenant=TENANT)
    waiting = await fire(fl, trigger)
    await fl.unregister(TENANT, "report")

    assert (await fl.read(waiting)).status is JobStatus.CANCELED
    with pytest.raises(TriggerUnknown):
        await stands(fl, trigger)
    assert (await audited(fl))[-2:] == ["trigger_deleted", "JOB_CANCELED"]
    with pytest.raises(RegistrationUnknown):
        await fl.unregister(TENANT, "report")
    await fl.resume(tenant=TENANT)
    again = await fl.register(TENANT, "report", FAR, HOUR, nothing)
    assert again.id != trigger.id
    assert (await ended(fl, await fire(fl, again))).status is JobStatus.SUCCEEDED


async def test_what_is_registered_for_a_tenant_is_no_other_tenants(fl: Fairlead) -> None:
    async def seen_by(slug: str | None) -> set[str]:
        tenant_id = None if slug is None else (await act(fl, tenants.get_ids, [slug]))[slug]
        async with fl.database.transaction(TransactionIdentity(tenant_id)) as tx:
            whose = Principal("reader", Role.TENANT_ADMIN if slug else Role.SUPER_ADMIN, tenant_id)
            listed = await definitions.list_page(tx, whose, after="", limit=100)
            found = await definitions.find(tx, whose, "periodic.report")
        assert (found in listed) is ("periodic.report" in {one.key for one in listed})
        return {one.key for one in listed if one.key.startswith("periodic.")}

    await fl.register(TENANT, "report", FAR, HOUR, nothing)
    assert (await seen_by(TENANT), await seen_by(OTHER)) == ({"periodic.report"}, set())
    assert await seen_by(None) == {"periodic.report"}
    for new in ([given.request(tenant=OTHER, definition="periodic.report", payload={})],):
        with pytest.raises(DefinitionUnknown):
            await fl.submit(new[0])
        with pytest.raises(DefinitionUnknown):
            await fl.enqueue_many(new)

    await fl.register(OTHER, "report", FAR, HOUR, nothing)
    await fl.unregister(TENANT, "report")
    assert await seen_by(OTHER) == {"periodic.report"}

    await fl.unregister(OTHER, "report")
    assert await seen_by(None) == await seen_by(OTHER) == await seen_by(TENANT) == set()

    await fl.register(TENANT, "report", FAR, HOUR, nothing)
    assert await seen_by(TENANT) == {"periodic.report"}


async def test_unregistering_lets_the_run_under_way_end(fl: Fairlead) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        began.set()
        await go_on.wait()

    trigger = await fl.register(TENANT, "slow", FAR, HOUR, slow)
    job_id = await fire(fl, trigger)
    await asyncio.wait_for(began.wait(), SECONDS)
    await fl.unregister(TENANT, "slow")
    go_on.set()

    assert (await ended(fl, job_id)).status is JobStatus.SUCCEEDED


async def test_a_schedule_that_somebody_else_removed_can_still_be_unregistered(fl: Fairlead) -> None:
    trigger = await fl.register(TENANT, "report", FAR, HOUR, nothing)
    await act(fl, triggers.remove, fl.principal, trigger.id)
    await fl.unregister(TENANT, "report")

    assert (await fl.register(TENANT, "report", FAR, HOUR, nothing)).id != trigger.id


# Ending


@pytest.mark.thorough
async def test_canceling_lets_runs_end_then_nothing_runs_and_the_schedules_stay(instance: Instance) -> None:
    fl, other = await instance(), await instance()
    began, go_on, ran = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow() -> None:
        ran.append("slow")
        began.set()
        await go_on.wait()

    trigger = await fl.register(TENANT, "slow", FAR, HOUR, slow)
    job_id = await fire(fl, trigger)
    await asyncio.wait_for(began.wait(), SECONDS)
    canceling = asyncio.create_task(fl.cancel_periodic())
    await asyncio.wait((canceling,), timeout=0.3)
    assert not canceling.done()
    go_on.set()
    await canceling
    assert (await fl.read(job_id)).status is JobStatus.SUCCEEDED

    waiting = await fire(other, trigger)
    barrier = await other.register(TENANT, "barrier", ago(seconds=1), 0, nothing)
    await ended(other, (await firings(other, barrier, 1))[0].job_id)
    assert ((await fl.read(waiting)).status, ran) == (JobStatus.QUEUED, ["slow"])
    assert await stands(fl, trigger) == msgspec.structs.replace(
        trigger, last_fired_at=(await stands(fl, trigger)).last_fired_at
    )
    with pytest.raises(RegistrationUnknown):
        await fl.unregister(TENANT, "slow")
    await fl.cancel_periodic()

    await fl.register(TENANT, "slow", FAR, HOUR, slow)
    assert (await ended(fl, waiting)).status is JobStatus.SUCCEEDED
    assert ran == ["slow", "slow"]


async def test_a_run_that_outlasts_the_drain_time_is_given_back(instance: Instance) -> None:
    fl = await instance(drain_seconds=0.1)
    began = asyncio.Event()

    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    job_id = await fire(fl, await fl.register(TENANT, "hanging", FAR, HOUR, hang))
    await asyncio.wait_for(began.wait(), SECONDS)
    await fl.cancel_periodic()

    job = await fl.read(job_id)
    assert (job.status, job.failure_count) == (JobStatus.QUEUED, 0)


async def test_closing_ends_the_loop_and_leaves_no_task_behind(settings: Settings) -> None:
    before = asyncio.all_tasks()
    async with Fairlead(settings=settings) as fl:
        trigger = await fl.register(TENANT, "report", ago(seconds=1), HOUR, nothing)
        await ended(fl, (await firings(fl, trigger, 1))[0].job_id)
        assert "fairlead-periodic" in {task.get_name() for task in asyncio.all_tasks()}
    # of those before, some may have ended
    await eventually(lambda: asyncio.all_tasks() <= before, "its tasks to end")
    async with fl:
        assert await given.count(fl, "job_workers") == 0
        await fl.register(TENANT, "report", FAR, HOUR, nothing)


# Trouble


async def test_a_loop_that_breaks_says_so_and_begins_again(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, broken = WorkerProcess.run, list[WorkerProcess]()

    async def break_first(
        self: WorkerProcess, stop: asyncio.Event, abandon: asyncio.Event | None = None
    ) -> None:
        if len(broken) < 2:
            broken.append(self)
            stop.set()
            if len(broken) == 1:
                raise KeyError("a bug")
            return  # worn out
        await run(self, stop, abandon)

    monkeypatch.setattr(WorkerProcess, "run", break_first)
    with capture_logs() as logs:
        trigger = await fl.register(TENANT, "report", ago(seconds=1), 0, nothing)
        [firing] = await firings(fl, trigger, 1)
        assert (await ended(fl, firing.job_id)).status is JobStatus.SUCCEEDED

    failures = [one["why"] for one in logs if one.get("service") == "periodic"]
    assert [("a bug" in why, "stuck" in why) for why in failures] == [(True, False), (False, True)]


@pytest.mark.thorough
async def test_it_goes_on_after_the_database_was_killed(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "data")
    url = await asyncio.to_thread(server.start)
    try:
        await migrate.up(url, "fairlead")
        async with Fairlead(settings=Settings(database_url=url, lease_seconds=5, sweep_seconds=1)) as fl:
            await fl.add_tenant(TENANT)
            runs: list[float] = []

            async def beat() -> None:
                runs.append(time.monotonic())

            await fl.register(TENANT, "beat", datetime.now(UTC), 1, beat)
            await eventually(lambda: runs, "a run")
            for _ in range(2):
                os.kill(server.pid, signal.SIGKILL)
                await asyncio.to_thread(server.start)
                seen = len(runs)
                await eventually(lambda seen=seen: len(runs) > seen + 1, "runs after the crash")  # type: ignore[misc]
            await fl.cancel_periodic()
            await given.no_inconsistencies(fl.database)
    finally:
        await asyncio.to_thread(server.stop)


async def test_a_definition_says_that_it_belongs_to_a_registration(fl: Fairlead) -> None:
    await fl.register(TENANT, "report", FAR, HOUR, nothing, timeout=90)
    async with fl.transaction() as tx:
        [made] = [one for one in await definitions.list_all(tx, fl.principal) if one.key == "periodic.report"]

    assert (made.timeout_seconds, made.max_attempts) == (90, 1)
    assert made.description == "registered as report"
