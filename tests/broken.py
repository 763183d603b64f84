"""Databases that are broken by hand, in each way that the doctor knows."""

from uuid import UUID

from uuid_utils.compat import uuid7

from fairlead.db.tx import Tx
from tests import given


async def sleeping_parent(tx: Tx) -> UUID:
    """A job that gave itself back to wait for a run, which is over: nothing has woken it."""
    job_id = await given.running_job(tx)
    await tx.run("delete from fairlead.leases where job_id = %s", [job_id])
    await tx.run(
        "update fairlead.job_attempts set status = 'released', finished_at = clock_timestamp(), duration_ms = 0, "
        "queue_ms = 0 where job_id = %s",
        [job_id],
    )
    await tx.run(
        """
        with job as (
            update fairlead.jobs set status = 'queued', scheduled_for = clock_timestamp() + interval '1 day'
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


async def running_without_lease(tx: Tx) -> UUID:
    """A job that runs, and that no worker holds."""
    job_id = await given.running_job(tx)
    await tx.run("delete from fairlead.leases where job_id = %s", [job_id])
    return job_id


async def lease_again(tx: Tx, job_id: UUID) -> None:
    """Undo `running_without_lease`, for tests whose database must be whole at the end."""
    await tx.run(
        """
        insert into fairlead.leases (job_id, attempt_no, token, worker_id, tenant_id, definition_id, expires_at)
        select j.id, a.attempt_no, a.token, a.worker_id, j.tenant_id, j.definition_id, clock_timestamp() + '1 hour'
        from fairlead.jobs j join fairlead.job_attempts a on a.job_id = j.id and a.attempt_no = j.attempt_count
        where j.id = %s
        """,
        [job_id],
    )
