"""Health checks of the hot tables and of PostgreSQL, and the last findings."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.finding import Finding

sql = queries_beside(__file__)

# The most rows that a check looks at.
LOOK = 5000


class IdleTransaction(msgspec.Struct, frozen=True):
    """An idle transaction."""

    pid: int
    application: str | None
    seconds: float


class XminHolder(msgspec.Struct, frozen=True):
    """The session, prepared transaction or slot with the oldest xmin: its age in seconds, if known, and in transactions."""

    holder: str
    seconds: float | None
    transactions: int | None


class ExpiredLeases(msgspec.Struct, frozen=True):
    """The number of expired leases that no watchdog rescued, and how long ago the oldest expired."""

    leases: int
    seconds: float


class SleepingJob(msgspec.Struct, frozen=True):
    """A job that waits for a run that has ended."""

    job_id: UUID
    run_id: UUID


class LateDuty(msgspec.Struct, frozen=True):
    """A duty that is late, or fails."""

    name: str
    late_seconds: float
    failures: int
    last_error: str | None


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and state of PostgreSQL that Fairlead depends on."""

    isolation: str
    idle_milliseconds: int
    default_idle_milliseconds: int
    is_remote: bool
    keepalives_idle: int
    synchronous_commit: str
    standby_names: str
    standbys: int
    synchronous_standbys: int
    connections: int
    connected: int
    workers: int
    frozen_age: int
    freeze_max_age: int
    autovacuum: str
    track_counts: str


async def read_server_state(tx: Tx) -> ServerState:
    """The settings and state of PostgreSQL."""
    [found] = await tx.all(ServerState, sql.server)
    return found


async def list_idle_transactions(tx: Tx) -> list[IdleTransaction]:
    """Transactions that have been idle for longer than a lease, the oldest first."""
    return await tx.all(IdleTransaction, sql.idle_transactions, {"lease_seconds": tx.settings.lease_seconds})


async def find_oldest_xmin(tx: Tx) -> XminHolder | None:
    """The holder of the server's oldest xmin."""
    return await tx.first(XminHolder, sql.oldest_xmin)


async def count_expired_leases(tx: Tx) -> ExpiredLeases:
    """Leases that expired more than a lease and a sweep ago."""
    seconds = {"lease_seconds": tx.settings.lease_seconds, "sweep_seconds": tx.settings.sweep_seconds}
    [found] = await tx.all(ExpiredLeases, sql.expired_leases, seconds)
    return found


async def measure_overdue(tx: Tx) -> float:
    """The seconds since the first job in `later` fell due."""
    [(seconds,)] = await tx.values(sql.overdue_later)
    return float(seconds)


async def measure_left_steps(tx: Tx) -> float:
    """The seconds since the first of the workflow steps was left whose jobs are still to be made."""
    [(seconds,)] = await tx.values(sql.left_steps)
    return float(seconds)


async def list_sleeping_jobs(tx: Tx, *, seconds: float) -> list[SleepingJob]:
    """Jobs that wait for a run that ended at least `seconds` ago."""
    return await tx.all(SleepingJob, sql.sleepers, {"seconds": seconds, "look": LOOK})


async def list_late_duties(tx: Tx, *, late_seconds: float, failures: int) -> list[LateDuty]:
    """Duties that are at least `late_seconds` late, or failed `failures` times in a row."""
    return await tx.all(LateDuty, sql.duties, {"late_seconds": late_seconds, "failures": failures})


async def count_audit_rest(tx: Tx) -> int:
    """The number of entries in audit_log_rest, counted up to a bound."""
    [(rows,)] = await tx.values(sql.audit_rest, {"look": LOOK})
    return int(rows)


async def count_unfolded(tx: Tx) -> int:
    """The number of rows of counts that the fold has missed, counted up to a bound."""
    [(rows,)] = await tx.values(sql.unfolded, {"look": LOOK * 4})
    return int(rows)


async def store_findings(tx: Tx, found: Sequence[Finding]) -> set[str]:
    """Store the findings. The names of checks whose verdict changed."""
    document = [
        {
            "name": one.check,
            "verdict": one.verdict,
            "value": one.value,
            "detail": one.detail,
            "advice": one.advice,
        }
        for one in found
    ]
    return {name for (name,) in await tx.values(sql.put, {"found": json_text(document)})}


async def list_findings(tx: Tx) -> list[Finding]:
    """The last findings, by name."""
    return await tx.all(Finding, sql.stored)


async def findings_age(tx: Tx) -> float | None:
    """The seconds since a process last ran the checks; None if none has."""
    [(seconds,)] = await tx.values(sql.stored_seconds)
    return None if seconds is None else float(seconds)
