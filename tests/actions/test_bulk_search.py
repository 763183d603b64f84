"""Bulk actions with a filter that compares payloads: bounded, exact about where they stopped, and within their tenant."""

from typing import Any
from uuid import UUID

import pytest

from fairlead.actions import bulk_jobs, definitions, jobs
from fairlead.actions.bulk_jobs import BulkResult, Skip
from fairlead.actions.jobs import JobFilter
from fairlead.db.tx import Tx
from fairlead.errors import FilterOnSecret, InvalidInput
from fairlead.model.job import JobStatus
from fairlead.store import job_search
from tests import given
from tests.given import TENANT, TESTER

WANTED = JobFilter(payload_contains={"order": {"id": 7}})
THESE = {"order": {"id": 7, "size": 2}}
LOOK = 4


@pytest.fixture
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that stops after the first few jobs."""
    for name in ("FIRST_LOOK", "FIRST_LARGE_LOOK", "MOST_LOOK", "MOST_WAITING"):
        monkeypatch.setattr(job_search, name, LOOK)
    monkeypatch.setattr(bulk_jobs, "SEARCH_SECONDS", 0)


async def _jobs(tx: Tx, count: int, payload: Any, **fields: Any) -> list[UUID]:
    return [
        await given.queued_job(tx, definition="anything", payload=payload, **fields) for _ in range(count)
    ]


async def _to_end(tx: Tx, act: Any, **more: Any) -> list[BulkResult]:
    """The results of calls that go on where the last one stopped."""
    results: list[BulkResult] = []
    cursor: str | None = None
    while not results or cursor is not None:
        results.append(await act(tx, TESTER, WANTED, cursor=cursor, **more))
        cursor = results[-1].next_cursor
    return results


async def _statuses(tx: Tx, ids: list[UUID]) -> set[str]:
    return {str((await jobs.show_job(tx, TESTER, one))[0].status) for one in ids}


@pytest.mark.usefixtures("short_search")
async def test_a_search_goes_on_where_it_stopped_and_misses_none(tx: Tx) -> None:
    first = await _jobs(tx, 3, THESE, tenant=TENANT)
    others = await _jobs(tx, 3 * LOOK, {"order": {"id": 8}})
    last = await _jobs(tx, 1, THESE)

    counted = await _to_end(tx, bulk_jobs.cancel, dry_run=True)
    assert sum(one.count for one in counted) == 4
    assert len(counted) > 2
    assert all(one.more == (one.next_cursor is not None) for one in counted)
    assert await _statuses(tx, first + last) == {"queued"}

    done = await _to_end(tx, bulk_jobs.cancel)
    assert sum(one.count for one in done) == 4
    assert (await _statuses(tx, first + last), await _statuses(tx, others)) == ({"canceled"}, {"queued"})

    again = await _to_end(tx, bulk_jobs.retry)
    assert sum(one.count for one in again) == 4
    assert await _statuses(tx, first + last) == {"queued"}


async def test_running_jobs_are_asked_once(tx: Tx) -> None:
    running = await given.running_job(tx, definition="anything", payload=THESE)

    first, second = [await bulk_jobs.cancel(tx, TESTER, WANTED) for _ in range(2)]

    assert (first.count, second.count) == (1, 0)
    assert (await jobs.show_job(tx, TESTER, running))[0].cancel_requested_at is not None


async def test_a_limit_is_kept_and_the_rest_follows(tx: Tx) -> None:
    await _jobs(tx, 3, THESE)

    first = await bulk_jobs.cancel(tx, TESTER, WANTED, limit=2)
    second = await bulk_jobs.cancel(tx, TESTER, WANTED, limit=2, cursor=first.next_cursor)

    assert (first.count, first.more, second.count, second.more) == (2, True, 1, False)


async def test_a_retry_passes_by_jobs_whose_key_another_has(tx: Tx) -> None:
    for _ in range(2):
        [one] = await _jobs(tx, 1, THESE, dedupe_key="k")
        await jobs.cancel(tx, TESTER, one)

    first, second = [await bulk_jobs.retry(tx, TESTER, WANTED) for _ in range(2)]

    assert (first.count, first.reasons) == (1, {Skip.DEDUPE_KEY: 1})
    assert (second.count, second.reasons) == (0, {Skip.DEDUPE_KEY: 1})


async def test_secrets_are_not_compared(tx: Tx) -> None:
    schema = {"properties": {"pin": {"type": "string", "x-secret": True}}}
    await definitions.patch(tx, TESTER, "secretive", {"key": "secretive", "arg_schema": schema})
    job_id = await given.queued_job(tx, definition="secretive", payload={"pin": "12345678"})
    wanted = JobFilter(payload_contains={"pin": "12345678"})

    did = await bulk_jobs.cancel(tx, TESTER, wanted)
    with pytest.raises(FilterOnSecret, match="/pin is secret"):
        await bulk_jobs.cancel(
            tx, TESTER, JobFilter(payload_contains={"pin": "1"}, definition_key="secretive")
        )

    assert (did.count, await _statuses(tx, [job_id])) == (0, {"queued"})


async def test_the_values_do_not_reach_the_audit_log(tx: Tx) -> None:
    await _jobs(tx, 1, THESE)

    await bulk_jobs.cancel(tx, TESTER, WANTED)

    [entry] = await given.audit_entries(tx, "JOBS_CANCELED")
    assert entry.details["filter"]["payload_contains"] == "[redacted]"


async def test_jobs_with_all_tags_are_changed(tx: Tx) -> None:
    both = await _jobs(tx, 2, {}, tags=("eu", "nightly"))
    others = [*await _jobs(tx, 1, {}, tags=("eu",)), *await _jobs(tx, 1, {})]
    wanted = JobFilter(tenant=TENANT, tags=["nightly", "eu"])

    canceled = await bulk_jobs.cancel(tx, TESTER, wanted)
    retried = await bulk_jobs.retry(tx, TESTER, wanted, dry_run=True)

    assert (canceled.count, retried.count) == (2, 2)
    assert (await _statuses(tx, both), await _statuses(tx, others)) == ({"canceled"}, {"queued"})


async def test_a_cursor_must_be_one(tx: Tx) -> None:
    with pytest.raises(InvalidInput):
        await bulk_jobs.retry(tx, TESTER, JobFilter(status=[JobStatus.FAILED]), cursor="nonsense")
