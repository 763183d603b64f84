"""As if time had passed."""

from datetime import datetime, timedelta
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.model.trigger import Trigger
from tests.given.places import anywhere


async def behind(tx: Tx, made: Trigger, first: datetime) -> None:
    """As if no scheduler had been there since this instant."""
    await tx.run("update fairlead.job_triggers set next_fire_at = %s where id = %s", [first, made.id])


@anywhere
async def end_leases(tx: Tx, /, *, in_seconds: float = -3600) -> None:
    """Let all leases end at that time from now; by default it was an hour ago, and no watchdog has seen it."""
    await tx.run(
        "update fairlead.leases set expires_at = clock_timestamp() + make_interval(secs => %s)", [in_seconds]
    )


@anywhere
async def end_sessions(tx: Tx, /) -> None:
    """Sign everybody out."""
    await tx.run("update fairlead.sessions set revoked_at = clock_timestamp() where revoked_at is null")


# What grows older, and the time that says how old it is.
AGES = {
    "allowances": "allowances.until",
    "attempts": "job_attempts.started_at",
    "counts": "counts.minute",
    "hook deliveries": "hook_deliveries.received_at",
    "leases": "leases.started_at",
    "links": "account_links.expires_at",
    "sessions": "sessions.last_seen_at,idle_ends_at",
    "setups of second factors": "second_factors.created_at",
    "tickets": "live_tickets.expires_at",
}


@anywhere
async def age(tx: Tx, /, what: str, *, days: int = 0, seconds: float = 0) -> None:
    """Let time pass for everything of a kind."""
    table, columns = AGES[what].split(".")
    for column in columns.split(","):
        passed = timedelta(days=days, seconds=seconds)
        await tx.run(f"update fairlead.{table} set {column} = {column} - %s", [passed])


@anywhere
async def count_in_one_minute(tx: Tx, /) -> None:
    """As if whatever was counted had been in one minute, also if the next one began meanwhile."""
    await tx.run("update fairlead.counts set minute = (select max(minute) from fairlead.counts)")


# What has an end, and its table.
ENDS = {
    "dedupe windows": "dedupe_windows",
    "enrolment codes": "enrolment_codes",
    "openings": "openings",
    "sessions": "sessions",
    "messages of sources": "source_messages",
    "sign-ins": "pending_sign_ins",
    "tokens": "tokens",
}


@anywhere
async def expire(tx: Tx, /, what: str, *, in_seconds: float = 0) -> None:
    """Let the time of everything of a kind be over at that time from now, if it has an end."""
    await tx.run(
        f"update fairlead.{ENDS[what]} set expires_at = clock_timestamp() + make_interval(secs => %s) "
        "where expires_at is not null",
        [in_seconds],
    )


@anywhere
async def wait_longer(tx: Tx, /, job_id: UUID, *, seconds: float) -> None:
    """As if a queued job had been due for so long."""
    for table, key in (("ready", "job_id"), ("job_records", "id")):
        await tx.run(
            f"update fairlead.{table} set scheduled_for = scheduled_for - make_interval(secs => %s) where {key} = %s",
            [seconds, job_id],
        )


@anywhere
async def age_job(tx: Tx, /, job_id: UUID, days: int) -> UUID:
    """Make a job that ended so many days old: its new id, as ids have times and retention goes by both."""
    [(old,)] = await tx.values(
        "select (lpad(to_hex((extract(epoch from clock_timestamp() - make_interval(days => %s)) * 1000)::bigint), 12, '0') "
        "|| substr(replace(%s::text, '-', ''), 13))::uuid",
        [days, job_id],
    )
    await tx.run(
        "update fairlead.job_records set id = %s, finished_at = clock_timestamp() - make_interval(days => %s) where id = %s",
        [old, days, job_id],
    )
    for table in ("job_attempts", "log_chunks"):
        await tx.run(f"update fairlead.{table} set job_id = %s where job_id = %s", [old, job_id])
    return UUID(str(old))
