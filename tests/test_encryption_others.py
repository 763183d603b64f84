"""Encryption that is broken for one tenant: its work waits, and that of other tenants goes on."""

import asyncio
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import pytest

from fairlead import Context, Fairlead, NewJob, Secret, Settings
from fairlead.actions import bulk_jobs, durable, expiry, tenants, workflow_progress, workflow_release
from fairlead.actions.jobs import JobFilter
from fairlead.db.database import Database
from fairlead.db.tx import TransactionIdentity
from fairlead.errors import EncryptionKeyUnavailable
from fairlead.keys import keyring, master
from fairlead.model.access import Principal, Role
from fairlead.model.job import JobStatus
from fairlead.model.workflow.run import RunStatus
from fairlead.runtime.trigger_loops import Dispatcher, Scheduler
from fairlead.store import handovers, queue, sealing
from fairlead.store.queue import UNREADABLE_SECONDS
from tests import given
from tests.encrypted_app import VALUE, App, app
from tests.given import OTHER, TENANT, TESTER
from tests.waiting import SECONDS

__all__ = ["app"]

POLL = 600.0
THIRD = "hooli"
QUEUED = JobFilter(status=[JobStatus.QUEUED])


class Kms:
    """A KMS that wraps by turning bits over. For some tenants it is down, or does not answer."""

    def __init__(self) -> None:
        self.down = set[str]()
        self.hanging = set[str]()
        self.calls = Counter[str]()
        # how many calls hang, and how many did at once
        self.waiting = self.most_waiting = 0

    async def wrap(self, key: bytes, context: dict[str, str]) -> bytes:
        return await self.unwrap(key, context)

    async def unwrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
        tenant = context["tenant"]
        self.calls[tenant] += 1
        if tenant in self.down:
            raise ConnectionError
        if tenant in self.hanging:
            self.waiting += 1
            self.most_waiting = max(self.most_waiting, self.waiting)
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        return bytes(255 - one for one in wrapped)


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Kms:
    """The KMS of this test."""
    made = Kms()
    monkeypatch.setattr(sys.modules[__name__], "wrapper", made, raising=False)
    return made


@pytest.fixture
def own(settings: Settings, kms: Kms) -> Settings:
    return replace(settings, encryption_key=f"call:{__name__}:wrapper")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of the KMS may take a moment only, and any failure of it was slow and is remembered."""
    monkeypatch.setattr(master, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(keyring, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(keyring, "FAILED_SECONDS", 3600.0)


SCHEMA = {"type": "object", "properties": {"token": {"type": "string", "x-secret": True}}}
RUN = {"workflow": "billing", "input": {"token": VALUE}}


def build(settings: Settings) -> tuple[Fairlead, list[Any]]:
    """An application whose functions get a secret, and the tenants for which they ran."""
    fl, seen = Fairlead(settings=settings), list[Any]()

    @fl.job(key="pay")
    async def pay(ctx: Context, token: Annotated[str, Secret()]) -> None:
        assert token == VALUE
        seen.append(ctx.tenant)

    @fl.job(key="prepare")
    async def prepare(ctx: Context) -> None:
        pass

    @fl.job(key="outer", durable=True)
    async def outer(ctx: Context) -> None:
        await ctx.call("ENGINE_RUN", RUN)

    flow = fl.workflow("billing", input_schema=SCHEMA)
    flow.step(
        "pay", "pay", {"token": "{{input.token}}"}, after=flow.step("prepare", "prepare", {}, expires_in=3600)
    )
    return fl, seen


async def find_id(fl: Fairlead, tenant: str) -> str:
    return str(await given.tenant_id(fl.database, tenant))


def forget_keys(fl: Fairlead) -> None:
    """As a process that was started again."""
    ring = fl.database.keyring
    ring._keys.clear()
    ring._current.clear()


async def break_key(fl: Fairlead, kms: Kms, tenant: str = TENANT) -> None:
    """Let no key of this tenant be had."""
    kms.down.add(await find_id(fl, tenant))
    forget_keys(fl)


async def repeat(loop: Dispatcher | Scheduler) -> None:
    """All rounds that there are to do now."""
    async with asyncio.timeout(SECONDS):
        while await loop() == 0:
            pass


# Triggers


async def test_events_of_others_are_dispatched_and_those_without_a_key_wait_without_a_failed_try(
    app: App, kms: Kms
) -> None:
    fl, seen = app
    for tenant in (TENANT, OTHER):
        await given.trigger(
            fl.database,
            tenant=tenant,
            definition_key="pay",
            payload_template={"token": VALUE},
            dedupe_window_seconds=0,
        )
    for tenant in (TENANT, OTHER) * 3:
        await given.event(fl.database, tenant=tenant)
    await break_key(fl, kms)

    await repeat(Dispatcher(fl.database, fl.catalog, poll_seconds=POLL))

    assert Counter(job.tenant for job in await given.all_jobs(fl.database)) == {OTHER: 3}
    async with fl.database.transaction() as tx:
        left = await tx.values("select tries, due_at - clock_timestamp() from fairlead.events_waiting")
    assert [tries for tries, _ in left] == [0, 0, 0]
    assert all(wait.total_seconds() <= UNREADABLE_SECONDS for _, wait in left)

    kms.down.clear()
    await given.make_events_due(fl.database)
    await repeat(Dispatcher(fl.database, fl.catalog, poll_seconds=POLL))
    await fl.tick()
    assert Counter(seen) == {TENANT: 3, OTHER: 3}


async def test_schedules_of_others_fire_and_one_without_a_key_fires_its_instant_later(
    app: App, kms: Kms
) -> None:
    fl, seen = app
    made = [
        await given.due_trigger(
            fl.database, tenant=tenant, definition_key="pay", payload_template={"token": VALUE}
        )
        for tenant in (TENANT, OTHER)
    ]
    await break_key(fl, kms)

    await repeat(Scheduler(fl.database, fl.catalog, poll_seconds=POLL))

    assert [job.tenant for job in await given.all_jobs(fl.database)] == [OTHER]
    async with fl.database.transaction() as tx:
        [(wait, delay)] = await tx.values(
            "select next_fire_at - clock_timestamp(), next_delay from fairlead.job_triggers where id = %s",
            [made[0].id],
        )
        assert (
            await tx.values("select from fairlead.trigger_firings where trigger_id = %s", [made[0].id]) == []
        )
    assert delay.total_seconds() > 0
    assert wait.total_seconds() <= UNREADABLE_SECONDS

    kms.down.clear()
    late = (
        "update fairlead.job_triggers set next_fire_at = next_fire_at - v, next_delay = next_delay - v from "
    )
    async with fl.database.transaction() as tx:
        # as if the time had passed
        await tx.run(
            late + "(select make_interval(secs => %s) as v) by where id = %s",
            [UNREADABLE_SECONDS, made[0].id],
        )
    await repeat(Scheduler(fl.database, fl.catalog, poll_seconds=POLL))
    await fl.tick()
    assert Counter(seen) == {TENANT: 1, OTHER: 1}
    fired = [job for job in await given.all_jobs(fl.database) if job.tenant == TENANT]
    assert [job.scheduled_for for job in fired] == [made[0].next_instant]


# Workflows


async def test_outcomes_that_are_written_together_stay_when_the_key_of_one_run_is_away(
    app: App, kms: Kms
) -> None:
    fl, seen = app
    runs = [
        await fl.start("billing", tenant=tenant, input={"token": VALUE}) for tenant in (TENANT, OTHER, OTHER)
    ]
    await break_key(fl, kms)

    await fl.tick()

    prepared = [(await run.read()).steps[0].job_status for run in runs]
    assert prepared == [JobStatus.SUCCEEDED] * 3
    assert await given.count(fl.database, "ended_steps") == 1
    await fl.tick()
    assert seen == [OTHER] * 2
    assert [(await run.read()).run.status for run in runs] == [
        RunStatus.RUNNING,
        RunStatus.SUCCEEDED,
        RunStatus.SUCCEEDED,
    ]

    kms.down.clear()
    await fl.tick()
    await fl.tick()
    assert (await runs[0].read()).run.status is RunStatus.SUCCEEDED
    await given.no_inconsistencies(fl.database)


async def test_jobs_of_others_expire_when_the_key_of_one_run_is_away(app: App, kms: Kms) -> None:
    fl, _ = app
    for tenant in (TENANT, OTHER):
        await fl.start("billing", tenant=tenant, input={"token": VALUE})
    await given.expire_jobs(fl.database)
    await break_key(fl, kms)

    await fl.database.transact(lambda tx: expiry.expire_jobs(tx, limit=10))

    assert {job.status for job in await given.all_jobs(fl.database)} == {JobStatus.CANCELED}
    assert list((await given.run_statuses(fl.database)).values()) == ["running", "failed"]
    assert await given.count(fl.database, "ended_steps") == 1


async def test_a_cancel_of_many_jobs_leaves_a_run_whose_key_is_away(app: App, kms: Kms) -> None:
    fl, _ = app
    for tenant in (TENANT, OTHER, TENANT):
        await fl.start("billing", tenant=tenant, input={"token": VALUE})
    [first, *_] = await given.all_jobs(fl.database)
    await fl.cancel(first.id)
    await break_key(fl, kms)

    tenant_id = UUID(await find_id(fl, TENANT))
    operator = Principal("operator", Role.OPERATOR, tenant_id)
    async with fl.database.transaction(TransactionIdentity(tenant_id)) as tx:
        assert (await bulk_jobs.cancel(tx, operator, QUEUED)).count == 1
    async with fl.database.transaction() as tx:
        assert (await bulk_jobs.cancel(tx, TESTER, QUEUED)).count == 1

    assert list((await given.run_statuses(fl.database)).values()) == ["failed", "failed", "running"]


async def test_steps_of_much_work_of_others_are_made_when_the_key_of_one_run_is_away(
    app: App, kms: Kms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_release, "MOST_BESIDE_BYTES", 1)
    fl, seen = app
    runs = [await fl.start("billing", tenant=tenant, input={"token": VALUE}) for tenant in (TENANT, OTHER)]
    await fl.tick()  # makes the first steps, and leaves the second ones
    await break_key(fl, kms)

    for _ in range(2):
        await fl.tick()
    assert seen == [OTHER]
    assert (await runs[1].read()).run.status is RunStatus.SUCCEEDED
    assert (await runs[0].read()).run.status is RunStatus.RUNNING

    kms.down.clear()
    for _ in range(2):
        await fl.tick()
    assert seen == [OTHER, TENANT]


# Durable functions


async def test_children_of_canceled_functions_of_others_are_canceled_when_the_key_of_one_run_is_away(
    app: App, kms: Kms
) -> None:
    fl, _ = app
    parents = [await fl.enqueue("outer", tenant=tenant) for tenant in (TENANT, OTHER)]
    for _ in range(3):
        await fl.tick()
    statuses = await given.run_statuses(fl.database)
    assert list(statuses.values()) == ["running"] * 2
    for parent in parents:
        await fl.cancel(parent.id)
    await break_key(fl, kms)

    await fl.database.transact(lambda tx: durable.settle_children(tx, limit=10))

    assert sorted((await given.run_statuses(fl.database)).values()) == ["canceled", "running"]
    assert await given.count(fl.database, "ended_steps") == 1
    kms.down.clear()
    assert await fl.database.transact(lambda tx: workflow_progress.settle_ended_steps(tx, limit=10)) == 1
    assert list((await given.run_statuses(fl.database)).values()) == ["canceled"] * 2


# A KMS that hangs


async def open_key(database: Database, tenant: str) -> UUID:
    async with database.transaction() as tx:
        return (await sealing.find_current_key(tx, tenant)).id


@pytest.mark.usefixtures("impatient")
async def test_a_kms_that_does_not_answer_is_asked_once_and_then_again_after_a_while(
    app: App, kms: Kms, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl, _ = app
    await fl.enqueue_many(
        [NewJob(definition="pay", tenant=one, payload={"token": VALUE}) for one in (TENANT, OTHER)]
    )
    forget_keys(fl)
    tenant_id = await find_id(fl, TENANT)
    kms.hanging.add(tenant_id)
    kms.calls.clear()

    for _ in range(3):
        with pytest.raises(EncryptionKeyUnavailable, match="unwrap did not answer within"):
            await open_key(fl.database, TENANT)
        await open_key(fl.database, OTHER)
    assert kms.calls[tenant_id] == 1

    # the next failure is forgotten at once
    monkeypatch.setattr(keyring, "FAILED_SECONDS", 0.0)
    fl.database.keyring._failed.clear()
    with pytest.raises(EncryptionKeyUnavailable):
        await open_key(fl.database, TENANT)
    kms.hanging.clear()
    await open_key(fl.database, TENANT)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["jobs", "schedules", "runs"])
async def test_a_round_waits_once_for_the_keys_of_all_its_tenants(app: App, kms: Kms, what: str) -> None:
    fl, seen = app
    async with fl.database.transaction() as tx:
        await tenants.add(tx, TESTER, slug=THIRD)
    for tenant in (TENANT, OTHER, THIRD):
        if what == "jobs":
            await fl.enqueue("pay", tenant=tenant, payload={"token": VALUE})
        elif what == "runs":
            await fl.start("billing", tenant=tenant, input={"token": VALUE})
        else:
            await given.due_trigger(
                fl.database, tenant=tenant, definition_key="pay", payload_template={"token": VALUE}
            )
    forget_keys(fl)
    kms.hanging = {await find_id(fl, tenant) for tenant in (TENANT, THIRD)}
    kms.calls.clear()

    await fl.tick()
    await fl.tick()

    assert seen == [OTHER]
    assert kms.most_waiting == 2
    assert set(kms.calls.values()) == {1}
    if what == "jobs":
        waiting = [job for job in await given.all_jobs(fl.database) if job.tenant != OTHER]
        assert {(job.status, job.failure_count) for job in waiting} == {(JobStatus.QUEUED, 0)}
        assert "did not answer" in str(waiting[0].last_error)


# Delivery engines


async def test_jobs_of_others_are_handed_over_when_the_key_of_one_is_away(app: App, kms: Kms) -> None:
    fl, _ = app
    for tenant in (TENANT, OTHER):
        await fl.enqueue("pay", tenant=tenant, payload={"token": VALUE})
    async with fl.database.transaction() as tx:
        claimed = await queue.claim(tx, worker="bridge", wanted=10, lease_seconds=60)
        leases = [claimed.lease(job) for job in claimed.jobs]
        await handovers.add(tx, "engine", leases, ["pay"] * len(leases))
    await break_key(fl, kms)
    list_all = partial(handovers.list_unconfirmed, engine="engine", bridge="bridge", patience=0, limit=10)

    ready = await fl.database.transact(list_all)

    assert [(row.tenant, row.payload) for row in ready] == [(OTHER, {"token": VALUE})]
    kms.down.clear()
    assert len(await fl.database.transact(list_all)) == 2
