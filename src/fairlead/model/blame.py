"""Which job caused the loss of a worker. A job is charged only if no other job can be the cause."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from fairlead.model.outcome import Blame


class WorkerLease(msgspec.Struct, frozen=True):
    """A lease of a worker, lost or not, whose attempt had started."""

    job_id: UUID
    attempt_no: int
    worker_id: str
    started_at: datetime
    expires_at: datetime
    # for a suspect: its worker starts no other job until then
    probation_until: datetime | None


class EarlierLoss(msgspec.Struct, frozen=True):
    """The record of a worker's earlier losses: when its last lease expired, and whether a job was accused."""

    worker_id: str
    expired_at: datetime
    blamed: bool


def assign_blame(
    lost: WorkerLease, held: Sequence[WorkerLease], before: EarlierLoss | None, *, lease_seconds: float
) -> Blame:
    """What the loss of its worker means for a job. `held` has all leases of that worker, also the job's."""
    if before is not None and not is_one_loss(lost, before, lease_seconds=lease_seconds):
        before = None
    if before is None and len(held) == 1:
        return Blame.CHARGED
    accused = find_accused(held, lease_seconds=lease_seconds)
    if accused is not None:
        return Blame.ACCUSED if accused == lost.job_id else Blame.CLEARED
    return Blame.CLEARED if before is not None and before.blamed else Blame.SUSPECTED


def find_accused(held: Sequence[WorkerLease], *, lease_seconds: float) -> UUID | None:
    """The suspect that was on probation when the worker was last seen alive, if all its other jobs started earlier."""
    newest = max(held, key=lambda one: one.started_at)
    if newest.probation_until is None:
        return None
    if any(one.started_at == newest.started_at for one in held if one is not newest):
        return None
    alive_at = max(one.expires_at for one in held) - timedelta(seconds=lease_seconds)
    return newest.job_id if newest.probation_until > alive_at else None


def is_one_loss(lost: WorkerLease, before: EarlierLoss, *, lease_seconds: float) -> bool:
    """Whether a lease belongs to its worker's earlier loss: they ran at the same time, and expired close together.

    The limit is twice the lease time, since other processes may be configured with a longer one.
    """
    apart = (lost.expires_at - before.expired_at).total_seconds()
    return lost.started_at < before.expired_at and apart < 2 * lease_seconds
