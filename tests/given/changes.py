"""What a test sets behind Fairlead's back: facts that take long to come about, and faults."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fairlead.db.tx import Tx, json_text
from fairlead.model.access import Role
from fairlead.store import access, hosts, tenants
from tests.given.beginnings import TENANT, ended_job
from tests.given.places import anywhere

HOUR = timedelta(hours=1)
# The hash of a password that nobody knows.
UNKNOWN = "-"
USAGE = (
    "runs",
    "succeeded",
    "failed",
    "dead_letter",
    "canceled",
    "retried",
    "run_ms",
    "queue_ms",
    "cost_cents",
)


async def _set(tx: Tx, table: str, columns: dict[str, Any], where: str = "true", *values: object) -> None:
    changes = ", ".join(f"{name} = %s" for name in columns)
    await tx.run(f"update fairlead.{table} set {changes} where {where}", [*_encode(columns), *values])


async def _add(tx: Tx, table: str, columns: dict[str, Any]) -> None:
    names, places = ", ".join(columns), ", ".join("%s" for _ in columns)
    await tx.run(f"insert into fairlead.{table} ({names}) values ({places})", _encode(columns))


def _encode(columns: dict[str, Any]) -> list[Any]:
    return [json_text(value) if isinstance(value, dict) else value for value in columns.values()]


async def roll_back(tx: Tx) -> None:
    """Undo what this transaction has done so far; it goes on as a new one."""
    await tx.connection.execute("rollback")
    await tx.connection.execute("begin")


@anywhere
async def set_job(tx: Tx, /, job_id: UUID | None = None, **columns: Any) -> None:
    """Fields of a job's record, or of every job's."""
    await _set(tx, "job_records", columns, "id = coalesce(%s, id)", job_id)


@anywhere
async def failed_job(tx: Tx, /, error: str, *, status: str = "dead_letter", **fields: Any) -> UUID:
    """A job that ended with this error."""
    job_id = await ended_job(tx, status, **fields)
    await set_job(tx, job_id, last_error=error)
    return job_id


@anywhere
async def set_attempt(tx: Tx, /, job_id: UUID | None = None, **columns: Any) -> None:
    """Fields of the attempts of a job that have ended, or of every job's."""
    await _set(tx, "job_attempts", columns, "job_id = coalesce(%s, job_id)", job_id)


@anywhere
async def set_definition(tx: Tx, /, key: str | None = None, **columns: Any) -> None:
    await _set(tx, "job_definitions", columns, "key = coalesce(%s, key)", key)


@anywhere
async def set_trigger(tx: Tx, /, trigger_id: UUID, **columns: Any) -> None:
    await _set(tx, "job_triggers", columns, "id = %s", trigger_id)


@anywhere
async def set_tenant(tx: Tx, /, slug: str | None = None, **columns: Any) -> None:
    await _set(tx, "tenants", columns, "slug = coalesce(%s, slug)", slug)


@anywhere
async def set_cell_url(tx: Tx, /, cell: str, url: str) -> str:
    """Where the directory says that a cell is; the address before."""
    [(before,)] = await tx.values("select url from fairlead.cells where name = %s", [cell])
    await _set(tx, "cells", {"url": url}, "name = %s", cell)
    return str(before)


@anywhere
async def set_user(tx: Tx, /, email: str | None = None, **columns: Any) -> None:
    await _set(tx, "users", columns, "email = coalesce(%s, email)", email)


@anywhere
async def add_user(tx: Tx, /, email: str, *, role: Role = Role.TENANT_ADMIN, tenant: str = TENANT) -> None:
    """Somebody with a password that nobody knows."""
    [tenant_id] = (await tenants.get_ids(tx, [tenant])).values()
    await access.add_user(
        tx, tenant_id=tenant_id, email=email, password_hash=UNKNOWN, role=role, created_by="tester"
    )


@anywhere
async def give_password(tx: Tx, /, email: str) -> None:
    """A password that nobody knows, to a user who had none."""
    await set_user(tx, email, password_hash=UNKNOWN)


@anywhere
async def take_password(tx: Tx, /, email: str | None = None) -> None:
    """Leave a user, or everybody, without a password."""
    await set_user(tx, email, password_hash=None)


@anywhere
async def set_approval(tx: Tx, /, approval_id: UUID | None = None, **columns: Any) -> None:
    await _set(tx, "approvals", columns, "id = coalesce(%s, id)", approval_id)


@anywhere
async def set_counts(tx: Tx, /, **columns: int) -> None:
    """Numbers that the counts say where they say any."""
    for name, number in columns.items():
        await _set(tx, "counts", {name: number}, f"{name} > 0")


@anywhere
async def add_worker(
    tx: Tx,
    /,
    worker_id: str,
    *,
    seen: timedelta = timedelta(),
    definitions: Iterable[str] = (),
    **columns: Any,
) -> None:
    """A worker that was seen that long after now: an hour, so that it is not silent however long a test takes."""
    host, *_ = worker_id.split(":")
    traits = {"hostname": host, "queues": list(definitions), "last_seen_at": datetime.now(UTC) + seen}
    await _add(tx, "job_workers", {"worker_id": worker_id, **traits, **columns})


@anywhere
async def two_workers(tx: Tx, /, *, definitions: Iterable[str] = ("greet", "anything")) -> None:
    """One that is not silent however long a test takes, and one that is."""
    busy = {"running_count": 3, "concurrency": 10, "version": "0.0.1"}
    await add_worker(tx, "web-1:7:abc", seen=HOUR, definitions=definitions, **busy)
    await add_worker(tx, "web-2:7:def", seen=-HOUR, running_count=1, concurrency=10)


@anywhere
async def set_worker(tx: Tx, /, worker_id: str, **columns: Any) -> None:
    await _set(tx, "job_workers", columns, "worker_id = %s", worker_id)


@anywhere
async def add_source(
    tx: Tx, /, name: str, *, tenant: str | None = TENANT, seen: timedelta = timedelta(), **columns: Any
) -> None:
    """A source of events that a process has reported."""
    [(tenant_id,)] = await tx.values("select (select id from fairlead.tenants where slug = %s)", [tenant])
    traits = {"driver": "nats", "tenant_id": tenant_id, "event": "order.placed"}
    traits["seen_at"] = datetime.now(UTC) + seen
    await _add(tx, "sources", {"name": name, **traits, **columns})


@anywhere
async def link_identity(
    tx: Tx,
    /,
    user_id: object = None,
    *,
    subject: str = "ada-1",
    issuer: str = "https://id.example",
    provider: str = "work",
) -> None:
    """Let a user, or everybody, sign in with a provider, too."""
    await tx.run(
        "insert into fairlead.identities (user_id, tenant_id, issuer, subject, provider) "
        "select id, tenant_id, %s, %s, %s from fairlead.users where id = coalesce(%s, id)",
        [issuer, subject, provider, user_id],
    )


@anywhere
async def write_log(tx: Tx, /, job_id: UUID, *chunks: str) -> None:
    """The output of a job's first attempt, also after its end."""
    await tx.run(
        "insert into fairlead.log_chunks (job_id, attempt_no, seq, tenant_id, stream, text) "
        "select id, 1, chunk.seq, tenant_id, 'stdout', chunk.text "
        "from fairlead.job_records, unnest(%s::text[]) with ordinality chunk(text, seq) where id = %s",
        [list(chunks), job_id],
    )


@anywhere
async def add_usage(
    tx: Tx, /, tenant: str, hour: datetime | None = None, *, run_ms: int, **columns: int
) -> None:
    """What ran for a tenant in an hour."""
    [ids] = await tx.values(
        "select t.id, d.id, date_trunc('hour', coalesce(%s, now())) from fairlead.tenants t, fairlead.job_definitions d "
        "where t.slug = %s and d.key = 'greet'",
        [hour, tenant],
    )
    numbers = dict.fromkeys(USAGE, 0) | {"run_ms": run_ms, **columns}
    await _add(
        tx, "usage_hourly", dict(zip(("tenant_id", "definition_id", "hour"), ids, strict=True)) | numbers
    )


@anywhere
async def forget_usage(tx: Tx, /, tenant: str) -> None:
    await tx.run(
        "delete from fairlead.usage_hourly where tenant_id = (select id from fairlead.tenants where slug = %s)",
        [tenant],
    )


@anywhere
async def forget_failures(tx: Tx, /, *, but: str) -> None:
    """As if nobody had failed before, except in these ways."""
    await tx.run("delete from fairlead.allowances where not starts_with(key, %s)", [but])


@anywhere
async def forget_events(tx: Tx, /) -> None:
    for table in ("events_waiting", "events"):
        await tx.run(f"delete from fairlead.{table}")


@anywhere
async def forget_runs(tx: Tx, /) -> None:
    await tx.run("delete from fairlead.workflow_runs")


@anywhere
async def run_checks_now(tx: Tx, /) -> None:
    """As if the regular checks had just been made."""
    await tx.run("update fairlead.duties set done_at = clock_timestamp() where name = 'checks'")


@anywhere
async def add_host(tx: Tx, /, tenant_id: UUID, name: str = "host", max_running: int = 1) -> UUID:
    host_id = await hosts.add(
        tx, tenant_id=tenant_id, name=name, max_running=max_running, labels={}, created_by="tester"
    )
    assert host_id is not None
    return host_id
