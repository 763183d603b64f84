"""Jobs, their places in the queue, and runs of workflows: what takes long to come about, faults, and what is kept of them."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.store import definitions, testing
from tests.given.beginnings import TENANT, queued_job
from tests.given.changes import _set as set_rows
from tests.given.changes import add_host, set_job, set_tenant
from tests.given.places import anywhere

# Whose they are


@anywhere
async def tenant_id(tx: Tx, /, slug: str = TENANT) -> UUID:
    """Also of one that has moved away."""
    [(found,)] = await tx.values("select id from fairlead.tenants where slug = %s", [slug])
    return UUID(str(found))


@anywhere
async def definition_id(tx: Tx, /, key: str = "greet") -> UUID:
    return (await definitions.get_ids(tx, [key]))[key]


@anywhere
async def count_versions(tx: Tx, /, key: str) -> int:
    """How many versions of a definition are kept."""
    query = "select count(*) from fairlead.definition_versions where definition_id = %s"
    [(number,)] = await tx.values(query, [await definition_id(tx, key)])
    return int(number)


@anywhere
async def place_tenant(tx: Tx, /, slug: str, placement: str, moved_to: str | None = None) -> None:
    """Say where a tenant is, and have its next enqueue see that: while there is room, it does not look."""
    await set_tenant(tx, slug, placement=placement, moved_to=moved_to)
    await tx.run("update fairlead.tenant_use set roomy_until = '-infinity'")


# Hosts


@anywhere
async def host(
    tx: Tx,
    /,
    name: str = "rack-1",
    *,
    tenant: str = TENANT,
    seen: timedelta | None = None,
    max_running: int = 1,
) -> UUID:
    """A host whose agent was seen that long ago; None: never."""
    host_id = await add_host(tx, await tenant_id(tx, tenant), name, max_running)
    if seen is not None:
        await see_hosts(tx, seen)
    return host_id


@anywhere
async def see_hosts(tx: Tx, /, ago: timedelta = timedelta()) -> None:
    """As if the agents of all hosts had been seen that long ago."""
    await tx.run("update fairlead.hosts set last_seen_at = clock_timestamp() - %s", [ago])


@anywhere
async def set_hosts(tx: Tx, /, **columns: Any) -> None:
    """Fields of all hosts."""
    await set_rows(tx, "hosts", columns)


@anywhere
async def bind_to_host(tx: Tx, /, job_id: UUID, host_id: UUID) -> None:
    """Give a job that is ready to a host."""
    await set_job(tx, job_id, host_id=host_id)
    await tx.run("update fairlead.ready set host_id = %s where job_id = %s", [host_id, job_id])


@anywhere
async def host_job(tx: Tx, /, host_id: UUID, **fields: Any) -> UUID:
    """A job that waits for a host."""
    job_id = await queued_job(tx, **fields)
    await bind_to_host(tx, job_id, host_id)
    return job_id


# Places in the queue

QueuePlace = Literal["ready", "later", "held"]


@anywhere
async def place_of(tx: Tx, /, job_id: UUID) -> tuple[QueuePlace, UUID | None]:
    """Where a job waits (held: its key holds it back), and for which host."""
    [(place, host_id)] = await tx.values(
        "select 'ready', host_id from fairlead.ready where job_id = %(id)s union all "
        "select case when held then 'held' else 'later' end, host_id from fairlead.later where job_id = %(id)s",
        {"id": job_id},
    )
    return place, host_id


@anywhere
async def ready_jobs(tx: Tx, /) -> list[UUID]:
    return [job_id for (job_id,) in await tx.values("select job_id from fairlead.ready")]


@anywhere
async def count_enqueuing_transactions(tx: Tx, /) -> int:
    """How many transactions made the jobs that are ready."""
    [(number,)] = await tx.values("select count(distinct xmin::text) from fairlead.ready")
    return int(number)


@anywhere
async def fall_due(tx: Tx, /, ago: timedelta = timedelta(seconds=1)) -> None:
    """Let all jobs that wait for their time have been due for so long; nobody has seen it."""
    await tx.run("update fairlead.later set due_at = clock_timestamp() + interval '1 microsecond'")
    await testing.pass_time(tx, ago.total_seconds())


@anywhere
async def wait_for_ever(tx: Tx, /) -> None:
    """Let all jobs that wait for their time wait for something else."""
    await tx.run("update fairlead.later set due_at = 'infinity'")


@anywhere
async def wait_again(tx: Tx, /, *, alone: bool = False) -> None:
    """As if all jobs that are ready had waited for their time, or to run alone, and had fallen due now."""
    await tx.run(
        "with moved as (delete from fairlead.ready returning *) "
        "insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, alone) "
        "select job_id, tenant_id, definition_id, host_id, priority, scheduled_for, %s from moved",
        [alone],
    )


@anywhere
async def suspects(tx: Tx, /) -> list[UUID]:
    """The jobs that wait to run alone."""
    return [job_id for (job_id,) in await tx.values("select job_id from fairlead.later where alone")]


@anywhere
async def backlog(tx: Tx, /, number: int, *, host_id: UUID | None = None) -> None:
    """So many places of each definition in the queue, without jobs, and counted: for a plan that must not read them."""
    await tx.run(
        "insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for) "
        "select gen_random_uuid(), t.id, d.id, %s, 100 + n %% 2, now() - n * interval '1 ms' "
        "from fairlead.tenants t, fairlead.job_definitions d, generate_series(1, %s) n where t.slug = %s",
        [host_id, number, TENANT],
    )
    await tx.run(
        "insert into fairlead.counts (tenant_id, definition_id, minute, queued) "
        "select t.id, d.id, now(), %s from fairlead.tenants t, fairlead.job_definitions d where t.slug = %s",
        [number, TENANT],
    )
    await tx.run("analyze fairlead.ready")


@anywhere
async def forget_waiting(tx: Tx, /, tenant: str) -> None:
    """Leave no job of a tenant in the queue, as if none had been enqueued."""
    whose = [await tenant_id(tx, tenant)]
    await tx.run("delete from fairlead.ready where tenant_id = %s", whose)
    await tx.run("delete from fairlead.counts where queued > 0 and tenant_id = %s", whose)


@anywhere
async def forget_jobs(tx: Tx, /) -> None:
    """As after retention: no job is left, and none is counted."""
    for table in ("job_records", "counts"):
        await tx.run(f"delete from fairlead.{table}")


@anywhere
async def count_asleep(tx: Tx, /, *job_ids: UUID) -> int:
    """How many of these durable functions, or of all, sleep."""
    [(number,)] = await tx.values(
        "select count(*) from fairlead.later where waits and (%(all)s or job_id = any(%(ids)s))",
        {"all": not job_ids, "ids": list(job_ids)},
    )
    return int(number)


# Leases


@anywhere
async def lose_leases(tx: Tx, /) -> None:
    """Give all leases to somebody else."""
    await tx.run("update fairlead.leases set token = gen_random_uuid()")


@anywhere
async def lease_end(tx: Tx, /, job_id: UUID | None = None) -> datetime:
    """When a job's lease, or the first of all, expires."""
    [(end,)] = await tx.values(
        "select min(expires_at) from fairlead.leases where job_id = coalesce(%s, job_id)", [job_id]
    )
    assert isinstance(end, datetime)
    return end


# What somebody else is changing, and its table and column.
HELD = {
    "job": ("job_records", "id"),
    "lease": ("leases", "job_id"),
    "place": ("ready", "job_id"),
    "run": ("workflow_runs", "id"),
}


async def hold(tx: Tx, what: str, of: UUID | None = None) -> None:
    """Keep others from changing something, or everything of a kind, until the end of the transaction."""
    table, column = HELD[what]
    await tx.run(f"select from fairlead.{table} where {column} = coalesce(%s, {column}) for update", [of])


# Options of jobs


@anywhere
async def job_tags(tx: Tx, /, job_id: UUID | None = None) -> set[tuple[str, UUID]]:
    """The tags by which jobs are found, with their jobs."""
    query = "select tag, job_id from fairlead.job_tags where job_id = coalesce(%s, job_id)"
    return {(tag, tagged) for tag, tagged in await tx.values(query, [job_id])}


@anywhere
async def expiring_jobs(tx: Tx, /) -> dict[UUID, datetime]:
    """When the jobs expire that have not started: each once."""
    rows = await tx.values("select job_id, expires_at from fairlead.expiries")
    expiring: dict[UUID, datetime] = dict(rows)
    assert len(expiring) == len(rows)
    return expiring


@anywhere
async def expire_jobs(tx: Tx, /) -> None:
    """Let the time of all jobs that expire be over."""
    await tx.run("update fairlead.expiries set expires_at = clock_timestamp() - interval '1 s'")
    await tx.run(
        "update fairlead.job_records j set expires_at = e.expires_at from fairlead.expiries e where e.job_id = j.id"
    )


@anywhere
async def key_holders(tx: Tx, /) -> list[UUID]:
    """The jobs that have a dedupe key."""
    return [job_id for (job_id,) in await tx.values("select job_id from fairlead.active_keys")]


@anywhere
async def free_keys(tx: Tx, /, job_id: UUID | None = None) -> None:
    """Let the time be over for which dedupe keys stay taken after the ends of their jobs, or of one."""
    await tx.run(
        "update fairlead.active_keys set unique_until = clock_timestamp() where job_id = coalesce(%s, job_id)",
        [job_id],
    )


@anywhere
async def debounced_jobs(tx: Tx, /) -> list[UUID]:
    return [job_id for (job_id,) in await tx.values("select job_id from fairlead.debounces")]


@anywhere
async def age_debounces(tx: Tx, /, by: timedelta) -> None:
    """Let debounced calls have begun, and their jobs be due, so much earlier."""
    await tx.run(
        "update fairlead.debounces set first_at = first_at - %(by)s, due_at = due_at - %(by)s", {"by": by}
    )


# Duties of the watchdog


@anywhere
async def rest_from_duties(tx: Tx, /, but: Collection[str] = ()) -> None:
    """Let no duty but these be due."""
    await tx.run("update fairlead.duties set due_at = 'infinity' where name <> all(%s)", [list(but)])


@anywhere
async def make_duty_due(tx: Tx, /, name: str, late: timedelta = timedelta()) -> None:
    await tx.run("update fairlead.duties set due_at = clock_timestamp() - %s where name = %s", [late, name])


@anywhere
async def duty_times(tx: Tx, /) -> dict[str, datetime]:
    """When each duty is due."""
    return dict(await tx.values("select name, due_at from fairlead.duties"))


@anywhere
async def fail_duty(tx: Tx, /, name: str, why: str, times: int) -> None:
    """As if a duty had failed so often."""
    await tx.run(
        "update fairlead.duties set failures = %s, last_error = %s where name = %s", [times, why, name]
    )


@anywhere
async def failed_duties(tx: Tx, /) -> dict[str, str]:
    """The duties that failed the last time, and why."""
    return dict(await tx.values("select name, last_error from fairlead.duties where failures > 0 order by 1"))


@anywhere
async def age_pulse(tx: Tx, /, by: timedelta) -> None:
    """As if so much time had passed since the last watchdog looked after expired leases."""
    columns = ("pulse_at", "resumed_at", "resumed_before")
    changes = ", ".join(f"{column} = {column} - %(by)s" for column in columns)
    await tx.run(f"update fairlead.pulse set {changes}", {"by": by})


# Events


@anywhere
async def make_events_due(tx: Tx, /) -> None:
    """Have those dispatched now that were put off."""
    await tx.run("update fairlead.events_waiting set due_at = clock_timestamp()")


@anywhere
async def age_event(tx: Tx, /, event_id: UUID, by: timedelta) -> None:
    """Let an event, and what it fired, be so much older."""
    await tx.run("update fairlead.events set recorded_at = recorded_at - %s where id = %s", [by, event_id])
    await tx.run(
        "update fairlead.trigger_firings set fired_at = fired_at - %s where event_id = %s", [by, event_id]
    )


# Runs of workflows


@anywhere
async def run_statuses(tx: Tx, /) -> dict[UUID, str]:
    """The status of each run, oldest first."""
    return dict(await tx.values("select id, status::text from fairlead.workflow_runs order by id"))


@anywhere
async def set_run(tx: Tx, /, **columns: Any) -> None:
    """Fields of all runs."""
    await set_rows(tx, "workflow_runs", columns)


@anywhere
async def set_step(tx: Tx, /, name: str, **columns: Any) -> None:
    """Fields of the steps of this name."""
    await set_rows(tx, "workflow_steps", columns, "name = %s", name)
