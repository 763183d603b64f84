"""The queue: claimed, kept alive, finished, put back. Takes a Tx, never opens one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Backoff, Budget, Change, Lost, decide

sql = queries_beside(__file__)


class Cursor(NamedTuple):
    """A worker's place in the circle of tenants, and what is left of that tenant's turn."""

    tenant: UUID | None = None
    credit: int = 0


class Claimed(msgspec.Struct, frozen=True):
    """A job that is now ours, and all that is needed to run it: the columns of fairlead.claim, in their order."""

    job_id: UUID
    attempt_no: int
    tenant_id: UUID
    tenant: str
    definition_key: str
    priority: int
    payload: Any
    max_attempts: int
    failure_count: int
    lost_count: int
    scheduled_for: datetime
    started_at: datetime
    parent_id: UUID | None
    correlation_id: str | None
    timeout_seconds: int
    backoff: Backoff
    cursor_tenant: UUID
    cursor_credit: int

    @property
    def budget(self) -> Budget:
        return Budget(self.max_attempts, self.failure_count, self.lost_count, self.backoff)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim brought: jobs, the token of their leases, and where to go on."""

    jobs: list[Claimed]
    token: UUID
    cursor: Cursor

    def lease(self, job: Claimed) -> Lease:
        return Lease(job.job_id, job.attempt_no, self.token)


async def claim(
    tx: Tx,
    *,
    worker: str,
    wanted: int,
    lease_seconds: float,
    served: Sequence[UUID] | None = None,
    cursor: Cursor = Cursor(),  # noqa: B008 - immutable
    host: UUID | None = None,
) -> Claim:
    """Take up to `wanted` jobs that are due, served and held back by no gate or limit: fair between tenants."""
    token = uuid4()
    values = {
        "worker": worker,
        "token": token,
        "wanted": wanted,
        "lease_seconds": lease_seconds,
        "served": None if served is None else list(served),
        "at_tenant": cursor.tenant,
        "credit": cursor.credit,
        "host": host,
    }
    rows = await tx.values(sql.claim, values)
    jobs = [Claimed(*[*row[:15], _backoff(**row[15]), *row[16:]]) for row in rows]
    return Claim(jobs, token, Cursor(jobs[0].cursor_tenant, jobs[0].cursor_credit) if jobs else cursor)


async def heartbeat(tx: Tx, leases: Sequence[Lease], *, lease_seconds: float) -> dict[UUID, bool]:
    """Renew leases: those that are still ours, and whether each is asked to stop. The rest are lost."""
    values = {**_columns(leases), "lease_seconds": lease_seconds}
    return dict(await tx.values(sql.heartbeat, values))


async def finish(tx: Tx, ends: Sequence[tuple[Lease, Change]], *, actor: str) -> dict[UUID, JobStatus]:
    """Write how attempts ended: their jobs' statuses. Those that are missing were no longer ours.

    Safe to repeat when the answer was lost: a lease that its owner has already ended is answered again, and
    changes nothing.
    """
    done = await _end(tx, ends, actor=actor)
    gone = [lease for lease, _ in ends if lease.job_id not in done]
    if gone:
        done |= _statuses(await tx.values(sql.finished_before, _columns(gone)))
    return done


class _End(msgspec.Struct, omit_defaults=True):
    """How an attempt ended, as `finish` reads it; what is left out is the plain success."""

    job_id: UUID
    attempt_no: int
    token: UUID
    status: JobStatus = JobStatus.SUCCEEDED
    attempt_status: str = "succeeded"
    delay: float = 0.0
    charge: int = 0
    loss: int = 0
    output: Any = None
    error: Any = None
    message: str | None = None
    cost: int = 0
    log: str | None = None


async def _end(tx: Tx, ends: Sequence[tuple[Lease, Change]], *, actor: str) -> dict[UUID, JobStatus]:
    document = json_text([_end_of(lease, change) for lease, change in ends])
    return _statuses(await tx.values(sql.finish, {"ends": document, "actor": actor}))


def _end_of(lease: Lease, change: Change) -> _End:
    return _End(
        lease.job_id,
        lease.attempt_no,
        lease.token,
        change.status,
        change.attempt_status,
        float(change.delay),
        change.charge,
        change.loss,
        change.output,
        change.error,
        change.message,
        change.cost_cents,
        change.log,
    )


async def progress(tx: Tx, steps: Sequence[tuple[Lease, float, str]]) -> None:
    """How far attempts have come; taken only from their owners."""
    document = [
        {
            "job_id": lease.job_id,
            "attempt_no": lease.attempt_no,
            "token": lease.token,
            "progress": {"percent": percent, "message": message},
        }
        for lease, percent, message in steps
    ]
    await tx.run(sql.progress, {"steps": json_text(document)})


async def stage(tx: Tx, *, limit: int = 1000) -> int:
    """Move jobs that have fallen due from later to ready. How many."""
    [(moved,)] = await tx.values(sql.stage, {"limit": limit})
    return int(moved)


async def next_due(tx: Tx) -> float | None:
    """Seconds until the next waiting job falls due; None if none waits."""
    rows = await tx.values(sql.next_due)
    return float(rows[0][0]) if rows else None


async def rescue(
    tx: Tx, *, grace_seconds: float = 0.0, limit: int = 500, actor: str = "watchdog"
) -> list[UUID]:
    """Put back the jobs whose leases expired; poison is contained. Which ones."""
    expired = await tx.values(sql.expired, {"grace_seconds": grace_seconds, "limit": limit})
    if not expired:
        return []
    ends = [
        (Lease(job_id, attempt_no, token), decide(Budget(1, 0, lost_count, Backoff()), Lost()))
        for job_id, attempt_no, token, _, lost_count in expired
    ]
    return list(await _end(tx, ends, actor=actor))


@lru_cache(maxsize=1000)
def _backoff(**policy: float) -> Backoff:
    return Backoff(**policy)


def _statuses(rows: Iterable[Sequence[Any]]) -> dict[UUID, JobStatus]:
    return {job_id: JobStatus(status) for job_id, status in rows}


def _columns(leases: Sequence[Lease]) -> dict[str, Any]:
    return {
        "jobs": [lease.job_id for lease in leases],
        "attempts": [lease.attempt_no for lease in leases],
        "tokens": [lease.token for lease in leases],
    }
