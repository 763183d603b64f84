"""Databases that are broken by hand, in each way that the doctor knows."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

from fairlead.db.tx import Tx
from tests import given


async def sleeping_parent(tx: Tx) -> UUID:
    """A job that gave itself back to wait for a run, which is over: nothing has woken it."""
    job_id = await given.running_job(tx)
    await tx.run(
        """
        with lease as (delete from fairlead.leases where job_id = %s returning *), job as (
            update fairlead.job_records j
            set attempt_count = l.attempt_no, started_at = l.started_at, claimed_by_worker = l.worker_id
            from lease l where j.id = l.job_id
        )
        insert into fairlead.job_attempts (
            job_id, attempt_no, tenant_id, token, worker_id, status, started_at, finished_at, duration_ms, queue_ms)
        select job_id, attempt_no, tenant_id, token, worker_id, 'released', started_at, clock_timestamp(), 0, 0 from lease
        """,
        [job_id],
    )
    await tx.run(
        """
        with job as (
            update fairlead.job_records set scheduled_for = clock_timestamp() + interval '1 day'
            where id = %(id)s returning id, tenant_id, definition_id, priority, scheduled_for
        ), later as (
            insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at)
            select id, tenant_id, definition_id, priority, scheduled_for from job
        ), counted as (
            insert into fairlead.counts (
                tenant_id, definition_id, minute, queued, running, runs, retried, run_ms, queue_ms, cost_cents)
            select tenant_id, definition_id, date_trunc('minute', clock_timestamp()), 1, -1, 1, 0, 0, 0, 0 from job
        )
        insert into fairlead.workflow_runs (
            id, tenant_id, key, status, steps, parent_job_id, input, finished_at)
        select %(run)s, tenant_id, 'w', 'succeeded', 0, id, '{}', clock_timestamp() - interval '5 minutes' from job
        """,
        {"id": job_id, "run": uuid7()},
    )
    return job_id


async def sleeping_function(tx: Tx) -> UUID:
    """A durable function whose wait was completed, and that nothing has woken."""
    job_id = await given.waiting_function(tx)
    await tx.run(
        "update fairlead.job_steps set status = 'succeeded', ended_at = clock_timestamp() where job_id = %s",
        [job_id],
    )
    # an earlier sleep, which is over, stays as it is
    await tx.run(
        """
        insert into fairlead.job_steps (
            job_id, branch, position, attempt_no, status, kind, name, tenant_id, started_at, due_at)
        select job_id, branch, 1, 1, 'waiting', 'sleep', 'sleep', tenant_id, started_at, started_at
        from fairlead.job_steps where job_id = %s
        """,
        [job_id],
    )
    return job_id


async def function_without_wait(tx: Tx) -> UUID:
    """A durable function that sleeps, and whose waits are gone."""
    job_id = await given.waiting_function(tx)
    await tx.run("delete from fairlead.job_steps where job_id = %s", [job_id])
    return job_id


async def lost_lease(tx: Tx) -> UUID:
    """A job that ran, and whose lease is gone."""
    job_id = await given.running_job(tx)
    await tx.run("delete from fairlead.leases where job_id = %s", [job_id])
    return job_id


async def queued_without_row(tx: Tx) -> UUID:
    """A job that waits, and that no claim can find."""
    job_id = await given.queued_job(tx)
    await tx.run("delete from fairlead.ready where job_id = %s", [job_id])
    return job_id


async def scheduled_without_row(tx: Tx) -> UUID:
    """The same of a job whose time has not come."""
    job_id = await given.queued_job(tx, scheduled_for=datetime.now(UTC) + timedelta(days=1))
    await tx.run("delete from fairlead.later where job_id = %s", [job_id])
    return job_id


async def active_without_key(tx: Tx) -> UUID:
    """A queued job whose dedupe key another job could take."""
    job_id = await given.queued_job(tx, dedupe_key="k")
    await tx.run("delete from fairlead.active_keys where job_id = %s", [job_id])
    return job_id


async def stale_key(tx: Tx) -> UUID:
    """A job that is over and still holds its dedupe key: no other can be enqueued with it."""
    job_id = await given.ended_job(tx, "succeeded", dedupe_key="k")
    await tx.run(
        "insert into fairlead.active_keys select tenant_id, sha256('k'), id from fairlead.jobs where id = %s",
        [job_id],
    )
    return job_id


async def key_of_no_job(tx: Tx) -> UUID:
    """A key whose job has been removed."""
    [(job_id,)] = await tx.values(
        "insert into fairlead.active_keys select id, sha256('k'), gen_random_uuid() "
        "from fairlead.tenants limit 1 returning job_id"
    )
    return UUID(str(job_id))


async def wrong_counts(tx: Tx) -> UUID:
    """A tenant whose counts say that it has more than it has."""
    await given.ended_job(tx, "failed")
    [(tenant_id,)] = await tx.values(
        "insert into fairlead.counts (tenant_id, definition_id, minute, queued, succeeded) "
        "select t.id, d.id, date_trunc('minute', clock_timestamp()), 3, -1 "
        "from fairlead.tenants t, fairlead.job_definitions d where t.slug = 'acme' and d.key = 'greet' "
        "returning tenant_id"
    )
    return UUID(str(tenant_id))


async def held_in_vain(tx: Tx) -> UUID:
    """A job that its key holds back, although no job of the key runs."""
    await tx.run(
        """update fairlead.job_definitions set by_key = '{"pointer": "/name", "max_running": 1}' where key = 'greet'"""
    )
    job_id = await given.queued_job(tx)
    await tx.run(
        """
        with row as (delete from fairlead.ready where job_id = %s returning *)
        insert into fairlead.later (job_id, tenant_id, definition_id, priority, due_at, held, limit_key)
        select r.job_id, r.tenant_id, r.definition_id, r.priority, j.scheduled_for, true, r.limit_key
        from row r join fairlead.job_records j on j.id = r.job_id
        """,
        [job_id],
    )
    return job_id


async def other_limit_key(tx: Tx) -> UUID:
    """A job whose row in the queue has another key than its record."""
    job_id = await held_in_vain(tx)
    await tx.run("update fairlead.later set held = false")
    await tx.run("update fairlead.later set limit_key = gen_random_uuid() where job_id = %s", [job_id])
    return job_id
