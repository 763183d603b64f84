"""What can be seen to be wrong: in hot tables, in PostgreSQL itself; and what was found last."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.finding import Finding

sql = queries_beside(__file__)

# The most rows that a check looks at.
LOOK = 5000


class Idle(msgspec.Struct, frozen=True):
    """A transaction in which nothing happens."""

    pid: int
    application: str | None
    seconds: float


class Holder(msgspec.Struct, frozen=True):
    """What holds the oldest xmin: for so many seconds, where that is known, and so many transactions."""

    holder: str
    seconds: float | None
    transactions: int | None


class Expired(msgspec.Struct, frozen=True):
    """Leases that nobody took back, and how long the oldest has been over."""

    leases: int
    seconds: float


class Sleeper(msgspec.Struct, frozen=True):
    """A job that waits for a run that is over."""

    job_id: UUID
    run_id: UUID


class Orphan(msgspec.Struct, frozen=True):
    """A job that its status says is in a hot table, and that is in none."""

    job_id: UUID
    status: str


class LateDuty(msgspec.Struct, frozen=True):
    """A duty that is late, or fails."""

    name: str
    late_seconds: float
    failures: int
    last_error: str | None


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """How PostgreSQL is set up, as far as Fairlead depends on it."""

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


async def server(tx: Tx) -> Server:
    """How PostgreSQL is set up."""
    [found] = await tx.all(Server, sql.server)
    return found


async def idle_transactions(tx: Tx) -> list[Idle]:
    """Transactions that have been idle for longer than a lease, the oldest first."""
    return await tx.all(Idle, sql.idle_transactions, {"lease_seconds": tx.settings.lease_seconds})


async def oldest_xmin(tx: Tx) -> Holder | None:
    """What holds the oldest xmin of the server."""
    return await tx.first(Holder, sql.oldest_xmin)


async def expired_leases(tx: Tx) -> Expired:
    """Leases that expired longer ago than a lease and a sweep."""
    seconds = {"lease_seconds": tx.settings.lease_seconds, "sweep_seconds": tx.settings.sweep_seconds}
    [found] = await tx.all(Expired, sql.expired_leases, seconds)
    return found


async def overdue_later(tx: Tx) -> float:
    """For how many seconds the first job in `later` has been due."""
    [(seconds,)] = await tx.values(sql.overdue_later)
    return float(seconds)


async def sleepers(tx: Tx, *, seconds: float) -> list[Sleeper]:
    """Jobs that wait for a run that has been over for so many seconds."""
    return await tx.all(Sleeper, sql.sleepers, {"seconds": seconds, "look": LOOK})


async def orphans(tx: Tx) -> list[Orphan]:
    """Those of the newest jobs that run without a lease."""
    return await tx.all(Orphan, sql.orphans, {"look": LOOK})


async def late_duties(tx: Tx, *, late_seconds: float, failures: int) -> list[LateDuty]:
    """Duties that are late by so many seconds, or failed so many times in a row."""
    return await tx.all(LateDuty, sql.duties, {"late_seconds": late_seconds, "failures": failures})


async def audit_rest(tx: Tx) -> int:
    """How many entries are in audit_log_rest, counted up to a bound."""
    [(rows,)] = await tx.values(sql.audit_rest, {"look": LOOK})
    return int(rows)


async def unfolded(tx: Tx) -> int:
    """How many rows of counts the fold has left behind, counted up to a bound."""
    [(rows,)] = await tx.values(sql.unfolded, {"look": LOOK * 4})
    return int(rows)


async def put(tx: Tx, found: Sequence[Finding]) -> set[str]:
    """Keep what was found. The names of checks whose verdict changed."""
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


async def stored(tx: Tx) -> list[Finding]:
    """What was found last, by name."""
    return await tx.all(Finding, sql.stored)


async def stored_seconds(tx: Tx) -> float | None:
    """How long ago a process last ran the checks; None if none has."""
    [(seconds,)] = await tx.values(sql.stored_seconds)
    return None if seconds is None else float(seconds)
