"""Rows and requests to begin a test with."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from fairlead import Settings
from fairlead.actions import approvals as asked_approvals
from fairlead.actions import definitions, enqueue, events, tenants, triggers
from fairlead.actions import workflows as started_workflows
from fairlead.actions.catalog import Catalog
from fairlead.actions.workflows import RunRequest
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.access import trusted_principal
from fairlead.model.approval import ANSWERING, NewApproval
from fairlead.model.durable import NewWait, Place, StepKind
from fairlead.model.event import NewEvent
from fairlead.model.job import JobStatus, Lease, NewJob
from fairlead.model.outcome import Backoff, Change, RetryBudget, Suspended, decide
from fairlead.model.trigger import Trigger
from fairlead.store import approvals, durable, jobs, queue, workflows
from fairlead.store import triggers as stored_triggers
from tests.given.places import anywhere
from tests.given.times import behind

TENANT = "acme"
OTHER = "umbrella"
TESTER = trusted_principal("tester")

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
# Before every priority that a job may have.
FIRST = -2_000_000
RETIRED = {"key": "retired", "is_active": False}


def a_well_kept_database(url: str) -> None:
    """Settings that doctor recommends, and no duty late: the template may have been made long ago."""
    with psycopg.connect(url, autocommit=True) as connection:
        [(name,)] = connection.execute("select current_database()").fetchall()
        connection.execute(f"alter database {name} set idle_in_transaction_session_timeout = '10s'")
        connection.execute("update fairlead.duties set due_at = now()")


async def tenants_and_definitions(tx: Tx) -> None:
    for slug in (TENANT, OTHER):
        await tenants.add(tx, TESTER, slug=slug)
    for values in (GREET, ANYTHING, RETIRED):
        await definitions.patch(tx, TESTER, str(values["key"]), values)


def catalog() -> Catalog:
    return Catalog(Settings())


def request(**fields: Any) -> NewJob:
    return NewJob(**{"definition": "greet", "tenant": TENANT, "payload": {"name": "Ada"}, **fields})


@anywhere
async def queued_job(tx: Tx, /, **fields: Any) -> UUID:
    """A job that waits."""
    return (await enqueue.enqueue(tx, TESTER, catalog(), request(**fields))).id


@anywhere
async def open_approval(tx: Tx, /, *, form: Any = None, **fields: Any) -> UUID:
    """An approval for which a job waits; every role that can answer may."""
    job_id = await queued_job(tx, **fields)
    approval_id = uuid7()
    await tx.run(
        "insert into fairlead.job_steps (job_id, position, attempt_no, status, kind, name, tenant_id, started_at, request) "
        "select id, 0, 1, 'waiting', 'approval', 'pay', tenant_id, now(), jsonb_build_object('approval_id', %(id)s::text) "
        "from fairlead.job_records where id = %(job)s",
        {"id": approval_id, "job": job_id},
    )
    new = NewApproval(id=approval_id, title="Pay?", form=form, roles=ANSWERING)
    await approvals.add(tx, job_id, Place("", 0), new)
    return approval_id


@anywhere
async def running_job(tx: Tx, /, **fields: Any) -> UUID:
    """A job that a worker has claimed."""
    return (await claimed_job(tx, **fields)).job_id


@anywhere
async def claimed_job(tx: Tx, /, **fields: Any) -> Lease:
    """The lease of a job that a worker has claimed, whatever else waits."""
    return await claim(tx, await queued_job(tx, **fields))


@anywhere
async def claim(tx: Tx, /, job_id: UUID, *, worker: str = "somebody") -> Lease:
    """Let a worker claim this job."""
    [(definition_id, tenant_id, host_id)] = await tx.values(
        "update fairlead.ready set priority = %s where job_id = %s returning definition_id, tenant_id, host_id",
        [FIRST, job_id],
    )
    claim = await queue.claim(
        tx,
        worker=worker,
        wanted=1,
        lease_seconds=30,
        served=(),
        served_pairs=[(definition_id, tenant_id)],
        host=host_id,
    )
    [job] = claim.jobs
    assert job.job_id == job_id
    return claim.lease(job)


@anywhere
async def ended_job(tx: Tx, /, status: str, **fields: Any) -> UUID:
    """A job whose only attempt ended so: it waited for 3 ms, took 20 ms and cost 7 cents."""
    lease = await claimed_job(tx, **fields)
    # a worker's own measure counts only if the attempt may have taken so long
    await tx.run(
        "update fairlead.leases set started_at = started_at - interval '1 s', queue_ms = 3 where job_id = %s",
        [lease.job_id],
    )
    change = Change(
        status=JobStatus(status),
        attempt_status="succeeded" if status == "succeeded" else "failed",
        charge=int(status != "succeeded"),
        cost_cents=7,
        ran={"duration_ms": 20},
    )
    assert await queue.finish(tx, [(lease, change)], actor="somebody") == {lease.job_id: status}
    return lease.job_id


@anywhere
async def begun_step(tx: Tx, /, document: dict[str, Any]) -> tuple[UUID, UUID]:
    """A run of a workflow whose first step waits for a worker: the run and the job."""
    run = await started_workflows.start_inline(tx, TESTER, document, RunRequest(tenant=TENANT))
    [job_id] = await workflows.list_active_jobs(tx, run.id)
    return run.id, job_id


WAIT = Place("", 0)
# The end of an attempt of a durable function that waits there, for an hour at most.
SUSPENDED = decide(RetryBudget(3, 0, 0, Backoff(base_seconds=3600)), Suspended(3600.0, (WAIT,)))


@anywhere
async def begun_wait(
    tx: Tx,
    /,
    *,
    kind: StepKind = StepKind.SIGNAL,
    name: str = "go",
    child_id: UUID | None = None,
    **fields: Any,
) -> Lease:
    """The lease of a durable function that has begun a wait, and has not gone to sleep yet."""
    lease = await claimed_job(tx, **fields)
    wait = NewWait(place=WAIT, kind=kind, name=name, child_id=child_id)
    assert await durable.begin_wait(tx, lease, wait) is not None
    return lease


@anywhere
async def begun_approval(tx: Tx, /, **fields: Any) -> tuple[Lease, UUID]:
    """The lease of a durable function that has asked for an approval and has not gone to sleep yet, and the approval."""
    lease = await claimed_job(tx, **fields)
    new = NewApproval(id=uuid7(), title="Pay?", roles=ANSWERING)
    wait = NewWait(place=WAIT, kind=StepKind.APPROVAL, name="pay", request={"approval_id": str(new.id)})
    assert await asked_approvals.begin_approval(tx, lease, wait, new) is not None
    return lease, new.id


@anywhere
async def waiting_function(tx: Tx, /, **fields: Any) -> UUID:
    """A durable function that sleeps until a signal `go` comes, or what `kind` and `name` say."""
    lease = await begun_wait(tx, **fields)
    await queue.suspend(tx, [(lease, SUSPENDED)], actor="somebody")
    return lease.job_id


EVENT = "folder.updated"


@anywhere
async def trigger(tx: Tx, /, *, tenant: str = TENANT, **fields: Any) -> Trigger:
    """A trigger for events, unless a schedule is asked for; its jobs are of the definition that takes anything."""
    kind = "schedule" if {"cron_expr", "every_seconds"} & fields.keys() else "event"
    document = {"label": "Rule", "trigger_type": kind, "definition_key": "anything", **fields}
    if kind == "event":
        document.setdefault("event_name", EVENT)
    return (await triggers.create(tx, TESTER, tenant, document)).trigger


@anywhere
async def due_trigger(tx: Tx, /, *, instants: int = 1, late: float = 0.0, **fields: Any) -> Trigger:
    """A schedule so many instants of which are due and not seen to: the last of them came so many seconds ago."""
    every = fields.pop("every_seconds", 3600)
    now = await stored_triggers.read_clock(tx)
    first = now - timedelta(seconds=late + every * (instants - 1))
    made = await trigger(tx, **{"every_seconds": every, "start_at": first, **fields})
    await behind(tx, made, first)
    return made


@anywhere
async def event(tx: Tx, /, *, name: str = EVENT, tenant: str = TENANT, **fields: Any) -> UUID:
    """An event that waits."""
    new = NewEvent(name=name, tenant=tenant, **fields)
    return await events.emit(tx, TESTER, catalog(), new)


QUEUED = ("job_records", "ready", "later", "leases", "job_attempts", "active_keys", "counts", "usage_hourly")
RUNS = ("workflow_runs", "workflow_steps")


async def no_inconsistencies(database: Database) -> None:
    """Queue, record and runs agree. Where a test left nothing there is nothing to plan large statements for."""
    has_rows = [
        " or ".join(f"exists (select from fairlead.{table})" for table in tables) for tables in (QUEUED, RUNS)
    ]
    async with database.transaction() as tx:
        [(has_jobs, has_runs)] = await tx.values(f"select {', '.join(has_rows)}")
        assert not has_jobs or await jobs.list_inconsistencies(tx) == []
        assert not has_runs or await workflows.list_inconsistencies(tx) == []
