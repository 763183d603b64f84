"""What the page of a job asks for: its children, the end of its log, and what was done to it."""

from datetime import timedelta
from uuid import UUID

import pytest

from fairlead.actions import audit, jobs, logs
from fairlead.db.tx import Tx
from fairlead.model.job import Job
from fairlead.model.log import Chunk
from fairlead.store import audit as trail
from tests import given


async def job_of(tx: Tx, job_id: UUID) -> Job:
    return (await jobs.show_job(tx, given.TESTER, job_id))[0]


async def test_children_are_the_newest_that_a_job_made(tx: Tx) -> None:
    parent = await given.queued_job(tx)
    made = [await given.queued_job(tx, parent_id=parent) for _ in range(4)]
    await given.queued_job(tx)

    found = await jobs.list_children(tx, given.TESTER, await job_of(tx, parent), limit=3)

    assert [one.id for one in found] == made[:0:-1]


async def test_children_are_found_by_their_index(tx: Tx) -> None:
    parent = await given.queued_job(tx)
    await tx.prefer_indexes()

    plan = await tx.values(
        "explain select o.id from fairlead.jobs o where o.parent_id = %s limit 2000", [parent]
    )

    assert "jobs_by_parent" in str(plan)


async def said(tx: Tx, job_id: UUID, attempt_no: int, count: int) -> None:
    await tx.run(
        """insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, stream, text)
        select id, %s, n, tenant_id, 'stdout', 'x' || n from fairlead.jobs, generate_series(1, %s) n where id = %s""",
        [attempt_no, count, job_id],
    )


@pytest.mark.parametrize(("limit", "page_bytes"), [(1, 100_000), (3, 100_000), (100, 5), (100, 100_000)])
async def test_reading_back_finds_what_reading_on_finds(tx: Tx, limit: int, page_bytes: int) -> None:
    job_id = await given.ended_job(tx, "succeeded")
    await given.set_attempt(tx, job_id, stdout_tail="out", stderr_tail="err")
    await said(tx, job_id, 2, 5)
    await said(tx, job_id, 3, 4)
    whole = (await logs.read(tx, given.TESTER, job_id)).items
    assert [one.attempt_no for one in whole] == [1] * 2 + [2] * 5 + [3] * 4

    found: list[Chunk] = []
    before: str | None = None
    while True:
        page = await logs.read_back(
            tx, given.TESTER, job_id, before=before, limit=limit, page_bytes=page_bytes
        )
        assert 0 < len(page.items) <= limit
        found, before = [*page.items, *found], page.earlier
        if before is None:
            break

    assert found == whole


async def test_reading_on_from_the_end_finds_nothing_twice(tx: Tx) -> None:
    job_id = await given.running_job(tx)
    assert (await logs.read_back(tx, given.TESTER, job_id)).later == "0.-1"
    await said(tx, job_id, 1, 2)

    page = await logs.read_back(tx, given.TESTER, job_id, attempt_no=1)

    assert [one.text for one in page.items] == ["x1", "x2"]
    assert (await logs.read(tx, given.TESTER, job_id, cursor=page.later)).items == []
    assert (await logs.read_back(tx, given.TESTER, job_id, attempt_no=2)).items == []


async def test_what_was_done_to_a_job_is_found_near_both_ends_of_its_time(tx: Tx) -> None:
    job = await job_of(tx, await given.queued_job(tx))
    for _ in range(30):
        await given.queued_job(tx)
    await jobs.cancel(tx, given.TESTER, job.id)
    ended = await job_of(tx, job.id)

    found = await audit.list_entries_about_job(tx, given.TESTER, ended)
    near = await trail.list_entries_about(
        tx, "job", job.id, tenant_id=job.tenant_id, since=job.queued_at - timedelta(seconds=5), look=10
    )

    assert [one.action for one in found] == ["JOB_CANCELED", "job_created"]
    assert near == found
