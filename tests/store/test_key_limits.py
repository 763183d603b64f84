"""Limits by key are exact under churn, and are used."""

import asyncio
import json
import os
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import structlog

from fairlead.actions import definitions, expiry, workflow_progress, workflows
from fairlead.actions.workflows import RunRequest
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.job import Debounce, JobStatus
from fairlead.model.outcome import Backoff, Failed, Outcome, Released, RetryBudget, Succeeded, decide
from fairlead.store import jobs, limit_upkeep, queue, testing
from tests import given
from tests.given import TENANT, TESTER
from tests.waiting import until_somebody_waits

log = structlog.get_logger(__name__)

CHURN_SECONDS = float(os.environ.get("CHURN_SECONDS", "0.6"))
CLAIMERS = 16
OUTCOMES: list[Outcome] = [Succeeded(), Succeeded(), Succeeded(), Released(), Failed("E", "m")]
AT_ONCE = RetryBudget(1000, 0, 0, Backoff(base_seconds=0))
SUCCESS = decide(RetryBudget(3, 0, 0, Backoff()), Succeeded())

FILL = """
with new as (
    insert into fairlead.job_records (id, tenant_id, definition_id, priority, max_attempts, scheduled_for, payload, limit_key)
    select fairlead.uuid7(), t.id, d.id, 100, 3, clock_timestamp(), p.payload, fairlead.limit_key_of(d.by_key, p.payload)
    from fairlead.tenants t, fairlead.job_definitions d, generate_series(1, %(number)s) n,
        lateral (select jsonb_build_object('customer', n %% %(keys)s) as payload) p
    where t.slug = %(tenant)s and d.key = 'greet'
    returning id, tenant_id, definition_id, priority, scheduled_for, limit_key
), counted as (
    insert into fairlead.counts (tenant_id, definition_id, minute, queued)
    select tenant_id, definition_id, date_trunc('minute', clock_timestamp()), count(*) from new group by 1, 2
)
insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for, limit_key)
select id, tenant_id, definition_id, priority, scheduled_for, limit_key from new
"""
# The most attempts of one key that ran at the same time.
MOST_AT_ONCE = """
select max(running) from (
    select sum(step) over (partition by limit_key order by at, step) as running
    from (
        select j.limit_key, a.started_at as at, 1 as step from fairlead.attempts a join fairlead.job_records j on j.id = a.job_id
        union all
        select j.limit_key, a.finished_at, -1 from fairlead.attempts a join fairlead.job_records j on j.id = a.job_id
        where a.finished_at is not null) s) s
"""


AN_HOUR_AGO = "clock_timestamp() - interval '1 hour'"


@pytest.mark.parametrize(("keys", "most"), [(1, 1), (7, 3)])
async def test_no_more_jobs_of_a_key_run_than_it_allows(db: Database, keys: int, most: int) -> None:
    number = 1000
    async with db.transaction() as tx:
        await given.set_definition(tx, "greet", by_key={"pointer": "/customer", "max_running": most})
        await tx.run(FILL, {"number": number, "keys": keys, "tenant": TENANT})
    chance = random.Random(3)  # noqa: S311
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + CHURN_SECONDS
    done = 0

    async def work() -> None:
        nonlocal done
        cursor = queue.Cursor()
        while loop.time() < ends_at and done < number:
            claim = await db.single(
                partial(
                    queue.claim,
                    worker="w",
                    wanted=chance.choice([1, 5, 30]),
                    lease_seconds=600,
                    cursor=cursor,
                )
            )
            cursor = claim.cursor
            outcome: Outcome = chance.choice(OUTCOMES)
            ends = [(claim.lease(job), decide(AT_ONCE, outcome)) for job in claim.jobs]
            if ends:
                did = await db.single(partial(queue.finish, ends=ends, actor="w"))
                assert len(did) == len(ends)
                done += sum(one.value == "succeeded" for one in did.values())
            else:
                await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as group:
        for _ in range(CLAIMERS):
            group.create_task(work())
    async with db.transaction() as tx:
        [(at_once,)] = await tx.values(MOST_AT_ONCE)
    log.info("keys", keys=keys, most=most, done=done, at_once=at_once)
    assert at_once <= most


async def hold_back(tx: Tx, most: int, number: int) -> None:
    """Jobs of one key, of which `most` run, and the others are held back."""
    await definitions.patch(tx, TESTER, "greet", {"by_key": {"pointer": "/customer", "max_running": most}})
    await tx.run(FILL, {"number": number, "keys": 1, "tenant": TENANT})
    claim = await queue.claim(tx, worker="w", wanted=number, lease_seconds=600)
    assert len(claim.jobs) == most
    assert await given.count(tx, "ready") == 0


@pytest.mark.parametrize(
    ("by_key", "free"),
    [({"pointer": "/customer", "max_running": 3}, 2), (None, 9)],
    ids=["raised", "removed"],
)
async def test_jobs_may_go_when_the_limit_of_their_keys_is(tx: Tx, by_key: Any, free: int) -> None:
    await hold_back(tx, 1, 10)
    await definitions.patch(tx, TESTER, "greet", {"by_key": by_key})
    await queue.stage_due(tx)
    assert len((await queue.claim(tx, worker="w", wanted=10, lease_seconds=600)).jobs) == free


# What an enqueue does to other jobs of its key, and strict order


async def limit_by_key(tx: Tx, **rule: Any) -> None:
    text = json.dumps({"pointer": "/name", "max_running": 1, **rule})
    await tx.run(
        "update fairlead.job_definitions set by_key = %s, version = version + 1 where key = 'greet'", [text]
    )


async def claim(tx: Tx, wanted: int = 10) -> dict[UUID, Any]:
    got = await queue.claim(tx, worker="w", wanted=wanted, lease_seconds=600)
    while got.again and not got.jobs:
        got = await queue.claim(tx, worker="w", wanted=wanted, lease_seconds=600)
    return {job.job_id: got.lease(job) for job in got.jobs}


async def end(tx: Tx, *leases: Any) -> None:
    ends = [(lease, SUCCESS) for lease in leases]
    assert len(await queue.finish(tx, ends, actor="w")) == len(ends)


async def statuses(tx: Tx, *ids: UUID) -> list[str]:
    found: dict[UUID, str] = dict(
        await tx.values("select id, status from fairlead.jobs where id = any(%s)", [list(ids)])
    )
    return [found[one] for one in ids]


async def test_the_next_job_of_a_key_starts_when_one_has_ended(tx: Tx) -> None:
    await limit_by_key(tx)
    one, two, three = [await given.queued_job(tx) for _ in range(3)]
    other = await given.queued_job(tx, payload={"name": "Bob"})
    first = await claim(tx)
    assert set(first) == {one, other}
    assert await claim(tx) == {}
    await end(tx, first[one])
    assert set(await claim(tx)) == {two}
    assert await jobs.cancel_queued(tx, three)
    assert await jobs.list_inconsistencies(tx) == []


async def test_drop_new(tx: Tx) -> None:
    await limit_by_key(tx, strategy="drop_new")
    one = await given.queued_job(tx)
    assert await given.queued_job(tx) == one
    [lease] = (await claim(tx)).values()
    assert await given.queued_job(tx) == one
    await end(tx, lease)
    assert await given.queued_job(tx) != one


async def test_a_debounced_job_that_is_dropped_leaves_nothing_behind(tx: Tx) -> None:
    await limit_by_key(tx, strategy="drop_new")
    running = await given.running_job(tx)
    assert await given.queued_job(tx, debounce=Debounce(key="k", seconds=60)) == running
    assert await given.debounced_jobs(tx) == []


async def test_replace_queued(tx: Tx) -> None:
    await limit_by_key(tx, strategy="replace_queued")
    one = await given.queued_job(tx)
    await claim(tx)
    two = await given.queued_job(tx)
    await claim(tx)  # it is held back now
    three = await given.queued_job(tx)
    assert await statuses(tx, one, two, three) == ["running", "canceled", "queued"]
    four = await given.queued_job(tx)
    assert await statuses(tx, one, three, four) == ["running", "canceled", "queued"]
    assert await jobs.list_inconsistencies(tx) == []


async def test_a_backdated_job_is_replaced_too(tx: Tx) -> None:
    """The queue has the time when it was enqueued. A request to stop that came before keeps its time."""
    await limit_by_key(tx, strategy="replace_queued")
    past = datetime(2026, 1, 1, tzinfo=UTC)
    backdated = await given.queued_job(tx, scheduled_for=past)
    await given.set_job(tx, backdated, cancel_requested_at=past)

    new = await given.queued_job(tx)

    assert await statuses(tx, backdated, new) == ["canceled", "queued"]
    assert (await given.read_job(tx, backdated)).cancel_requested_at == past


@pytest.mark.parametrize(
    ("strategy", "table"),
    [("replace_queued", "ready"), ("cancel_running", "ready"), ("replace_queued", "later")],
)
async def test_a_job_that_a_claim_looks_at_is_replaced_too(db: Database, strategy: str, table: str) -> None:
    """Claims lock the job that waits, and leave it, since its key is at its limit; ends lock jobs that are held back."""
    async with db.transaction() as tx:
        await limit_by_key(tx, strategy=strategy)
        await given.queued_job(tx)
        await claim(tx)
        replaced = await given.queued_job(tx)
        if table == "later":
            assert await claim(tx) == {}
    async with db.transaction() as looking:
        assert len(await looking.values(f"select from fairlead.{table} for update")) == 1
        enqueueing = asyncio.create_task(db.transact(given.queued_job))
        await until_somebody_waits(looking)
        await given.roll_back(looking)
        new = await enqueueing
    assert await db.transact(lambda tx: statuses(tx, replaced, new)) == ["canceled", "queued"]


@pytest.mark.parametrize("fifo", [True, False])
async def test_a_job_that_was_locked_when_its_turn_came_goes_when_the_lock_is_given_up(
    db: Database, *, fifo: bool
) -> None:
    """A transaction that changes a waiting job lets its key go on when it commits. It may be rolled back."""
    async with db.transaction() as tx:
        await limit_by_key(tx, fifo=fifo)
        first = await given.queued_job(tx)
        [lease] = (await claim(tx)).values()
        second = await given.queued_job(tx)
        assert await claim(tx) == {}
    async with db.transaction() as editing:
        assert await jobs.lock_waiting(editing, second)
        assert await db.transact(lambda tx: queue.finish(tx, [(lease, SUCCESS)], actor="w")) == {
            first: JobStatus.SUCCEEDED
        }
        assert await db.transact(claim) == {}
        # looked at again while it is still locked, it is not looked at in a circle
        await db.transact(lambda tx: tx.run(f"update fairlead.rate_buckets set wake_at = {AN_HOUR_AGO}"))
        await db.transact(queue.stage_due)
        late = f"select wake_at > {AN_HOUR_AGO} + interval '30 minutes' from fairlead.rate_buckets"
        assert await db.transact(lambda tx: tx.values(late)) == [(True,)]
        await given.roll_back(editing)
    assert await db.transact(queue.seconds_until_due) is not None
    await db.transact(lambda tx: tx.run("update fairlead.rate_buckets set wake_at = clock_timestamp()"))
    await db.transact(queue.stage_due)
    assert set(await db.transact(claim)) == {second}
    assert await db.transact(queue.seconds_until_due) is None


async def test_cancel_running(tx: Tx) -> None:
    await limit_by_key(tx, strategy="cancel_running")
    one = await given.queued_job(tx)
    [lease] = (await claim(tx)).values()
    two = await given.queued_job(tx)
    assert (await given.read_job(tx, one)).cancel_requested_at is not None
    [entry] = await given.audit_entries(tx, "JOB_CANCEL_REQUESTED")
    assert (entry.resource_id, entry.details["reason"]) == (str(one), "replaced")
    assert await claim(tx) == {}
    done = await queue.finish(
        tx, [(lease, decide(RetryBudget(3, 0, 0, Backoff()), Failed("Canceled", "")))], actor="w"
    )
    assert done == {one: JobStatus.CANCELED}
    assert set(await claim(tx)) == {two}


@pytest.mark.parametrize("fifo", [True, False])
async def test_in_strict_order_a_retry_blocks_its_key(tx: Tx, *, fifo: bool) -> None:
    await limit_by_key(tx, fifo=fifo)
    one, two, three = [await given.queued_job(tx, priority=100 - n) for n in range(3)]
    first = await claim(tx, 1)
    assert set(first) == ({one} if fifo else {three})
    [(job, lease)] = first.items()
    await queue.finish(
        tx, [(lease, decide(RetryBudget(3, 0, 0, Backoff(base_seconds=60)), Failed("E", "m")))], actor="w"
    )
    after = await claim(tx)
    assert set(after) == (set() if fifo else {two})
    assert await jobs.list_inconsistencies(tx) == []
    if fifo:
        await testing.make_all_due(tx)
        await queue.stage_due(tx)
        [(again, lease)] = (await claim(tx)).items()
        assert again == job
        await end(tx, lease)
        assert set(await claim(tx)) == {two}


async def test_in_strict_order_each_end_lets_the_next_one_go(tx: Tx) -> None:
    """Also while newer jobs, which no claim has seen yet, are ready: they take nobody's place."""
    await limit_by_key(tx, fifo=True)
    made = [await given.queued_job(tx) for _ in range(7)]
    ran = []
    while got := await claim(tx, 5):
        assert await jobs.list_inconsistencies(tx) == []
        [(job, lease)] = got.items()
        ran.append(job)
        await end(tx, lease)
        assert await jobs.list_inconsistencies(tx) == []
    assert ran == made


async def test_in_strict_order_several_run_beside_each_other(tx: Tx) -> None:
    await limit_by_key(tx, fifo=True, max_running=3)
    made = [await given.queued_job(tx) for _ in range(12)]
    ran: list[UUID] = []
    running: dict[UUID, Any] = {}
    while got := await claim(tx, 5):
        running |= got
        ran += sorted(got)
        assert len(running) == min(3, 12 - len(ran) + len(running))
        await end(tx, running.pop(max(running)))  # the newest first
    assert ran == made
    await end(tx, *running.values())


async def test_a_free_key_in_strict_order_is_noticed_and_found(tx: Tx) -> None:
    """If a release was lost: by the duty, and by doctor."""
    await limit_by_key(tx, fifo=True)
    older, newer = [await given.queued_job(tx) for _ in range(2)]
    await tx.run(
        "with gone as (delete from fairlead.ready where job_id = %s returning *) "
        "insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, held, limit_key) "
        "select g.job_id, g.tenant_id, g.definition_id, g.host_id, g.priority, j.scheduled_for, true, g.limit_key "
        "from gone g join fairlead.job_records j on j.id = g.job_id",
        [older],
    )
    assert [job for job, _ in await jobs.list_inconsistencies(tx)] == [older]
    assert (await limit_upkeep.release_free_keys(tx, limit_upkeep.LimitPlace(), look=10)).released == 1
    assert await jobs.list_inconsistencies(tx) == []
    got = await claim(tx)
    assert list(got) == [older]
    await end(tx, *got.values())
    assert list(await claim(tx)) == [newer]


@pytest.mark.parametrize("delay", [0, 3600])
async def test_in_strict_order_the_oldest_job_may_be_canceled_while_others_are_claimed(
    db: Database, delay: int
) -> None:
    """Before the key has a lock."""
    async with db.transaction() as tx:
        await limit_by_key(tx, fifo=True)
        oldest = await given.queued_job(tx, delay=delay)
        following = await given.queued_job(tx)
    async with db.transaction() as canceling:
        assert await jobs.cancel_queued(canceling, oldest)
        assert await db.transact(claim) == {}
    assert set(await db.transact(claim)) == {following}


async def test_an_expired_job_does_not_block_its_key(tx: Tx) -> None:
    await limit_by_key(tx)
    running = await given.claimed_job(tx)
    late = await given.queued_job(tx, expires_in=3600)
    next_one = await given.queued_job(tx)
    assert await claim(tx) == {}
    await end(tx, running)  # the late one is let go
    await given.expire_jobs(tx)
    assert await claim(tx) == {}  # a claim does not start it
    await expiry.expire_jobs(tx, limit=10)
    assert await statuses(tx, late) == ["canceled"]
    assert await jobs.list_inconsistencies(tx) == []
    assert set(await claim(tx)) == {next_one}


LET_GO = """
select fairlead.let_held_go(d.id, l.tenant_id, l.limit_key, d.by_key)
from (select distinct definition_id, tenant_id, limit_key from fairlead.later where held) l
join fairlead.job_definitions d on d.id = l.definition_id
"""


@pytest.mark.parametrize("fifo", [True, False])
async def test_as_many_held_jobs_go_as_may_run_and_none_that_another_transaction_holds(
    db: Database, *, fifo: bool
) -> None:
    async with db.transaction() as tx:
        await limit_by_key(tx, fifo=fifo)
        await given.running_job(tx)
        oldest, urgent, _ = [await given.queued_job(tx, priority=priority) for priority in (5, 1, 9)]
        assert await claim(tx) == {}
    first, second = (oldest, urgent) if fifo else (urgent, oldest)
    async with db.transaction() as holding, db.transaction() as tx:
        await holding.run("select from fairlead.later where job_id = %s for update", [first])
        await tx.run("set local lock_timeout = '1ms'")
        await tx.values(LET_GO)
        assert await given.ready_jobs(tx) == [second]
        await tx.connection.execute("rollback")
        await tx.connection.execute("begin")
    async with db.transaction() as tx:
        await tx.values(LET_GO)
        assert await given.ready_jobs(tx) == [first]


@pytest.mark.parametrize("place", ["ready", "later", "ready of a host", "expiries"])
async def test_a_round_of_expiries_waits_for_nobody(db: Database, place: str) -> None:
    """It leaves a job that another transaction holds to the next round."""
    table, _, of_host = place.partition(" ")
    async with db.transaction() as tx:
        due = {"scheduled_for": datetime.now(UTC) + timedelta(hours=1)} if table == "later" else {}
        late = await given.queued_job(tx, expires_in=7200, **due)
        if of_host:
            await given.bind_to_host(tx, late, await given.host(tx))
        await given.expire_jobs(tx)

    async def expire(tx: Tx) -> list[str]:
        await tx.run("set local lock_timeout = '1ms'")
        await expiry.expire_jobs(tx, limit=10)
        return await statuses(tx, late)

    async with db.transaction() as looking:
        assert len(await looking.values(f"select from fairlead.{table} for update")) == 1
        assert await db.transact(expire) == ["queued"]
    assert await db.transact(expire) == ["canceled"]


async def test_with_a_rate_alone_strategies_act_on_what_waits(tx: Tx) -> None:
    await limit_by_key(
        tx, max_running=None, rate={"limit": 1, "per_seconds": 3600, "burst": 1}, strategy="drop_new"
    )
    one = await given.queued_job(tx)
    assert set(await claim(tx)) == {one}
    two = await given.queued_job(tx)
    assert two != one
    assert await given.queued_job(tx) == two
    await limit_by_key(
        tx, max_running=None, rate={"limit": 1, "per_seconds": 3600, "burst": 1}, strategy="replace_queued"
    )
    three = await given.queued_job(tx)
    assert await statuses(tx, one, two, three) == ["running", "canceled", "queued"]


@pytest.mark.parametrize("fifo", [False, True])
async def test_ends_of_attempts_do_not_wait_for_an_open_enqueue(db: Database, *, fifo: bool) -> None:
    """Although the enqueue lets a step go that was held back, and the end releases another step of the key."""
    step = {"definition": "greet", "payload": {"name": "Ada"}}
    async with db.transaction() as tx:
        await limit_by_key(tx, strategy="replace_queued", fifo=fifo)
        steps = [{"name": "first", **step}, {"name": "late", "after": ["first"], **step}]
        await workflows.start_inline(tx, TESTER, {"key": "w", "steps": steps}, RunRequest(tenant=TENANT))
        [(_, lease)] = (await claim(tx)).items()
        await workflows.start_inline(
            tx, TESTER, {"key": "v", "steps": [{"name": "held", **step}]}, RunRequest(tenant=TENANT)
        )
        [held] = await find_waiting(tx)
        assert await claim(tx) == {}  # it is held back now
        replaced = await given.queued_job(tx)
    async with db.transaction() as enqueuer:
        newest = await given.queued_job(enqueuer)
        assert await statuses(enqueuer, replaced) == ["canceled"]
        async with db.transaction() as tx:
            await tx.run("set local lock_timeout = '1s'")
            await end_step(tx, lease)
    ran: list[UUID] = []
    async with db.transaction() as tx:
        while got := await claim(tx):
            ran += got
            await end_step(tx, *got.values())
        assert len(ran) == 3
        assert {held, newest} < set(ran)
        assert await find_waiting(tx) == []


async def test_a_debounced_job_leaves_its_place_to_the_next_and_no_end_waits_for_it(db: Database) -> None:
    async with db.transaction() as tx:
        await limit_by_key(tx, max_running=2)
        first, second = await given.claimed_job(tx), await given.claimed_job(tx)
        debounced = await given.queued_job(tx, debounce=Debounce(key="k", seconds=0.001))
        next_one = await given.queued_job(tx)
        while debounced not in await given.ready_jobs(tx):
            await queue.stage_due(tx, limit=10)
        assert await claim(tx) == {}  # both are held back now
        await end(tx, first)
        assert await given.ready_jobs(tx) == [debounced]
    async with db.transaction() as enqueuer:
        assert await given.queued_job(enqueuer, debounce=Debounce(key="k", seconds=3600)) == debounced
        async with db.transaction() as tx:
            await tx.run("set local lock_timeout = '1s'")
            await end(tx, second)
    async with db.transaction() as tx:
        assert set(await claim(tx)) == {next_one}
        assert await jobs.list_inconsistencies(tx) == []


async def test_a_debounced_job_that_gets_another_key_lets_those_go_that_waited_behind_it(tx: Tx) -> None:
    """In strict order, also while it waits for its time."""
    await limit_by_key(tx, fifo=True)
    key = Debounce(key="k", seconds=3600)
    debounced = await given.queued_job(tx, debounce=key, payload={"name": "one"})
    younger = await given.queued_job(tx, payload={"name": "one"})
    assert await claim(tx) == {}
    assert await given.queued_job(tx, debounce=key, payload={"name": "other"}) == debounced
    assert set(await claim(tx)) == {younger}
    assert await jobs.list_inconsistencies(tx) == []


async def end_step(tx: Tx, *leases: Any) -> None:
    ends = [(lease, SUCCESS) for lease in leases]
    assert len(await workflow_progress.finish_attempts(tx, ends, actor="w")) == len(ends)


async def find_waiting(tx: Tx) -> list[UUID]:
    return [
        job
        for (job,) in await tx.values(
            "select job_id from fairlead.ready union all select job_id from fairlead.later"
        )
    ]
