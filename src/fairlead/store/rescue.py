"""Rescue: requeue the jobs of expired leases."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.blame import EarlierLoss, WorkerLease, assign_blame
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Backoff, Blame, Change, Lost, Outcome, Released, RetryBudget, decide
from fairlead.store import queue

sql = queries_beside(__file__)


class Pulse(NamedTuple):
    """Leases that expired before `until` may be rescued (None: none yet), and whether a sweep has any work."""

    until: datetime | None
    has_work: bool


async def record_pulse(tx: Tx, *, lease_seconds: float, gap_seconds: float) -> Pulse:
    """Note that the database is up and a watchdog looks.

    If the last pulse is older than `gap_seconds`, the database was away: owners then get one lease's time to report.
    """
    values = {"lease_seconds": lease_seconds, "gap_seconds": gap_seconds}
    [(until, has_work)] = await tx.values(sql.pulse, values)
    return Pulse(until if isinstance(until, datetime) else None, has_work)


class _ExpiredLease(msgspec.Struct, frozen=True):
    """A lease whose owner did not renew it."""

    job_id: UUID
    attempt_no: int
    token: UUID
    worker_id: str
    started_at: datetime
    expires_at: datetime
    probation_until: datetime | None
    on_host: bool
    lost_count: int
    suspected: int
    unaccepted: bool
    handed_over: bool

    @property
    def lease(self) -> Lease:
        return Lease(self.job_id, self.attempt_no, self.token)

    def borne(self) -> WorkerLease:
        return WorkerLease(
            self.job_id,
            self.attempt_no,
            self.worker_id,
            self.started_at,
            self.expires_at,
            self.probation_until,
        )


async def rescue(
    tx: Tx,
    *,
    lease_seconds: float = 30.0,
    grace_seconds: float = 0.0,
    until: datetime | None = None,
    limit: int = 500,
    only: UUID | None = None,
    but: Collection[UUID] = (),
    actor: str = "watchdog",
) -> dict[UUID, JobStatus]:
    """Requeue the jobs whose leases expired (before `until`), oldest first. Their ids and statuses.

    A job that no agent has accepted never began, and one that an engine carries runs elsewhere. Any other job is charged only if its worker held no other lease. Leases
    of runs that other transactions have locked are left for the next sweep.
    """
    values: dict[str, Any] = {
        "grace_seconds": grace_seconds,
        "until": until or "infinity",
        "limit": limit,
        "only": only,
        "but": list(but),
    }
    values["runs"] = [run_id for (run_id,) in await tx.values(sql.runs_of_expired, values)]
    expired = await tx.all(_ExpiredLease, sql.expired, values)
    if not expired:
        return {}
    blames = await _assign_blame(
        tx, [one.borne() for one in expired if not (one.unaccepted or one.handed_over)], lease_seconds
    )
    return await queue.end_attempts(
        tx, [(one.lease, _change_of(one, blames)) for one in expired], actor=actor
    )


async def _assign_blame(tx: Tx, lost: Sequence[WorkerLease], lease_seconds: float) -> dict[UUID, Blame]:
    """The blame of each lost job. It is stored, for leases of the same workers that expire a little later."""
    if not lost:
        return {}
    workers = {"workers": sorted({one.worker_id for one in lost})}
    held = _group_by_worker(await tx.all(WorkerLease, sql.borne, workers))
    before = {one.worker_id: one for one in await tx.all(EarlierLoss, sql.lost_before, workers)}
    blames = {
        one.job_id: assign_blame(
            one, held[one.worker_id], before.get(one.worker_id), lease_seconds=lease_seconds
        )
        for one in lost
    }
    memory = [_loss_record(of_worker, blames) for of_worker in _group_by_worker(lost).values()]
    await tx.run(sql.remember_lost, {"lost": json_text(memory)})
    return blames


def _loss_record(lost: Sequence[WorkerLease], blames: Mapping[UUID, Blame]) -> dict[str, Any]:
    """The stored record of a worker: when it lost these leases, and which job was blamed."""
    charged = [one for one in lost if blames[one.job_id] is Blame.CHARGED]
    return {
        "worker_id": lost[0].worker_id,
        "expired_at": max(one.expires_at for one in lost),
        "blamed": any(blames[one.job_id] in (Blame.ACCUSED, Blame.CLEARED) for one in lost),
        "charged_job": charged[0].job_id if charged else None,
        "charged_attempt": charged[0].attempt_no if charged else None,
    }


def _group_by_worker(leases: Sequence[WorkerLease]) -> dict[str, list[WorkerLease]]:
    found: dict[str, list[WorkerLease]] = {}
    for one in leases:
        found.setdefault(one.worker_id, []).append(one)
    return found


async def undo_charges(tx: Tx) -> list[UUID]:
    """Undo the charge of jobs whose workers were seen again. Their ids."""
    return [job_id for (job_id,) in await tx.values(sql.uncharge)]


async def remove_loss_records(tx: Tx, *, seconds: float) -> int:
    """Remove the records of workers that lost their last lease more than `seconds` ago. Their number."""
    return await tx.run(sql.forget_lost, {"seconds": seconds})


async def list_overdue(
    tx: Tx, *, limit: int, until: datetime | None = None, but: Collection[UUID] = ()
) -> list[UUID]:
    """Jobs whose leases expired, oldest first."""
    values = {"limit": limit, "until": until or "infinity", "but": list(but)}
    return [job_id for (job_id,) in await tx.values(sql.overdue, values)]


def _change_of(lost: _ExpiredLease, blames: Mapping[UUID, Blame]) -> Change:
    outcome: Outcome = Released()
    if lost.handed_over:
        outcome = Lost(Blame.ELSEWHERE, lost.suspected, lost.on_host)
    elif not lost.unaccepted:
        outcome = Lost(blames[lost.job_id], lost.suspected, lost.on_host)
    return decide(RetryBudget(1, 0, lost.lost_count, Backoff()), outcome)
