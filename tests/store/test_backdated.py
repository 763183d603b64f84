"""Jobs that are meant for a time long ago: they wait from when they were enqueued."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import UUID

import pytest

from fairlead.actions import bulk_jobs, enqueue, jobs
from fairlead.actions.jobs import JobFilter
from fairlead.db.tx import Tx
from fairlead.store import consistency, metrics, queue, stats
from fairlead.store import jobs as stored
from tests import given
from tests.given import TESTER

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


async def one(tx: Tx) -> UUID:
    return await given.queued_job(tx, scheduled_for=LONG_AGO)


async def load(tx: Tx) -> UUID:
    [job] = await enqueue.enqueue_many(tx, TESTER, given.catalog(), [given.request(scheduled_for=LONG_AGO)])
    return job.id


async def plain_sql(tx: Tx) -> UUID:
    [(job_id, _)] = await tx.values(
        """select * from fairlead.enqueue('acme', 'greet', '{"name": "x"}', scheduled_for => %s)""",
        [LONG_AGO],
    )
    return UUID(str(job_id))


NAMES = ["one", "load", "plain SQL"]
WAYS = pytest.mark.parametrize("way", [one, load, plain_sql], ids=NAMES)
Way = Callable[[Tx], Awaitable[UUID]]


@WAYS
async def test_a_backdated_job_does_not_pass_an_older_one(tx: Tx, way: Way) -> None:
    older = await given.queued_job(tx)
    backdated = await way(tx)

    claim = await queue.claim(tx, worker="w", wanted=2, lease_seconds=30)

    assert [job.job_id for job in claim.jobs] == [older, backdated]
    assert (await given.read_job(tx, backdated)).scheduled_for == LONG_AGO
    assert await stored.list_inconsistencies(tx) == []


@WAYS
async def test_a_backdated_job_has_waited_since_it_was_enqueued(tx: Tx, way: Way) -> None:
    job_id = await way(tx)
    found = await given.read_job(tx, job_id)
    assert await stats.find_oldest_ready(tx, tenant_id=found.tenant_id) == found.queued_at
    assert (await metrics.measure_oldest(tx, [found.tenant_id]))[found.tenant_id] < 3600

    claim = await queue.claim(tx, worker="w", wanted=1, lease_seconds=30, waits=True)

    assert claim.jobs[0].waited < 3600
    [attempt] = await stored.list_attempts(tx, job_id)
    assert attempt.queue_ms is not None
    assert attempt.queue_ms < 3_600_000


async def staged(tx: Tx) -> UUID:
    """As the stager and the repair write it: with the time it was scheduled for, even if it was enqueued later."""
    job_id = await one(tx)
    await tx.run("update fairlead.ready set scheduled_for = %s where job_id = %s", [LONG_AGO, job_id])
    assert (await consistency.check_jobs(tx, None)).faults == []
    return job_id


@pytest.mark.parametrize("way", [one, load, plain_sql, staged], ids=[*NAMES, "staged"])
async def test_a_backdated_job_can_be_canceled(tx: Tx, way: Way) -> None:
    alone, among_others = await way(tx), await way(tx)

    assert (await jobs.cancel(tx, TESTER, alone)).status == "canceled"
    await bulk_jobs.cancel(tx, TESTER, JobFilter(tenant=given.TENANT, definition_key="greet"))

    assert (await jobs.show_job(tx, TESTER, among_others))[0].status == "canceled"
    assert await given.count(tx, "ready") == 0
    assert await stored.list_inconsistencies(tx) == []
