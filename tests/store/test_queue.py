"""Claim, heartbeat, finish, rescue: what each does to a job, and what a stale owner cannot do."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from fairlead.actions import jobs as actions
from fairlead.db.tx import Tx
from fairlead.model.job import Job, JobStatus, Lease
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
from fairlead.store import bulk, definitions, jobs, queue, rescue, testing
from tests import given
from tests.given import OTHER, TENANT, TESTER

BUDGET = RetryBudget(3, 0, 0, Backoff(jitter=0))
AT_ONCE = RetryBudget(3, 0, 0, Backoff(base_seconds=0))
BROKEN = Failed("ValueError", "it broke")


@pytest.fixture(autouse=True)
async def _consistent(tx: Tx) -> AsyncIterator[None]:
    yield
    assert await jobs.list_inconsistencies(tx) == []


async def take(tx: Tx, wanted: int = 1, **options: Any) -> list[Lease]:
    claim = await queue.claim(tx, worker="w1", wanted=wanted, lease_seconds=30, **options)
    return [claim.lease(job) for job in claim.jobs]


async def take_suspect(tx: Tx, **options: Any) -> list[Lease]:
    claim = await queue.claim_suspect(tx, worker="w1", lease_seconds=30, **options)
    return [claim.lease(job) for job in claim.jobs]


async def running(tx: Tx, **fields: Any) -> Lease:
    job_id = await given.queued_job(tx, **fields)
    [lease] = await take(tx)
    assert lease.job_id == job_id
    return lease


async def finish(
    tx: Tx, lease: Lease, outcome: Outcome | Change, budget: RetryBudget = BUDGET
) -> JobStatus | None:
    change = outcome if isinstance(outcome, Change) else decide(budget, outcome)
    return (await queue.finish(tx, [(lease, change)], actor="worker:w1")).get(lease.job_id)


async def job_of(tx: Tx, lease: Lease) -> Job:
    return await given.read_job(tx, lease.job_id)


async def attempts(tx: Tx, job_id: UUID) -> list[tuple[int, str]]:
    return [(attempt.attempt_no, attempt.status) for attempt in await jobs.list_attempts(tx, job_id)]


async def audited(tx: Tx, job_id: UUID) -> list[str]:
    entries = await given.audit_entries(tx, resource_id=str(job_id))
    return [one.action for one in entries if one.action != "job_created"]


async def everything(tx: Tx) -> list[Any]:
    """All that a worker's write could change."""
    return [
        await tx.values(f"select t::text from fairlead.{table} t order by 1")
        for table in (
            "job_records",
            "ready",
            "later",
            "leases",
            "job_attempts",
            "active_keys",
            "counts",
            "audit_log",
        )
    ]


async def test_a_claim_moves_the_job_from_ready_to_leases(tx: Tx) -> None:
    job_id = await given.queued_job(tx, payload={"name": "Ada"}, correlation_id="c")

    claim = await queue.claim(tx, worker="w1", wanted=5, lease_seconds=30)

    [claimed] = claim.jobs
    job = await given.read_job(tx, job_id)
    assert (job.status, job.attempt_count, job.claimed_by_worker) == (JobStatus.RUNNING, 1, "w1")
    assert job.started_at is not None
    assert job.lease_expires_at == job.started_at + timedelta(seconds=30)
    assert (claimed.job_id, claimed.attempt_no, claimed.tenant, claimed.definition_key) == (
        job_id,
        1,
        TENANT,
        "greet",
    )
    assert (claimed.payload, claimed.correlation_id) == ({"name": "Ada"}, "c")
    assert (claimed.max_attempts, claimed.failure_count, claimed.lost_count) == (3, 0, 0)
    assert claimed.backoff == Backoff(10, 2, 3600, 0.1)
    assert await attempts(tx, job_id) == [(1, "running")]
    assert [await given.count(tx, table) for table in ("ready", "leases")] == [0, 1]
    assert await tx.values("select sum(queued), sum(running) from fairlead.counts") == [(0, 1)]
    assert await take(tx, 5) == []


async def test_only_what_is_served_is_claimed(tx: Tx) -> None:
    await given.queued_job(tx)
    wanted = await given.queued_job(tx, definition="anything", payload={}, tenant=OTHER)
    ids = {
        key: found.id for key, found in (await definitions.get_by_keys(tx, ["anything", "retired"])).items()
    }

    assert await take(tx, 10, served=[]) == []
    assert await take(tx, 10, served=[ids["retired"]]) == []
    assert [lease.job_id for lease in await take(tx, 10, served=[ids["anything"], ids["retired"]])] == [
        wanted
    ]


async def test_a_definition_may_be_served_for_some_tenants_only(tx: Tx) -> None:
    await given.queued_job(tx)
    wanted = await given.queued_job(tx, tenant=OTHER)
    elsewhere = await given.queued_job(tx, definition="anything", payload={}, tenant=OTHER)
    found = await definitions.get_by_keys(tx, ["greet", "anything"])
    other = await given.tenant_id(tx, OTHER)

    assert [
        lease.job_id for lease in await take(tx, 10, served=[], served_pairs=[(found["greet"].id, other)])
    ] == [wanted]
    assert [
        lease.job_id for lease in await take(tx, 10, served=[], served_pairs=[(found["anything"].id, other)])
    ] == [elsewhere]


@pytest.mark.parametrize("batch", [1, 2, 10])
async def test_within_a_tenant_priority_goes_before_age_whatever_the_definition(tx: Tx, batch: int) -> None:
    order = [("greet", 7), ("anything", 1), ("anything", 7), ("greet", 1), ("greet", 3), ("anything", 3)]
    made = [
        (priority, n, await given.queued_job(tx, definition=definition, priority=priority))
        for n, (definition, priority) in enumerate(order)
    ]

    cursor, taken = queue.Cursor(), list[UUID]()
    while True:
        claim = await queue.claim(tx, worker="w1", wanted=batch, lease_seconds=30, cursor=cursor)
        taken += [job.job_id for job in claim.jobs]
        cursor = claim.cursor
        if not claim.jobs:
            break
    assert taken == [job_id for _, _, job_id in sorted(made)]


async def test_a_scheduled_job_waits_until_it_is_staged(tx: Tx) -> None:
    assert await queue.seconds_until_due(tx) is None
    [(soon,)] = await tx.values("select clock_timestamp() + interval '1 hour'")
    job_id = await given.queued_job(tx, scheduled_for=soon)
    assert await queue.seconds_until_due(tx) == pytest.approx(3600, abs=5)

    assert await queue.stage_due(tx) == 0
    assert await take(tx) == []
    await testing.pass_time(tx, 3600)
    assert await take(tx) == []
    assert await queue.stage_due(tx) == 1
    assert [lease.job_id for lease in await take(tx)] == [job_id]


async def test_staging_is_bounded_and_takes_the_oldest_first(tx: Tx) -> None:
    [(soon,)] = await tx.values("select clock_timestamp() + interval '1 hour'")
    made = [await given.queued_job(tx, scheduled_for=soon + timedelta(seconds=n)) for n in (2, 0, 1)]
    await testing.pass_time(tx, 7200)

    assert await queue.stage_due(tx, limit=2) == 2
    assert await tx.values("select job_id from fairlead.later") == [(made[0],)]


async def test_the_look_for_due_jobs_reads_only_due_ones(tx: Tx) -> None:
    await tx.prefer_indexes()
    rows = await tx.values(f"explain {queue.sql.stage}", {"limit": 1000})
    plan = "\n".join(line for (line,) in rows)
    assert "Index Scan using later_due" in plan
    assert "Index Cond: (due_at <=" in plan


async def test_a_heartbeat_renews_its_own_leases_and_brings_cancel_requests(tx: Tx) -> None:
    quiet, asked = await running(tx), await running(tx)
    await actions.cancel(tx, TESTER, asked.job_id)
    before = (await job_of(tx, quiet)).lease_expires_at
    assert before is not None

    wrong = [replace(quiet, token=uuid4()), replace(quiet, attempt_no=2), replace(quiet, job_id=uuid4())]
    assert await queue.heartbeat(tx, wrong, lease_seconds=900) == {}
    assert (await job_of(tx, quiet)).lease_expires_at == before
    assert await queue.heartbeat(tx, [quiet, asked], lease_seconds=90) == {
        quiet: queue.HeartbeatResult(),
        asked: queue.HeartbeatResult(cancel=True),
    }
    after = (await job_of(tx, quiet)).lease_expires_at
    assert after is not None
    assert after - before > timedelta(seconds=59)


@pytest.mark.parametrize("action", ["JOB_SUCCEEDED", None, "GREETED"])
async def test_success_is_recorded_and_audited_as_the_definition_says(tx: Tx, action: str | None) -> None:
    await given.set_definition(tx, "greet", audit_action=action)
    lease = await running(tx, dedupe_key="key")
    assert await given.count(tx, "active_keys") == 1

    assert await finish(tx, lease, Succeeded({"n": [1]}, cost_cents=7)) is JobStatus.SUCCEEDED

    job = await job_of(tx, lease)
    assert (job.status, job.output, job.cost_cents, job.error) == (JobStatus.SUCCEEDED, {"n": [1]}, 7, None)
    assert job.finished_at is not None
    [attempt] = await jobs.list_attempts(tx, job.id)
    assert (attempt.status, attempt.cost_cents) == ("succeeded", 7)
    assert attempt.finished_at is not None
    assert attempt.duration_ms is not None
    assert await audited(tx, job.id) == ([action] if action else [])
    assert await given.count(tx, "active_keys") == 0


async def test_outputs_of_jobs_that_end_together_are_kept_as_they_are(tx: Tx) -> None:
    outputs: list[Any] = [None, "", 'a "quoted" \\ {text}, null', {"größe": [1, None, "é"]}, None, []]
    for _ in outputs:
        await given.queued_job(tx)
    leases = await take(tx, len(outputs))

    ends = [(lease, decide(BUDGET, Succeeded(output))) for lease, output in zip(leases, outputs, strict=True)]
    await queue.finish(tx, ends, actor="worker:w1")

    assert [(await job_of(tx, lease)).output for lease in leases] == outputs


async def test_a_plain_success_is_an_attempt_without_a_row_of_its_own(tx: Tx) -> None:
    first = await running(tx)
    await finish(tx, first, BROKEN, AT_ONCE)
    [second] = await take(tx)
    [(waited,)] = await tx.values("select queue_ms from fairlead.leases")

    await finish(tx, second, Succeeded({"n": 1}))

    assert await given.count(tx, "job_attempts") == 1
    assert await attempts(tx, first.job_id) == [(1, "failed"), (2, "succeeded")]
    job = await job_of(tx, second)
    last = (await jobs.list_attempts(tx, job.id))[-1]
    assert (last.worker_id, last.queue_ms) == (job.claimed_by_worker, waited)
    assert (last.started_at, last.finished_at) == (job.started_at, job.finished_at)
    assert await finish(tx, second, Succeeded({"n": 1})) is JobStatus.SUCCEEDED  # the same report again
    assert await finish(tx, replace(second, token=uuid4()), Succeeded({"n": 1})) is None
    assert await given.count(tx, "attempts") == 2


ENDS: list[tuple[Outcome, RetryBudget, JobStatus, str, int, list[str]]] = [
    (BROKEN, BUDGET, JobStatus.QUEUED, "failed", 1, []),
    (BROKEN, AT_ONCE, JobStatus.QUEUED, "failed", 1, []),
    (replace(BROKEN, timed_out=True), BUDGET, JobStatus.QUEUED, "timeout", 1, []),
    (BROKEN, RetryBudget(1, 0, 0, Backoff()), JobStatus.DEAD_LETTER, "failed", 1, ["JOB_EXHAUSTED_RETRIES"]),
    (replace(BROKEN, retryable=False), BUDGET, JobStatus.FAILED, "failed", 1, ["JOB_FAILED"]),
    (Snoozed(60), BUDGET, JobStatus.QUEUED, "released", 0, []),
    (Released(), BUDGET, JobStatus.QUEUED, "released", 0, []),
    (Canceled(), BUDGET, JobStatus.CANCELED, "canceled", 0, ["JOB_CANCELED"]),
]


@pytest.mark.parametrize(("outcome", "budget", "status", "attempt", "charged", "actions_"), ENDS)
async def test_each_outcome_leaves_the_job_where_it_belongs(
    tx: Tx,
    outcome: Outcome,
    budget: RetryBudget,
    status: JobStatus,
    attempt: str,
    charged: int,
    actions_: list[str],
) -> None:
    lease = await running(tx, dedupe_key="key")
    change = decide(budget, outcome)

    assert await finish(tx, lease, change) is status

    job = await job_of(tx, lease)
    assert (job.status, job.failure_count, job.lost_count) == (status, charged, 0)
    assert (job.finished_at is not None) == status.terminal
    assert job.last_error == ("ValueError: it broke" if charged else None)
    assert await attempts(tx, job.id) == [(1, attempt)]
    assert await audited(tx, job.id) == actions_
    assert await given.count(tx, "active_keys") == int(not status.terminal)
    waits = status is JobStatus.QUEUED
    assert await given.count(tx, "later") == int(waits and change.delay > 0)
    assert await given.count(tx, "ready") == int(waits and change.delay == 0)
    if change.delay:
        assert await queue.seconds_until_due(tx) == pytest.approx(change.delay, abs=2)
        assert await queue.stage_due(tx) == 0


@pytest.mark.parametrize("outcome", [end[0] for end in ENDS] + [Succeeded("x")])
async def test_once_cancel_is_requested_only_success_is_not_canceled(tx: Tx, outcome: Outcome) -> None:
    lease = await running(tx, dedupe_key="key")
    asked = await actions.cancel(tx, TESTER, lease.job_id)
    assert asked.status is JobStatus.RUNNING
    assert asked.cancel_requested_at is not None

    status = await finish(tx, lease, outcome)

    job = await job_of(tx, lease)
    expected = JobStatus.SUCCEEDED if isinstance(outcome, Succeeded) else JobStatus.CANCELED
    assert (job.status, status) == (expected, expected)
    assert await attempts(tx, job.id) == [(1, expected.value)]
    assert await audited(tx, job.id) == [
        "JOB_CANCEL_REQUESTED",
        "JOB_SUCCEEDED" if isinstance(outcome, Succeeded) else "JOB_CANCELED",
    ]
    assert [await given.count(tx, table) for table in ("ready", "later", "active_keys")] == [0, 0, 0]


@pytest.mark.parametrize("outcome", [end[0] for end in ENDS] + [Succeeded("x")])
async def test_a_lost_lease_changes_nothing(tx: Tx, outcome: Outcome) -> None:
    lost = await running(tx, dedupe_key="key")
    await given.end_leases(tx)
    await rescue.rescue(tx)
    before = await everything(tx)
    assert await finish(tx, lost, outcome) is None

    await testing.make_all_due(tx)
    await queue.stage_due(tx)
    assert await everything(tx) != before
    [lease] = await take(tx)
    before = await everything(tx)
    wrong = [
        lost,
        replace(lease, token=lost.token),
        replace(lease, token=uuid4()),
        replace(lease, attempt_no=3),
    ]
    assert [await finish(tx, stale, outcome) for stale in wrong] == [None] * 4
    assert await everything(tx) == before


@pytest.mark.parametrize("first", [Succeeded("x"), BROKEN, Released(), Canceled()])
async def test_a_finish_repeated_because_the_answer_was_lost_is_answered_as_done(
    tx: Tx, first: Outcome
) -> None:
    lease, other = await running(tx), await running(tx)
    status = await finish(tx, lease, first)
    before = await everything(tx)

    assert await finish(tx, lease, first) is status
    # another end than the one that was heard is nobody's any more
    assert await finish(tx, lease, BROKEN) is (status if first is BROKEN else None)
    assert await finish(tx, replace(lease, token=uuid4()), first) is None
    assert await everything(tx) == before
    both = [(lease, decide(BUDGET, first)), (other, decide(BUDGET, Succeeded()))]
    assert await queue.finish(tx, both, actor="w") == {
        lease.job_id: status,
        other.job_id: JobStatus.SUCCEEDED,
    }


async def test_a_batch_ends_each_job_by_its_own_outcome(tx: Tx) -> None:
    outcomes = [end[0] for end in ENDS for _ in range(5)]
    for tenant in (TENANT, OTHER) * (len(outcomes) // 2):
        await given.queued_job(tx, tenant=tenant)
    leases = await take(tx, 100)
    leases += await take(tx, 100)
    changes = [decide(BUDGET, outcome) for outcome in outcomes]

    done = await queue.finish(tx, list(zip(leases, changes, strict=True)), actor="w")

    assert done == {lease.job_id: change.status for lease, change in zip(leases, changes, strict=True)}


async def test_a_dedupe_key_is_held_while_retrying_and_free_at_the_end(tx: Tx) -> None:
    lease = await running(tx, dedupe_key="key")
    await finish(tx, lease, BROKEN, AT_ONCE)
    assert await given.queued_job(tx, dedupe_key="key") == lease.job_id
    [again] = await take(tx)
    await finish(tx, again, Succeeded())
    assert await given.queued_job(tx, dedupe_key="key") != lease.job_id
    [(held,)] = await tx.values("select job_id from fairlead.active_keys")
    tenant = (await job_of(tx, lease)).tenant_id
    assert await bulk.claim_keys(tx, {bulk.key_of(tenant, "key"): lease.job_id}) == {
        bulk.key_of(tenant, "key"): held
    }


async def test_rescue_puts_back_what_expired_and_contains_poison(tx: Tx) -> None:
    lease = await running(tx)
    assert list(await rescue.rescue(tx)) == []
    for lost in (1, 2, 3):
        await given.end_leases(tx, in_seconds=0)
        assert list(await rescue.rescue(tx, grace_seconds=60)) == []
        assert list(await rescue.rescue(tx)) == [lease.job_id]
        job = await job_of(tx, lease)
        assert (job.lost_count, job.failure_count) == (lost, 0)
        assert await attempts(tx, job.id) == [(n + 1, "lost") for n in range(lost)]
        if lost < 3:
            assert await given.count(tx, "later") == 1
            await testing.make_all_due(tx)
            await queue.stage_due(tx)
            # after the first loss as any other, then by itself
            assert len(await take(tx)) == (lost == 1)
            assert len(await take_suspect(tx)) == (lost == 2)
    assert (await job_of(tx, lease)).status is JobStatus.DEAD_LETTER
    assert await audited(tx, lease.job_id) == ["JOB_EXHAUSTED_RETRIES"]


async def test_rescue_ends_a_job_that_was_asked_to_stop_and_spares_the_living(tx: Tx) -> None:
    asked, alive = await running(tx), await running(tx)
    await actions.cancel(tx, TESTER, asked.job_id)
    await given.end_leases(tx)
    await tx.run(
        "update fairlead.leases set expires_at = clock_timestamp() + interval '1 minute' where job_id = %s",
        [alive.job_id],
    )
    assert list(await rescue.rescue(tx)) == [asked.job_id]
    assert (await job_of(tx, asked)).status is JobStatus.CANCELED
    assert await attempts(tx, asked.job_id) == [(1, "lost")]
    assert (await job_of(tx, alive)).status is JobStatus.RUNNING
