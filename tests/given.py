"""Rows and requests to begin a test with."""

from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from fairlead import Settings
from fairlead.actions import definitions, enqueue, tenants
from fairlead.actions.catalog import Catalog
from fairlead.db.tx import Database, Tx
from fairlead.model.access import trusted
from fairlead.model.job import NewJob
from fairlead.store import jobs

TENANT = "acme"
OTHER = "umbrella"
TESTER = trusted("tester")

GREET = {
    "key": "greet",
    "arg_schema": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 200}, "n": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": False,
    },
}
ANYTHING = {"key": "anything", "max_attempts": 5, "default_priority": 50}
RETIRED = {"key": "retired", "is_active": False}


async def tenants_and_definitions(tx: Tx) -> None:
    for slug in (TENANT, OTHER):
        await tenants.add(tx, TESTER, slug=slug)
    for values in (GREET, ANYTHING, RETIRED):
        await definitions.patch(tx, TESTER, str(values["key"]), values)


def catalog() -> Catalog:
    return Catalog(Settings())


def request(**fields: Any) -> NewJob:
    return NewJob(**{"definition": "greet", "tenant": TENANT, "payload": {"name": "Ada"}, **fields})


async def queued_job(tx: Tx, **fields: Any) -> UUID:
    """A job that waits."""
    return (await enqueue.enqueue(tx, TESTER, catalog(), request(**fields))).id


async def running_job(tx: Tx, **fields: Any) -> UUID:
    """A job that somebody runs: what a claim leaves behind."""
    job_id = await queued_job(tx, **fields)
    await tx.run("delete from fairlead.ready where job_id = %s", [job_id])
    await tx.run(
        """
        with job as (
            update fairlead.jobs
            set status = 'running', started_at = clock_timestamp(), attempt_count = attempt_count + 1,
                claimed_by_worker = 'somebody'
            where id = %(id)s returning id, tenant_id, definition_id, attempt_count
        ), lease as (
            insert into fairlead.leases (job_id, attempt_no, token, worker_id, tenant_id, definition_id, expires_at)
            select id, attempt_count, %(token)s, 'somebody', tenant_id, definition_id, clock_timestamp() + '30 s'
            from job
        ), attempt as (
            insert into fairlead.job_attempts (id, job_id, attempt_no, tenant_id, token, worker_id)
            select %(run)s, id, attempt_count, tenant_id, %(token)s, 'somebody' from job
        )
        insert into fairlead.counts (tenant_id, definition_id, minute, queued, running)
        select tenant_id, definition_id, date_trunc('minute', clock_timestamp()), -1, 1 from job
        """,
        {"id": job_id, "token": uuid7(), "run": uuid7()},
    )
    return job_id


async def ended_job(tx: Tx, status: str, **fields: Any) -> UUID:
    """A job whose only attempt ended so: what a finish leaves behind."""
    job_id = await running_job(tx, **fields)
    await tx.run("delete from fairlead.leases where job_id = %s", [job_id])
    await tx.run("delete from fairlead.active_keys where job_id = %s", [job_id])
    await tx.run(
        """
        with job as (
            update fairlead.jobs
            set status = %(status)s, troubled = %(status)s::fairlead.job_status > 'succeeded',
                finished_at = clock_timestamp(), failure_count = (%(status)s <> 'succeeded')::int
            where id = %(id)s returning id, tenant_id, definition_id
        ), attempt as (
            update fairlead.job_attempts
            set status = case when %(status)s = 'succeeded' then 'succeeded' else 'failed' end,
                finished_at = clock_timestamp()
            where job_id = %(id)s
        )
        insert into fairlead.counts (tenant_id, definition_id, minute, running, succeeded, failed, dead_letter, canceled)
        select tenant_id, definition_id, date_trunc('minute', clock_timestamp()), -1,
            (%(status)s = 'succeeded')::int, (%(status)s = 'failed')::int,
            (%(status)s = 'dead_letter')::int, (%(status)s = 'canceled')::int
        from job
        """,
        {"id": job_id, "status": status},
    )
    return job_id


async def count(tx: Tx, table: str) -> int:
    [(number,)] = await tx.values(f"select count(*) from fairlead.{table}")
    return int(number)


async def no_inconsistencies(database: Database) -> None:
    async with database.transaction() as tx:
        assert await jobs.inconsistencies(tx) == []
