"""Whom to blame for a lost worker. A job is charged only where nothing else can have been the cause."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from fairlead.model.outcome import Blame


class Borne(msgspec.Struct, frozen=True):
    """A lease of a worker, lost or not, under which an attempt had begun."""

    job_id: UUID
    attempt_no: int
    worker_id: str
    started_at: datetime
    expires_at: datetime
    # of a suspect: until then its worker begins nothing else
    probation_until: datetime | None


class Before(msgspec.Struct, frozen=True):
    """What is remembered of a worker that lost leases before: the end of the last one, and whether a job was accused."""

    worker_id: str
    expired_at: datetime
    blamed: bool


def blame(lost: Borne, held: Sequence[Borne], before: Before | None, *, lease_seconds: float) -> Blame:
    """What the loss of its worker means for a job. `held` are all leases of that worker, its own among them."""
    if before is not None and not is_one_loss(lost, before, lease_seconds=lease_seconds):
        before = None
    if before is None and len(held) == 1:
        return Blame.CHARGED
    accused = find_accused(held, lease_seconds=lease_seconds)
    if accused is not None:
        return Blame.ACCUSED if accused == lost.job_id else Blame.CLEARED
    return Blame.CLEARED if before is not None and before.blamed else Blame.SUSPECTED


def find_accused(held: Sequence[Borne], *, lease_seconds: float) -> UUID | None:
    """The suspect that was on probation when the worker was last known to live, beside others that began before it."""
    newest = max(held, key=lambda one: one.started_at)
    if newest.probation_until is None:
        return None
    if any(one.started_at == newest.started_at for one in held if one is not newest):
        return None
    alive_at = max(one.expires_at for one in held) - timedelta(seconds=lease_seconds)
    return newest.job_id if newest.probation_until > alive_at else None


def is_one_loss(lost: Borne, before: Before, *, lease_seconds: float) -> bool:
    """Whether a lease was lost with those that its worker lost before: they ran at the same time, and ended within a lease.

    Twice the time, since other processes may be set to a longer lease.
    """
    apart = (lost.expires_at - before.expired_at).total_seconds()
    return lost.started_at < before.expired_at and apart < 2 * lease_seconds
