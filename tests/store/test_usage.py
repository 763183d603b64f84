"""Usage equals attempts to the cent: while they run, after any fold, and when the attempts are gone."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.actions import jobs as job_actions
from fairlead.actions import usage as actions
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import InvalidInput, TenantUnknown, TimezoneUnknown
from fairlead.model.outcome import Backoff, Failed, Outcome, Released, RetryBudget, Snoozed, Succeeded, decide
from fairlead.model.usage import By, Per, UsageFigures
from fairlead.store import counts, jobs, queue, rescue, retention
from tests import given
from tests.given import OTHER, TENANT, TESTER
from tests.store.test_retention import id_of

AT_ONCE = RetryBudget(9, 0, 0, Backoff(base_seconds=0))
SPENT = RetryBudget(1, 0, 0, Backoff())
BROKEN = Failed("ValueError", "it broke", cost_cents=10)
SLOW = Failed("TimeoutError", "too slow", timed_out=True, cost_cents=20)
FATAL = Failed("Fatal", "no", retryable=False, cost_cents=40)
DONE = Succeeded(cost_cents=3)

OF_ATTEMPTS = """
    select j.tenant_id, j.definition_id, date_trunc('hour', a.finished_at, 'UTC'), count(*)::bigint,
        count(*) filter (where a.status = 'succeeded'), sum(a.duration_ms)::bigint, sum(a.queue_ms)::bigint,
        sum(a.cost_cents)::bigint
    from fairlead.attempts a join fairlead.jobs j on j.id = a.job_id
    where a.finished_at is not null group by 1, 2, 3 order by 1, 2, 3
"""
OF_USAGE = """
    select tenant_id, definition_id, hour, sum(runs)::bigint, sum(succeeded)::bigint, sum(run_ms)::bigint,
        sum(queue_ms)::bigint, sum(cost_cents)::bigint
    from (
        select tenant_id, definition_id, hour, runs, succeeded, run_ms, queue_ms, cost_cents from fairlead.usage_hourly
        union all
        select tenant_id, definition_id, date_trunc('hour', minute, 'UTC'), runs, succeeded, run_ms, queue_ms, cost_cents
        from fairlead.counts where runs is not null
    ) u group by 1, 2, 3 order by 1, 2, 3
"""


@pytest.fixture(autouse=True)
async def _consistent(tx: Tx) -> AsyncIterator[None]:
    yield
    assert await jobs.list_inconsistencies(tx) == []


async def run(tx: Tx, *ends: tuple[RetryBudget, Outcome], **fields: Any) -> None:
    """A job whose attempts end so, one after the other."""
    await given.queued_job(tx, **fields)
    for budget, outcome in ends:
        claim = await queue.claim(tx, worker="w1", wanted=1, lease_seconds=30)
        [job] = claim.jobs
        await queue.finish(tx, [(claim.lease(job), decide(budget, outcome))], actor="worker:w1")


async def every_fate(tx: Tx) -> None:
    """Eleven attempts, of two tenants."""
    await run(
        tx, (AT_ONCE, BROKEN), (AT_ONCE, SLOW), (AT_ONCE, Released()), (AT_ONCE, Snoozed(0)), (AT_ONCE, DONE)
    )
    await run(tx, (AT_ONCE, BROKEN), (SPENT, BROKEN), definition="anything")
    await run(tx, (AT_ONCE, FATAL), tenant=OTHER)
    await run(tx, (AT_ONCE, DONE), tenant=OTHER)
    stopped = await given.queued_job(tx)
    lost = await queue.claim(tx, worker="w1", wanted=1, lease_seconds=30)
    await job_actions.cancel(tx, TESTER, stopped)
    await queue.finish(tx, [(lost.lease(lost.jobs[0]), decide(AT_ONCE, BROKEN))], actor="worker:w1")
    await given.queued_job(tx)
    await queue.claim(tx, worker="w1", wanted=1, lease_seconds=30)
    await tx.run("update fairlead.leases set expires_at = clock_timestamp() - interval '1 ms'")
    assert len(await rescue.rescue(tx)) == 1


async def used(tx: Tx, **asked: Any) -> UsageFigures:
    return (await actions.report_usage(tx, TESTER, **asked)).totals


async def an_hour_later(tx: Tx, hours: float = 1) -> None:
    """As if all that has been until now had been so long ago."""
    gone = {"gone": timedelta(hours=hours)}
    await tx.run("update fairlead.counts set minute = minute - %(gone)s where minute > to_timestamp(0)", gone)
    await tx.run("update fairlead.usage_hourly set hour = hour - %(gone)s", gone)
    await tx.run(
        "update fairlead.job_attempts set started_at = started_at - %(gone)s, finished_at = finished_at - %(gone)s",
        gone,
    )


async def fold(tx: Tx) -> None:
    place = None
    while (done := await counts.fold_minutes(tx, place=place)).more:
        place = done.place
    await counts.fold_history(tx)


async def test_every_attempt_is_one_run_with_one_fate_whoever_ended_it(tx: Tx) -> None:
    await every_fate(tx)

    found = await used(tx)

    assert found.runs == 11
    assert (found.succeeded, found.failed, found.dead_letter, found.canceled) == (2, 1, 1, 1)
    assert (found.retried, found.released) == (4, 2)
    assert found.cost_cents == 2 * 3 + 4 * 10 + 20 + 40  # what was lost or given back told none
    assert await tx.values(OF_USAGE) == await tx.values(OF_ATTEMPTS)
    others = await used(tx, tenant=OTHER)
    assert (others.runs, others.succeeded, others.failed, others.cost_cents) == (2, 1, 1, 43)


async def test_a_run_tells_how_long_it_took_and_how_long_its_job_had_waited(tx: Tx) -> None:
    await given.queued_job(tx)
    await tx.run(
        "update fairlead.job_records set scheduled_for = scheduled_for - interval '90 s', queued_at = queued_at - interval '90 s'"
    )
    await tx.run("update fairlead.ready set scheduled_for = scheduled_for - interval '90 s'")
    claim = await queue.claim(tx, worker="w1", wanted=1, lease_seconds=30)
    await tx.run("update fairlead.leases set started_at = started_at - interval '5 s'")
    reported = replace(decide(AT_ONCE, DONE), ran={"duration_ms": 4000})
    await queue.finish(tx, [(claim.lease(claim.jobs[0]), reported)], actor="worker:w1")

    found = await used(tx)

    assert found.run_ms == 4000  # as its owner measured it
    assert 90_000 <= found.queue_ms < 150_000


async def test_no_fold_changes_what_was_used_and_none_adds_it_twice(tx: Tx) -> None:
    await every_fate(tx)
    for hours in (2, 2, 24, 200):
        before = await tx.values(OF_USAGE), await used(tx, by=By.DAY)
        for _ in range(2):
            await fold(tx)
            assert (await tx.values(OF_USAGE), await used(tx, by=By.DAY)) == before
        await an_hour_later(tx, hours)
        await every_fate(tx)

    assert await tx.values(OF_USAGE) == await tx.values(OF_ATTEMPTS)
    assert (await used(tx, by=By.MONTH)).runs == 55
    assert await given.count(tx, "usage_hourly") > 3


async def test_what_was_used_stays_when_retention_has_taken_the_attempts(tx: Tx) -> None:
    await every_fate(tx)
    await run(tx, (AT_ONCE, BROKEN), (AT_ONCE, DONE), id=id_of(40))
    await tx.run(
        "update fairlead.job_records set finished_at = finished_at - interval '40 days' where status > 'running'"
    )
    before = await used(tx)

    assert (await retention.remove(tx, days=30)).removed == 1
    await fold(tx)

    assert await used(tx) == before
    assert await given.count(tx, "job_attempts") == 11


async def test_usage_that_differs_from_the_attempts_by_a_cent_is_found(tx: Tx) -> None:
    await every_fate(tx)
    for by in (1, -1):
        await tx.run("update fairlead.counts set cost_cents = cost_cents + %s", [by])
        found = [problem for _, problem in await jobs.list_inconsistencies(tx)]
        assert [problem.startswith("usage says") for problem in found] == ([True] * 3 if by == 1 else [])


# Asking


async def test_it_is_told_in_steps_of_the_tenants_own_days(tx: Tx) -> None:
    await tx.run("update fairlead.tenants set timezone = 'Asia/Kolkata' where slug = %s", [TENANT])
    ids = await tx.values(
        "select t.id, d.id from fairlead.tenants t, fairlead.job_definitions d where t.slug = %s and d.key = 'greet'",
        [TENANT],
    )
    for hour in (18, 19):  # 23:30 and 00:30 there
        await tx.run(
            "insert into fairlead.usage_hourly values (%s, %s, %s, 1, 1, 0, 0, 0, 0, 5, 6, 7)",
            [*ids[0], datetime(2026, 3, 1, hour, tzinfo=UTC)],
        )
    asked: dict[str, Any] = {
        "since": datetime(2026, 3, 1, tzinfo=UTC),
        "until": datetime(2026, 4, 1, tzinfo=UTC),
    }

    own = await actions.report_usage(tx, TESTER, tenant=TENANT, by=By.DAY, **asked)
    utc = await actions.report_usage(tx, TESTER, by=By.DAY, per=Per.TENANT, **asked)
    month = await actions.report_usage(
        tx, TESTER, tenant=TENANT, by=By.MONTH, per=Per.NOTHING, timezone="UTC", **asked
    )
    none = await actions.report_usage(tx, TESTER, tenant=OTHER, **asked)

    assert [one.starts_at.isoformat() for one in own.items] == [
        "2026-03-02T00:00:00+05:30",
        "2026-03-01T00:00:00+05:30",
    ]
    assert [(one.tenant, one.definition_key, one.runs) for one in utc.items] == [(TENANT, None, 2)]
    assert [(one.starts_at.day, one.cost_cents) for one in month.items] == [(1, 14)]
    assert (none.items, none.totals) == ([], UsageFigures())
    assert own.as_csv().splitlines()[1] == "2026-03-02T00:00:00+05:30,,greet,1,1,0,0,0,0,0,5,6,7"
    await tx.run("delete from fairlead.usage_hourly")


async def test_what_cannot_be_told_is_refused(tx: Tx) -> None:
    for error, asked in (
        (TimezoneUnknown, {"timezone": "Mars/Base"}),
        (TenantUnknown, {"tenant": "nobody"}),
        (
            InvalidInput,
            {"since": datetime(2026, 1, 1, tzinfo=UTC), "until": datetime(2026, 1, 1, tzinfo=UTC)},
        ),
    ):
        with pytest.raises(error):
            await actions.report_usage(tx, TESTER, **asked)


# Beside others


async def batch(tx: Tx) -> int:
    claim = await queue.claim(tx, worker="w1", wanted=7, lease_seconds=30)
    ends = [(claim.lease(job), decide(AT_ONCE, DONE)) for job in claim.jobs]
    await queue.finish(tx, ends, actor="worker:w1")
    # as if it had been two minutes ago, so that there is something to fold
    for past in (
        "update fairlead.counts set minute = minute - interval '2 minutes'",
        "update fairlead.job_attempts set finished_at = finished_at - interval '2 minutes'",
    ):
        await tx.run(f"{past} where xmin = pg_current_xact_id()::xid")
    return len(ends)


@pytest.mark.thorough
async def test_readers_beside_workers_and_folders_always_see_every_run_once(db: Database) -> None:
    async with db.transaction() as tx:
        for n in range(200):
            await given.queued_job(tx, definition="anything", tenant=(TENANT, OTHER)[n % 2])
    done = asyncio.Event()

    async def work() -> None:
        while await db.transact(batch):
            pass

    async def folding() -> None:
        is_last = False
        while not is_last:
            is_last = done.is_set()
            await db.transact(
                lambda tx: counts.fold_minutes(tx, place=datetime.now(UTC) - timedelta(minutes=9), limit=11)
            )

    async def look() -> None:
        seen = 0
        while not done.is_set():
            async with db.transaction() as tx:
                [(ended, runs)] = await tx.values(
                    "select (select count(*) from fairlead.attempts where finished_at is not null), "
                    "coalesce((select sum(runs) from fairlead.counts), 0) "
                    "+ coalesce((select sum(runs) from fairlead.usage_hourly), 0)"
                )
                assert seen <= ended == runs
                seen = ended

    async def workers() -> None:
        try:
            await asyncio.gather(work(), work())
        finally:
            done.set()

    async with asyncio.TaskGroup() as group:
        for one in (workers, folding, folding, look):
            group.create_task(one())

    async with db.transaction() as tx:
        assert (await used(tx)).cost_cents == 600
        assert await given.count(tx, "usage_hourly") > 0
        assert await tx.values(OF_USAGE) == await tx.values(OF_ATTEMPTS)
