"""The tables themselves refuse what must never be."""

import psycopg
import pytest

from fairlead.db.tx import Tx
from fairlead.store import jobs
from tests import given

CONTRADICTIONS = [
    "status = 'succeeded'",  # over, but without an end
    "finished_at = clock_timestamp()",  # an end, but not over
    "status = 'failed', finished_at = clock_timestamp()",  # trouble that is not marked
    "troubled = true",  # marked, but no trouble
    "attempt_count = 1",  # tried, but never started
    "started_at = clock_timestamp()",  # started, but never tried
]


@pytest.mark.parametrize("change", CONTRADICTIONS)
async def test_a_status_that_the_times_contradict_is_found(tx: Tx, change: str) -> None:
    job_id = await given.queued_job(tx)
    await tx.run(f"update fairlead.job_records set {change} where id = %s", [job_id])
    found = [
        (one, problem) for one, problem in await jobs.list_inconsistencies(tx) if "contradict" in problem
    ]
    assert [one for one, _ in found] == [job_id]


@pytest.mark.parametrize("change", ["status = 'lost'", "source = 'nowhere'"])
async def test_a_status_and_a_source_are_of_those_that_there_are(tx: Tx, change: str) -> None:
    job_id = await given.queued_job(tx)
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        await tx.run(f"update fairlead.job_records set {change} where id = %s", [job_id])


@pytest.mark.postgres_only("it has no triggers")
@pytest.mark.parametrize(
    "change",
    [
        "update fairlead.audit_log set actor = 'nobody'",
        "delete from fairlead.audit_log",
        "truncate fairlead.audit_log",
        "update fairlead.audit_log_rest set actor = 'nobody'",
        "truncate fairlead.audit_log_rest",
    ],
)
async def test_the_audit_log_cannot_be_changed(tx: Tx, change: str) -> None:
    await given.queued_job(tx)
    await tx.run(
        "insert into fairlead.audit_log (at, actor, action, resource_type) values ('1999-01-01', 'a', 'b', 'c')"
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="audit log cannot be changed"):
        await tx.run(change)


@pytest.mark.postgres_only("it has no triggers")
@pytest.mark.parametrize("table", ["tenants", "job_definitions"])
async def test_what_jobs_refer_to_is_never_deleted(tx: Tx, table: str) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation):
        await tx.run(f"delete from fairlead.{table}")


async def test_no_index_on_jobs_mentions_a_column_that_a_run_changes(tx: Tx) -> None:
    """Predicates included: so the updates of a run are heap-only."""
    definitions = [
        row[0]
        for row in await tx.values(
            "select indexdef from pg_indexes where schemaname = 'fairlead' and tablename = 'job_records'"
        )
    ]
    changed = (
        "status",
        "started_at",
        "finished_at",
        "attempt_count",
        "failure_count",
        "lost_count",
        "output",
        "error",
        "progress",
        "cost_cents",
        "claimed_by_worker",
        "cancel_requested_at",
        "last_error",
        "scheduled_for",
    )
    assert len(definitions) >= 2
    for text in definitions:
        assert not any(column in text for column in changed), text


BREAKAGES = {
    "delete from fairlead.ready": "in no hot table",
    "insert into fairlead.later select job_id, tenant_id, definition_id, null, priority, scheduled_for "
    "from fairlead.ready": "in 2 places: later, ready",
    "delete from fairlead.job_records": "in ready without a job",
    "update fairlead.job_records set status = 'running'": "is running but in ready",
    "update fairlead.job_records set status = 'canceled', troubled = true, finished_at = now()": "is canceled but in ready",
    "update fairlead.ready set priority = priority + 1": "differs from its row in ready",
    "delete from fairlead.active_keys": "does not hold its key",
    "delete from fairlead.counts": "counts of queued say",
    "insert into fairlead.active_keys select tenant_id, 'x', id from fairlead.jobs": "holds an active key but",
}


@pytest.mark.parametrize("breakage", BREAKAGES)
async def test_the_consistency_query_finds_every_kind_of_breakage(tx: Tx, breakage: str) -> None:
    await given.queued_job(tx, dedupe_key="key")
    assert await jobs.list_inconsistencies(tx) == []

    await tx.run(breakage)

    assert any(BREAKAGES[breakage] in problem for _, problem in await jobs.list_inconsistencies(tx))
