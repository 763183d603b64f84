from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from fairlead.actions import jobs as actions
from fairlead.actions.jobs import JobFilter
from fairlead.db.tx import Tx
from fairlead.errors import InvalidInput, JobNotCancelable, JobNotRetryable, PayloadInvalid
from fairlead.model.job import JobStatus
from fairlead.store import audit, jobs
from tests import given
from tests.given import OTHER, TENANT, TESTER


async def test_a_job_that_succeeded_cannot_be_canceled_or_retried(tx: Tx) -> None:
    job_id = await given.ended_job(tx, "succeeded")

    with pytest.raises(JobNotCancelable):
        await actions.cancel(tx, TESTER, job_id)
    with pytest.raises(JobNotRetryable):
        await actions.retry(tx, TESTER, given.catalog(), job_id)


@pytest.mark.parametrize("place", ["ready", "later", "ready for a host"])
async def test_canceling_a_waiting_job_ends_it_at_once_and_counts_once(tx: Tx, place: str) -> None:
    later = datetime.now(UTC) + timedelta(days=1) if place == "later" else None
    job_id = await given.queued_job(tx, dedupe_key="only-one", scheduled_for=later)
    if place == "ready for a host":
        await given.bind_to_host(tx, job_id, await given.host(tx))

    job = await actions.cancel(tx, TESTER, job_id)

    assert job.status is JobStatus.CANCELED
    assert job.finished_at is not None
    assert [await given.count(tx, table) for table in ("ready", "later", "active_keys")] == [0, 0, 0]
    assert await actions.cancel(tx, TESTER, job_id) == job
    assert await jobs.list_inconsistencies(tx) == []


@pytest.mark.parametrize("status", ["failed", "dead_letter", "canceled"])
async def test_retry_by_hand_gives_a_fresh_budget(tx: Tx, status: str) -> None:
    job_id = await given.ended_job(tx, status, dedupe_key="key")

    job = await actions.retry(tx, TESTER, given.catalog(), job_id)

    assert job.status is JobStatus.QUEUED
    assert (job.attempt_count, job.failure_count, job.finished_at, job.cancel_requested_at) == (
        1,
        0,
        None,
        None,
    )
    assert await given.count(tx, "ready") == 1
    assert await given.count(tx, "active_keys") == 1
    assert await jobs.list_inconsistencies(tx) == []


async def test_retry_with_an_edited_payload_validates_it(tx: Tx) -> None:
    job_id = await given.ended_job(tx, "failed")

    with pytest.raises(PayloadInvalid):
        await actions.retry(tx, TESTER, given.catalog(), job_id, payload={"name": 3})
    job = await actions.retry(tx, TESTER, given.catalog(), job_id, payload={"name": "Grace"})

    assert job.payload == {"name": "Grace"}


async def test_retry_is_refused_while_another_job_holds_the_dedupe_key(tx: Tx) -> None:
    job_id = await given.ended_job(tx, "failed", dedupe_key="key")
    other = await given.queued_job(tx, dedupe_key="key")

    with pytest.raises(JobNotRetryable, match=str(other)):
        await actions.retry(tx, TESTER, given.catalog(), job_id)
    assert await jobs.list_inconsistencies(tx) == []


async def test_what_people_do_is_in_the_audit_log(tx: Tx) -> None:
    job_id = await given.queued_job(tx)
    await actions.cancel(tx, TESTER, job_id)
    await actions.retry(tx, TESTER, given.catalog(), job_id)

    entries = await audit.list_recent(tx, limit=3)

    assert [entry.action for entry in entries] == ["JOB_RETRIED", "JOB_CANCELED", "job_created"]
    assert {entry.actor for entry in entries} == {"tester"}
    assert {entry.resource_id for entry in entries} == {str(job_id)}


async def test_pages_by_cursor_and_by_offset_agree(tx: Tx) -> None:
    made = [await given.queued_job(tx, payload={"name": str(n)}) for n in range(7)]
    newest_first = sorted(made, reverse=True)

    seen, cursor, pages = [], None, 0
    while True:
        page = await actions.list_jobs(tx, TESTER, JobFilter(tenant=TENANT), limit=3, cursor=cursor)
        seen += [job.id for job in page.items]
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break
    by_offset = [
        job.id
        for offset in (0, 3, 6)
        for job in (
            await actions.list_jobs(tx, TESTER, JobFilter(tenant=TENANT), limit=3, offset=offset)
        ).items
    ]

    assert (seen, pages) == (newest_first, 3)
    assert by_offset == newest_first


async def test_every_filter_narrows_the_list(tx: Tx) -> None:
    plain = await given.queued_job(tx)
    keyed = await given.queued_job(tx, dedupe_key="k" * 5000, correlation_id="c-1")
    failed = await given.ended_job(tx, "failed", definition="anything", payload={})
    running = await given.running_job(tx)
    foreign = await given.queued_job(tx, tenant=OTHER)
    run_id = uuid4()
    for job_id in (plain, failed):
        await given.set_job(tx, job_id, workflow_run_id=run_id)

    async def found(**filters: object) -> set[object]:
        page = await actions.list_jobs(tx, TESTER, JobFilter(**filters), limit=100)  # type: ignore[arg-type]
        return {job.id for job in page.items}

    assert await found() == {plain, keyed, failed, running, foreign}
    assert await found(tenant=OTHER) == {foreign}
    assert await found(status=[JobStatus.FAILED]) == {failed}
    assert await found(status=[JobStatus.RUNNING]) == {running}
    assert await found(status=[JobStatus.QUEUED, JobStatus.FAILED], tenant=TENANT) == {plain, keyed, failed}
    assert await found(definition_key="anything") == {failed}
    assert await found(dedupe_key="k" * 5000) == {keyed}
    assert await found(dedupe_key="k") == set()
    assert await found(correlation_id="c-1") == {keyed}
    assert await found(workflow_run_id=run_id) == {plain, failed}
    assert await found(workflow_run_id=run_id, status=[JobStatus.FAILED], tenant=TENANT) == {failed}
    assert await found(workflow_run_id=run_id, tenant=OTHER) == set()
    [(later,)] = await tx.values("select clock_timestamp() + interval '1 minute'")
    assert await found(created_after=later) == set()
    assert len(await found(created_before=later)) == 5


@pytest.mark.parametrize("bad", [{"limit": 0}, {"limit": 1001}, {"offset": -1}, {"cursor": "not-a-cursor"}])
async def test_pages_out_of_bounds_are_refused(tx: Tx, bad: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        await actions.list_jobs(tx, TESTER, JobFilter(), **bad)  # type: ignore[arg-type]
