"""Suspects in the queue: who becomes one, who is charged, and to whom one is given."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from fairlead.actions import definitions, gates
from fairlead.actions import jobs as actions
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Backoff, Failed, Released, RetryBudget, Succeeded, decide
from fairlead.store import jobs, queue, rescue, testing
from tests import given
from tests.given import OTHER, TENANT, TESTER

BUDGET = RetryBudget(3, 0, 0, Backoff())


async def take(tx: Tx, wanted: int = 1, *, worker: str = "w") -> list[Lease]:
    claim = await queue.claim(tx, worker=worker, wanted=wanted, lease_seconds=30)
    return [claim.lease(job) for job in claim.jobs]


async def take_suspect(tx: Tx, *, worker: str = "w", **options: Any) -> list[Lease]:
    claim = await queue.claim_suspect(tx, worker=worker, lease_seconds=30, **options)
    return [claim.lease(job) for job in claim.jobs]


async def lose(tx: Tx, *leases: Lease) -> None:
    """Their owner does not renew them, and time passes."""
    await tx.run(
        "update fairlead.leases set expires_at = clock_timestamp() where job_id = any(%s)",
        [[one.job_id for one in leases]],
    )
    await rescue.rescue(tx)
    await testing.make_all_due(tx)
    await queue.stage_due(tx)


async def stands(tx: Tx, job_id: UUID) -> tuple[str, int, int, bool]:
    """(status, charged losses, losses without a charge, whether it waits to be started by itself)"""
    [row] = await tx.values(
        "select j.status::text, j.lost_count, j.suspected, "
        "exists (select from fairlead.later l where l.job_id = j.id and l.alone) from fairlead.jobs j where j.id = %s",
        [job_id],
    )
    return row[0], row[1], row[2], row[3]


async def suspect(tx: Tx, *, accused: bool = False, **fields: Any) -> UUID:
    """A job that is due and waits to be started by itself."""
    job_id = await given.queued_job(tx, **fields)
    await given.set_job(tx, job_id, suspected=2, accused=accused)
    await tx.run(
        "with due as (delete from fairlead.ready where job_id = %s returning *) "
        "insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, alone, limit_key) "
        "select job_id, tenant_id, definition_id, host_id, priority, scheduled_for, true, limit_key from due",
        [job_id],
    )
    return job_id


@pytest.fixture(autouse=True)
async def _consistent(tx: Tx) -> Any:
    yield
    assert await jobs.list_inconsistencies(tx) == []


# Who is charged


async def test_jobs_that_were_lost_together_are_not_charged_and_from_the_second_loss_on_are_suspects(
    tx: Tx,
) -> None:
    made = [await given.queued_job(tx) for _ in range(3)]
    for loss in (1, 2):
        await lose(tx, *await take(tx, 3))
        assert {await stands(tx, one) for one in made} == {("queued", 0, loss, loss == 2)}
    assert await take(tx, 3) == []


async def test_leases_of_one_worker_that_end_one_after_the_other_are_one_loss(tx: Tx) -> None:
    made = [await given.queued_job(tx) for _ in range(3)]
    for lease in await take(tx, 3):
        await lose(tx, lease)
    assert {await stands(tx, one) for one in made} == {("queued", 0, 1, False)}


async def test_jobs_of_different_workers_are_no_company(tx: Tx) -> None:
    one, other = await given.queued_job(tx), await given.queued_job(tx)
    leases = await take(tx, worker="w1") + await take(tx, worker="w2")
    await lose(tx, *leases)
    assert {await stands(tx, job) for job in (one, other)} == {("queued", 1, 0, False)}


async def test_a_suspect_that_is_lost_on_probation_beside_others_is_accused_and_they_are_cleared(
    tx: Tx,
) -> None:
    beside = [await given.queued_job(tx) for _ in range(2)]
    settled = await take(tx, 2)
    one = await suspect(tx)
    [lease] = await take_suspect(tx, idle=False)
    await lose(tx, *settled)  # those that end first know of it as well
    await lose(tx, lease)

    assert {await stands(tx, job) for job in beside} == {("queued", 0, 0, False)}
    assert await stands(tx, one) == ("queued", 0, 3, True)
    assert await take_suspect(tx, idle=False) == []
    [alone] = await take_suspect(tx, worker="other", idle=True)
    await lose(tx, alone)
    assert await stands(tx, one) == ("queued", 1, 3, True)


async def test_a_suspect_that_is_lost_alone_three_times_is_contained(tx: Tx) -> None:
    one = await suspect(tx)
    for loss in (1, 2, 3):
        await lose(tx, *await take_suspect(tx, idle=True))
        assert (await stands(tx, one))[1] == loss
    job = await given.read_job(tx, one)
    assert job.status is JobStatus.DEAD_LETTER
    assert "poison" in (job.last_error or "")


async def test_a_job_that_was_lost_a_hundred_times_beside_others_is_a_dead_letter_that_says_so(
    tx: Tx,
) -> None:
    one = await given.queued_job(tx)
    await given.queued_job(tx)
    await tx.run("update fairlead.job_records set suspected = 99 where id = %s", [one])
    await lose(tx, *await take(tx, 2))
    job = await given.read_job(tx, one)
    assert (job.status, job.lost_count) == (JobStatus.DEAD_LETTER, 0)
    assert "100 times" in (job.last_error or "")


async def test_retry_by_hand_forgets_the_suspicion(tx: Tx) -> None:
    one = await suspect(tx, accused=True)
    for _ in range(3):
        await lose(tx, *await take_suspect(tx, idle=True))
    await actions.retry(tx, TESTER, given.catalog(), one)
    assert await stands(tx, one) == ("queued", 0, 0, False)
    await lose(tx, *await take(tx))
    assert await stands(tx, one) == ("queued", 1, 0, False)


@pytest.mark.parametrize(
    ("metadata", "seen", "charged"),
    [("{}", "1 s", 0), ("{}", "-60 s", 1), ('{"transport": "http"}', "1 s", 1)],
)
async def test_a_loss_is_not_charged_if_its_worker_is_seen_again(
    tx: Tx, metadata: str, seen: str, charged: int
) -> None:
    """It was cut off. One over HTTP may be a new process under an old name."""
    one = await given.queued_job(tx)
    await lose(tx, *await take(tx))
    assert await stands(tx, one) == ("queued", 1, 0, False)
    await tx.run(
        "insert into fairlead.job_workers (worker_id, hostname, version, metadata, last_seen_at) "
        "values ('w', 'box', '1.0', %s, clock_timestamp() + %s::interval)",
        [metadata, seen],
    )

    assert await rescue.undo_charges(tx) == ([] if charged else [one])

    assert await stands(tx, one) == ("queued", charged, 0, False)
    assert await rescue.undo_charges(tx) == []


# To whom a suspect is given


async def test_neither_the_stager_nor_a_claim_sees_a_suspect(tx: Tx) -> None:
    one = await suspect(tx)
    assert await queue.stage_due(tx) == 0
    assert await queue.seconds_until_due(tx) is None
    assert await take(tx) == []
    [lease] = await take_suspect(tx)
    assert (lease.job_id, lease.attempt_no) == (one, 1)


async def test_suspects_are_given_one_at_a_time_the_oldest_first(tx: Tx) -> None:
    made = [await suspect(tx, tenant=tenant) for tenant in (OTHER, TENANT, OTHER)]
    given_out = [lease.job_id for _ in range(4) for lease in await take_suspect(tx, idle=True)]
    assert given_out == made


async def test_a_claim_waits_for_no_suspect_that_another_transaction_holds(db: Database) -> None:
    held, free = [await db.transact(suspect) for _ in range(2)]
    async with db.transaction() as holding:
        await holding.run("select from fairlead.later where job_id = %s for update", [held])
        async with db.transaction() as tx:
            await tx.run("set local lock_timeout = '1ms'")
            assert [lease.job_id for lease in await take_suspect(tx, idle=True)] == [free]


async def test_a_backdated_suspect_has_waited_since_it_was_enqueued(tx: Tx) -> None:
    await suspect(tx, scheduled_for=datetime(2026, 1, 1, tzinfo=UTC))
    assert len(await take_suspect(tx, idle=True)) == 1
    waited = "l.queue_ms <= 1000 * date_part('epoch', l.started_at - j.queued_at) + 1"
    assert await tx.values(
        f"select {waited} from fairlead.leases l join fairlead.job_records j on j.id = l.job_id"
    ) == [(True,)]


async def test_a_suspect_has_all_that_a_claimed_job_has_and_its_probation(tx: Tx) -> None:
    await suspect(tx, correlation_id="c", payload={"name": "Grace"})
    claim = await queue.claim_suspect(tx, worker="w", lease_seconds=30, waits=True)
    [job] = claim.jobs
    assert (job.tenant, job.definition_key, job.payload, job.correlation_id) == (
        TENANT,
        "greet",
        {"name": "Grace"},
        "c",
    )
    assert job.probation == 10
    assert job.waited >= 0
    done = await queue.finish(tx, [(claim.lease(job), decide(job, Succeeded()))], actor="w")
    assert done == {job.job_id: JobStatus.SUCCEEDED}


@pytest.mark.parametrize(
    ("suspected", "lease_seconds", "probation"),
    [(0, 30, 10), (2, 30, 10), (3, 30, 20), (5, 30, 80), (50, 30, 300), (2, 3, 1), (4, 3, 4), (2, 900, 10)],
)
async def test_a_probation_doubles_with_each_further_loss(
    tx: Tx, suspected: int, lease_seconds: float, probation: float
) -> None:
    await suspect(tx)
    await tx.run("update fairlead.job_records set suspected = %s", [suspected])
    [job] = (await queue.claim_suspect(tx, worker="w", lease_seconds=lease_seconds)).jobs
    assert job.probation == probation


async def test_a_probation_is_no_longer_than_the_time_limit(tx: Tx) -> None:
    await suspect(tx)
    await definitions.patch(tx, TESTER, "greet", {"timeout_seconds": 3})
    [job] = (await queue.claim_suspect(tx, worker="w", lease_seconds=30)).jobs
    assert job.probation == 3


async def test_a_worker_that_holds_leases_is_given_none_unless_it_says_that_it_may(tx: Tx) -> None:
    await given.queued_job(tx)
    [lease] = await take(tx)
    one = await suspect(tx)
    assert await take_suspect(tx) == []
    await queue.finish(tx, [(lease, decide(BUDGET, Succeeded()))], actor="w")
    assert [lease.job_id for lease in await take_suspect(tx)] == [one]


async def test_an_accused_job_goes_to_an_idle_worker_or_has_waited_for_ten_leases(tx: Tx) -> None:
    one = await suspect(tx, accused=True)
    assert await take_suspect(tx, idle=False) == []
    await testing.pass_time(tx, 301)
    assert [lease.job_id for lease in await take_suspect(tx, idle=False)] == [one]


async def test_a_suspect_waits_for_gates_limits_and_workers_that_serve_it(tx: Tx) -> None:
    one = await suspect(tx)
    known = await definitions.get_by_keys(tx, TESTER, ["greet", "anything"])
    tenant_id = (await actions.show_job(tx, TESTER, one))[0].tenant_id

    async def is_given(**options: Any) -> bool:
        there = {"served": options.get("served"), "served_pairs": options.get("served_pairs", ())}
        waits = await queue.has_suspect(tx, worker="w", lease_seconds=30, **there)
        async with tx.connection.transaction(force_rollback=True):
            assert bool(await take_suspect(tx, **options)) is waits
        return waits

    assert await is_given()
    assert not await is_given(served=[known["anything"].id])
    assert await is_given(served=[known["greet"].id])
    assert await is_given(served=[], served_pairs=[(known["greet"].id, tenant_id)])
    assert not await is_given(served=[], served_pairs=[(known["greet"].id, uuid4())])
    for closed in ({"tenant": TENANT}, {"definition": "greet"}, {}):
        await gates.pause(tx, TESTER, **closed)
        assert not await is_given()
        await gates.resume(tx, TESTER, **closed)
    await definitions.patch(tx, TESTER, "greet", {"max_running": 1})
    await given.queued_job(tx)
    [lease] = await take(tx, worker="other")
    assert not await is_given()
    await queue.finish(tx, [(lease, decide(BUDGET, Succeeded()))], actor="w")
    assert await is_given()


async def test_a_suspect_that_is_given_back_on_probation_is_still_one_and_one_that_failed_is_not(
    tx: Tx,
) -> None:
    one = await suspect(tx)
    [lease] = await take_suspect(tx)
    back = decide(BUDGET, Released())
    back = type(back)(status=back.status, attempt_status=back.attempt_status, alone=True)
    await queue.finish(tx, [(lease, back)], actor="w")
    assert await stands(tx, one) == ("queued", 0, 2, True)
    [lease] = await take_suspect(tx)
    await queue.finish(tx, [(lease, decide(BUDGET, Failed("E", "again")))], actor="w")
    assert await stands(tx, one) == ("queued", 0, 2, False)


async def test_a_suspect_can_be_canceled_while_it_waits(tx: Tx) -> None:
    one = await suspect(tx)
    await actions.cancel(tx, TESTER, one)
    assert await stands(tx, one) == ("canceled", 0, 2, False)
    assert await take_suspect(tx) == []


async def test_a_suspect_starts_when_its_rate_has_what_it_costs(tx: Tx) -> None:
    rate = {"limit": 10, "per_seconds": 2_000_000, "burst": 10, "cost": "/n"}
    await definitions.patch(tx, TESTER, "greet", {"rate": rate})
    await given.queued_job(tx, payload={"name": "Ada", "n": 9})
    assert len(await take(tx)) == 1
    costly = await suspect(tx, payload={"name": "Ada", "n": 10})
    assert await take_suspect(tx, idle=True) == []
    await tx.run("update fairlead.rate_buckets set counted_at = counted_at - interval '1800000 s'")
    [lease] = await take_suspect(tx, idle=True)
    assert lease.job_id == costly
    [(tokens,)] = await tx.values("select tokens from fairlead.rate_buckets")
    assert 0 <= tokens < 0.1


async def test_a_suspect_waits_for_the_others_of_its_key(tx: Tx) -> None:
    await definitions.patch(tx, TESTER, "greet", {"by_key": {"pointer": "/name", "max_running": 1}})
    await given.queued_job(tx)
    [running] = await take(tx)
    one = await suspect(tx)
    assert await take_suspect(tx, idle=True) == []
    await queue.finish(tx, [(running, decide(BUDGET, Succeeded()))], actor="w")
    assert [lease.job_id for lease in await take_suspect(tx, idle=True)] == [one]


async def test_a_claim_of_a_suspect_waits_for_no_lock_of_its_key(db: Database) -> None:
    async with db.transaction() as tx:
        await definitions.patch(tx, TESTER, "greet", {"by_key": {"pointer": "/name", "max_running": 1}})
        one = await suspect(tx)
        await tx.run(
            "insert into fairlead.key_locks (definition_id, tenant_id, limit_key) "
            "select definition_id, tenant_id, limit_key from fairlead.later"
        )

    async def start(tx: Tx) -> list[UUID]:
        await tx.run("set local lock_timeout = '1ms'")
        return [lease.job_id for lease in await take_suspect(tx, idle=True)]

    async with db.transaction() as holding:
        await holding.run("select from fairlead.key_locks for update")
        assert await db.transact(start) == []
    assert await db.transact(start) == [one]


async def test_in_strict_order_a_suspect_waits_for_the_older_jobs_of_its_key(tx: Tx) -> None:
    rule = {"pointer": "/name", "max_running": 5, "fifo": True}
    await definitions.patch(tx, TESTER, "greet", {"by_key": rule})
    older = await given.queued_job(tx)
    one = await suspect(tx)
    assert await take_suspect(tx, idle=True) == []
    assert [lease.job_id for lease in await take(tx)] == [older]
    assert [lease.job_id for lease in await take_suspect(tx, idle=True)] == [one]
