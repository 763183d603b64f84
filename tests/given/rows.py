"""What the database says."""

from typing import Any
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.model.access import User
from fairlead.model.event import Event
from fairlead.model.job import Job
from fairlead.store import access, audit, events, jobs
from fairlead.store.audit import AuditFilter, StoredEntry
from tests.given.places import anywhere


@anywhere
async def count(tx: Tx, /, table: str) -> int:
    [(number,)] = await tx.values(f"select count(*) from fairlead.{table}")
    return int(number)


@anywhere
async def newest_id(tx: Tx, /, table: str) -> str | None:
    """The id of what was made last, if there is anything."""
    [(newest,)] = await tx.values(f"select max(id::text) from fairlead.{table}")
    return newest and str(newest)


@anywhere
async def read_job(tx: Tx, /, job_id: UUID) -> Job:
    job = await jobs.get(tx, job_id)
    assert job is not None
    return job


@anywhere
async def all_jobs(tx: Tx, /) -> list[Job]:
    """Oldest first."""
    return (await jobs.find(tx, {}, limit=1000))[::-1]


@anywhere
async def all_events(tx: Tx, /) -> list[Event]:
    """Oldest first."""
    page = await events.list_page(tx, tenant_id=None, name=None, correlation_id=None, before=None, limit=1000)
    return page[::-1]


@anywhere
async def attempt_id(tx: Tx, /, job_id: object) -> UUID:
    """Of the job's only attempt, also while it runs."""
    [(attempt,)] = await tx.values("select id from fairlead.attempts where job_id = %s", [job_id])
    return UUID(str(attempt))


@anywhere
async def log_chunks(tx: Tx, /, job_id: UUID | None = None) -> list[tuple[int, bytes]]:
    """The numbers and texts of what jobs have written, or one of them."""
    query = (
        "select seq, text from fairlead.log_chunks where job_id = coalesce(%s, job_id) order by job_id, seq"
    )
    return [(seq, text.encode()) for seq, text in await tx.values(query, [job_id])]


@anywhere
async def stored_template(tx: Tx, /, trigger_id: object) -> Any:
    """The payload template of a trigger, as it is stored."""
    [(template,)] = await tx.values(
        "select payload_template from fairlead.job_triggers where id = %s", [trigger_id]
    )
    return template


@anywhere
async def audit_entries(tx: Tx, /, action: str | None = None, **wanted: Any) -> list[StoredEntry]:
    """The entries of the audit log that a filter wants, oldest first."""
    page = await audit.list_entries(
        tx, AuditFilter(action=action, **wanted), tenant_id=None, place=None, limit=500
    )
    return page[::-1]


@anywhere
async def users(tx: Tx, /) -> list[User]:
    return await access.list_users(tx, tenant_id=None, after=None, limit=1000)


@anywhere
async def user_id(tx: Tx, /, email: str) -> UUID:
    [user] = await access.find_credentials(tx, email)
    return user.id


@anywhere
async def used_tokens(tx: Tx, /) -> list[str]:
    """The names of the tokens that somebody has used."""
    tokens = await access.list_tokens(tx, tenant_id=None, after=None, limit=1000)
    return [token.name for token in tokens if token.last_used_at is not None]


@anywhere
async def stored_text(tx: Tx, /, table: str) -> str:
    """All that a table has, as text: to look for what must not be there."""
    rows = await tx.values(f"select t::text from fairlead.{table} t")
    return "\n".join(text for (text,) in rows)


@anywhere
async def seconds_left(tx: Tx, /, table: str) -> float:
    """Until the only row of a table expires."""
    query = f"select extract(epoch from expires_at - clock_timestamp()) from fairlead.{table}"
    [(seconds,)] = await tx.values(query)
    return float(seconds)
