"""The life cycle as a state machine, and every two transitions of one job at the same time."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, ClassVar, TypeVar
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fairlead import Settings
from fairlead.actions import jobs as actions
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import JobNotCancelable, JobNotRetryable
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import (
    Backoff,
    Canceled,
    Change,
    Failed,
    Outcome,
    Released,
    RetryBudget,
    Snoozed,
    Succeeded,
    decide,
)
from fairlead.store import jobs, queue, rescue
from fairlead.store.queue import HeartbeatResult
from tests import given
from tests.given import OTHER, TENANT, TESTER
from tests.store.test_queue import everything
from tests.thorough import examples, mostly_thorough

T = TypeVar("T")
SUCCESS = decide(RetryBudget(1, 0, 0, Backoff()), Succeeded("x"))
TENANTS = st.sampled_from([TENANT, OTHER])
DEFINITIONS = st.sampled_from(["greet", "anything"])
OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Succeeded({"n": 1}),
        Failed("E", "again"),
        Failed("E", "never", retryable=False),
        Failed("E", "late", timed_out=True),
        Snoozed(0),
        Snoozed(3600),
        Released(),
        Canceled(),
    ]
)
BUDGETS = st.builds(
    RetryBudget,
    max_attempts=st.integers(1, 3),
    failure_count=st.just(0),
    lost_count=st.just(0),
    backoff=st.sampled_from([Backoff(base_seconds=0), Backoff()]),
)
FULL = {
    "tenant": "select t.slug, (select count(*) from fairlead.leases l where l.tenant_id = t.id), t.max_running "
    "from fairlead.tenants t",
    "definition": "select d.key, (select count(*) from fairlead.leases l where l.definition_id = d.id), d.max_running "
    "from fairlead.job_definitions d",
    "both": "select d.key || ' ' || t.slug, (select count(*) from fairlead.leases l "
    "where l.definition_id = d.id and l.tenant_id = t.id), d.max_running_per_tenant "
    "from fairlead.job_definitions d, fairlead.tenants t",
}
READY = """
    select r.job_id, t.slug, d.key, d.key || ' ' || t.slug from fairlead.ready r
    join fairlead.tenants t on t.id = r.tenant_id join fairlead.job_definitions d on d.id = r.definition_id
"""


class Life(RuleBasedStateMachine):
    """Whatever happens in whatever order, I2 to I6 hold after every step. One transaction, rolled back at the end."""

    runner: ClassVar[asyncio.Runner]
    database: ClassVar[Database]

    def __init__(self) -> None:
        super().__init__()
        self.stack = AsyncExitStack()
        self.tx: Tx = self.run(self.stack.enter_async_context(self.database.transaction()))
        self.made: list[UUID] = []
        self.issued: list[Lease] = []  # every lease ever
        self.owned: dict[UUID, Lease] = {}  # those that own their job
        self.answered: dict[Lease, tuple[str, str | None]] = {}  # those whose owner ended them, and how
        self.asked: set[UUID] = set()  # running jobs that were asked to stop
        self.over: dict[UUID, Any] = {}  # terminal jobs as they were

    def run(self, work: Awaitable[T]) -> T:
        async def waited() -> T:
            return await work

        return self.runner.run(waited())

    def values(self, query: str, *params: Any) -> list[Any]:
        return self.run(self.tx.values(query, params))

    def teardown(self) -> None:
        self.run(self.tx.connection.execute("rollback"))
        self.run(self.tx.connection.execute("begin"))
        self.run(self.stack.aclose())

    def everything(self) -> list[Any]:
        return self.run(everything(self.tx))

    def status(self, job_id: UUID) -> JobStatus:
        [(status,)] = self.values("select status from fairlead.jobs where id = %s", job_id)
        return JobStatus(status)

    def levels(self) -> dict[tuple[str, str], tuple[int, int | None]]:
        return {
            (scope, name): (running, most)
            for scope, query in FULL.items()
            for name, running, most in self.values(query)
        }

    @rule(
        tenant=TENANTS,
        definition=DEFINITIONS,
        key=st.sampled_from([None, None, "k1", "k2"]),
        priority=st.sampled_from([None, 1, 900]),
        later=st.booleans(),
    )
    def enqueue(
        self, tenant: str, definition: str, key: str | None, priority: int | None, *, later: bool
    ) -> None:
        [(moment,)] = self.values("select clock_timestamp() + interval '1 day'")
        active = self.values(
            "select j.id from fairlead.jobs j join fairlead.tenants t on t.id = j.tenant_id "
            "where t.slug = %s and dedupe_key = %s and status in ('queued', 'running')",
            tenant,
            key,
        )
        fields = {"tenant": tenant, "definition": definition, "dedupe_key": key, "priority": priority}
        job_id = self.run(given.queued_job(self.tx, scheduled_for=moment if later else None, **fields))
        assert [(job_id,)] == active if active else job_id not in self.made
        if not active:
            self.made.append(job_id)

    @rule(wanted=st.integers(1, 6))
    def claim(self, wanted: int) -> None:
        ready = {job: scopes for job, *scopes in self.values(READY)}
        before = self.levels()
        numbers = dict(self.values("select id, attempt_count from fairlead.jobs"))
        claim = self.run(queue.claim(self.tx, worker="w", wanted=wanted, lease_seconds=3600))
        assert len(claim.jobs) <= wanted
        for job in claim.jobs:
            assert job.job_id in ready
            assert job.attempt_no == numbers[job.job_id] + 1
            self.owned[job.job_id] = claim.lease(job)
            self.issued.append(claim.lease(job))
        after = self.levels()
        assert all(
            most is None or running <= max(most, before[scope][0]) for scope, (running, most) in after.items()
        )
        full = {scope for scope, (running, most) in before.items() if most is not None and running >= most}
        free = [job for job, scopes in ready.items() if full.isdisjoint(zip(FULL, scopes, strict=True))]
        assert bool(free) == bool(claim.jobs)

    @rule(idle=st.sampled_from([True, False, None]))
    def claim_suspect(self, *, idle: bool | None) -> None:
        waiting = dict(self.values("select job_id, due_at from fairlead.later where alone"))
        before = self.levels()
        claim = self.run(queue.claim_suspect(self.tx, worker="w", lease_seconds=3600, idle=idle))
        [(now,)] = self.values("select clock_timestamp()")
        assert len(claim.jobs) <= (0 if idle is None and self.owned else 1)
        for job in claim.jobs:
            assert waiting[job.job_id] <= now
            assert job.probation > 0
            self.owned[job.job_id] = claim.lease(job)
            self.issued.append(claim.lease(job))
        assert all(
            most is None or running <= max(most, before[scope][0])
            for scope, (running, most) in self.levels().items()
        )

    @precondition(lambda self: self.issued)
    @rule(data=st.data(), outcome=OUTCOMES, budget=BUDGETS)
    def finish(self, data: st.DataObject, outcome: Outcome, budget: RetryBudget) -> None:
        lease = data.draw(st.sampled_from(self.issued))
        change = decide(budget, outcome)
        owner = self.owned.get(lease.job_id) == lease
        before = None if owner else self.everything()

        done = self.run(queue.finish(self.tx, [(lease, change)], actor="w"))

        if owner:
            stopped = lease.job_id in self.asked and change.status is not JobStatus.SUCCEEDED
            assert done == {lease.job_id: JobStatus.CANCELED if stopped else change.status}
            self.answered[lease] = ("canceled" if stopped else change.attempt_status), change.message
            self.release(lease.job_id)
        else:
            assert self.everything() == before
            assert done.keys() == ({lease.job_id} if self.is_the_same(lease, change) else set())

    def is_the_same(self, lease: Lease, change: Change) -> bool:
        """Whether the lease was ended by this very report."""
        status, message = self.answered.get(lease, ("", None))
        turned = status == "canceled" and change.attempt_status != "succeeded" and change.message == message
        return status == change.attempt_status or turned

    @precondition(lambda self: self.issued)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.issued))
        owner = self.owned.get(lease.job_id) == lease
        before = None if owner else self.everything()
        alive = self.run(queue.heartbeat(self.tx, [lease], lease_seconds=3600))
        assert alive == ({lease: HeartbeatResult(cancel=lease.job_id in self.asked)} if owner else {})
        assert owner or self.everything() == before

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def lose_and_rescue(self, data: st.DataObject) -> None:
        lost = data.draw(st.lists(st.sampled_from(sorted(self.owned)), unique=True))
        self.run(self.tx.run("update fairlead.leases set expires_at = now() where job_id = any(%s)", [lost]))
        assert self.run(queue.heartbeat(self.tx, [self.owned[job] for job in lost], lease_seconds=9)) == {}
        was_alone = len(self.owned) == 1
        before = dict(self.values("select id, lost_count from fairlead.jobs"))
        assert sorted(self.run(rescue.rescue(self.tx))) == sorted(lost)
        for job_id in lost:
            [(count,)] = self.values("select lost_count from fairlead.jobs where id = %s", job_id)
            assert was_alone or count == before[job_id]
            contained = JobStatus.DEAD_LETTER if count == 3 else JobStatus.QUEUED
            assert self.status(job_id) is (JobStatus.CANCELED if job_id in self.asked else contained)
            self.release(job_id)

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(self.made))
        status = self.status(job_id)
        try:
            self.run(actions.cancel(self.tx, TESTER, job_id))
        except JobNotCancelable:
            assert status in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.DEAD_LETTER)
        if status is JobStatus.RUNNING:
            self.asked.add(job_id)

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.over)))
        try:
            self.run(actions.retry(self.tx, TESTER, given.catalog(), job_id))
        except JobNotRetryable:
            return  # it succeeded, or another job has its key
        del self.over[job_id]
        assert self.status(job_id) is JobStatus.QUEUED

    @rule()
    def time_passes(self) -> None:
        self.values(
            "with due as (update fairlead.later set due_at = clock_timestamp() returning job_id, due_at) "
            "update fairlead.job_records j set scheduled_for = due_at from due where j.id = job_id returning 1"
        )
        waiting = self.values("select job_id from fairlead.later where not alone")
        assert self.run(queue.stage_due(self.tx)) == len(waiting)
        assert all(alone for (alone,) in self.values("select alone from fairlead.later"))

    @rule(scope=st.sampled_from(sorted(FULL)), most=st.sampled_from([None, 1, 2, 3]), which=st.booleans())
    def limit(self, scope: str, most: int | None, *, which: bool) -> None:
        table, column = {
            "tenant": ("tenants", "max_running"),
            "definition": ("job_definitions", "max_running"),
            "both": ("job_definitions", "max_running_per_tenant"),
        }[scope]
        where = (
            f"slug = '{TENANT if which else OTHER}'" if scope == "tenant" else f"(key = 'greet') = {which}"
        )
        self.run(self.tx.run(f"update fairlead.{table} set {column} = %s where {where}", [most]))

    def release(self, job_id: UUID) -> None:
        del self.owned[job_id]
        self.asked.discard(job_id)

    @invariant()
    def queue_and_record_agree(self) -> None:
        assert self.run(jobs.list_inconsistencies(self.tx)) == []
        leases = self.values("select job_id, attempt_no, token from fairlead.leases")
        assert {Lease(*row) for row in leases} == set(self.owned.values())

    @invariant()
    def the_end_is_the_end(self) -> None:
        rows = dict(self.values("select id, j::text from fairlead.jobs j where status > 'running'"))
        assert {job_id: rows.get(job_id) for job_id in self.over} == self.over
        self.over = rows

    @invariant()
    def attempts_are_numbered_without_gaps_and_one_is_live(self) -> None:
        wrong = self.values(
            "select j.id from fairlead.jobs j left join fairlead.attempts a on a.job_id = j.id "
            "group by j.id, j.attempt_count, j.status having count(a) <> j.attempt_count or coalesce(max(a.attempt_no), 0) <> j.attempt_count "
            "or count(*) filter (where a.status = 'running') <> (j.status = 'running')::int"
        )
        assert wrong == []

    @invariant()
    def a_key_has_one_active_job(self) -> None:
        twice = self.values(
            "select 1 from fairlead.jobs where status <= 'running' and dedupe_key is not null "
            "group by tenant_id, dedupe_key having count(*) > 1"
        )
        assert twice == []


@pytest.mark.deeper
def test_whatever_happens_the_promises_hold(database_url: str) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        # a long lease: its transactions may be idle for as long as an example takes
        database = Database(database_url, Settings(database_url=database_url, lease_seconds=3600))
        runner.run(database.open())
        try:
            machine = type("Bound", (Life,), {"runner": runner, "database": database})
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=examples(40),
                    stateful_step_count=30,
                    deadline=None,
                    # thirty steps can be read as they are; shortening them takes minutes
                    phases=[Phase.reuse, Phase.generate],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(database.close())


RACERS: dict[str, Callable[[Tx, Lease], Awaitable[Any]]] = {
    "claim": lambda tx, _: queue.claim(tx, worker="other", wanted=1, lease_seconds=30),
    "finish": lambda tx, lease: queue.finish(tx, [(lease, SUCCESS)], actor="w"),
    "heartbeat": lambda tx, lease: queue.heartbeat(tx, [lease], lease_seconds=30),
    "rescue": lambda tx, _: rescue.rescue(tx),
    "claim_suspect": lambda tx, _: queue.claim_suspect(tx, worker="other", lease_seconds=30, idle=True),
    "cancel": lambda tx, lease: actions.cancel(tx, TESTER, lease.job_id),
    "stage": lambda tx, _: queue.stage_due(tx),
}


async def one_job(tx: Tx, state: str) -> Lease:
    """The only job, in that state; its lease, if it has one."""
    for table in ("ready", "later", "leases", "active_keys", "job_attempts", "counts", "job_records"):
        await tx.run(f"delete from fairlead.{table}")
    lease = Lease(await given.queued_job(tx, dedupe_key="key"), 1, uuid4())
    if state in {"later", "alone"}:
        await given.wait_again(tx, alone=state == "alone")
    if state in {"running", "expired"}:
        claim = await queue.claim(tx, worker="w", wanted=1, lease_seconds=30)
        lease = claim.lease(claim.jobs[0])
    if state == "expired":
        await given.end_leases(tx)
    return lease


async def race(db: Database, lease: Lease, first: str, second: str) -> list[Any]:
    """Do the first, let the second run into it, commit the first: what each answered."""

    async def follow() -> Any:
        async with db.transaction() as tx:
            return await RACERS[second](tx, lease)

    answers = []
    async with db.transaction() as tx:
        answers.append(await RACERS[first](tx, lease))
        task = asyncio.create_task(follow())
        deadline = asyncio.get_running_loop().time() + 8
        # until it is through, or waits for a lock
        while not task.done() and asyncio.get_running_loop().time() < deadline:
            if await db.single(lambda look: look.values("select 1 from pg_locks where not granted")):
                break
    answers += await asyncio.gather(task, return_exceptions=True)
    return answers


@pytest.mark.parametrize("state", mostly_thorough(["running", "ready", "later", "alone", "expired"], fast=2))
async def test_two_transitions_at_once_neither_deadlock_nor_overwrite(db: Database, state: str) -> None:
    for first, second in itertools.product(RACERS, repeat=2):
        async with db.transaction() as tx:
            lease = await one_job(tx, state)

        before, after = await race(db, lease, first, second)

        assert not isinstance(after, Exception) or isinstance(after, JobNotCancelable), (first, second)
        await given.no_inconsistencies(db)
        job = await given.read_job(db, lease.job_id)
        if state == "expired" and {first, second} == {"finish", "rescue"}:
            won = {"finish": {lease.job_id: JobStatus.SUCCEEDED}, "rescue": {lease.job_id: JobStatus.QUEUED}}
            lost: dict[str, Any] = {"finish": {}, "rescue": {}}
            assert (before, after) == (won[first], lost[second])
            assert job.status is (JobStatus.SUCCEEDED if first == "finish" else JobStatus.QUEUED)
        if state == "running" and {first, second} == {"finish", "cancel"}:
            assert job.status is JobStatus.SUCCEEDED
        if state == "ready" and {first, second} == {"claim", "cancel"}:
            assert job.status is (JobStatus.RUNNING if first == "claim" else JobStatus.CANCELED)
            assert job.cancel_requested_at is not None
        if second == "heartbeat":
            assert isinstance(after, dict)
            assert list(after) == ([lease] if state == "running" else [])


async def test_a_heartbeat_and_a_finish_of_many_leases_do_not_wait_for_each_other(db: Database) -> None:
    async with db.transaction() as tx:
        for _ in range(6):
            await given.queued_job(tx)
        claim = await queue.claim(tx, worker="w", wanted=6, lease_seconds=30)
    leases = [claim.lease(job) for job in claim.jobs]
    async with db.transaction() as one, db.transaction() as two:
        assert len(await queue.finish(one, [(lease, SUCCESS) for lease in leases[:3]], actor="w")) == 3
        alive = await asyncio.wait_for(queue.heartbeat(two, leases[::-1], lease_seconds=90), 60)
        assert alive.keys() == set(leases)
        assert sorted(beat.renewed for beat in alive.values()) == [False] * 3 + [True] * 3
        [(renewed,)] = await two.values(
            "select count(*) from fairlead.leases where expires_at > clock_timestamp() + interval '60 s'"
        )
        assert renewed == 3
