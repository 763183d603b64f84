"""What delivery engines report of the attempts that they carry: outcomes and progress. An ended attempt is not changed."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import structlog

from fairlead.actions import workflow_progress
from fairlead.actions.leases import AttemptDetails, build_change, build_text_mask, check_output
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.handlers.context import LONGEST_PROGRESS_MESSAGE
from fairlead.handlers.log import clean_text
from fairlead.model.delivery import AttemptRef
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change, Failed, Outcome, Succeeded
from fairlead.store import bulk, handovers, queue
from fairlead.store.leases import LeaseOwner

log = structlog.get_logger(__name__)


class AttemptEnd(NamedTuple):
    """The outcome of an attempt."""

    attempt: AttemptRef
    outcome: Outcome
    log: str | None = None


class AttemptProgress(NamedTuple):
    """How far an attempt is."""

    attempt: AttemptRef
    percent: float
    message: str = ""


async def finish(tx: Tx, ends: Sequence[AttemptEnd], *, engine: str) -> dict[UUID, JobStatus]:
    """End attempts that the engine carries; of two ends of one attempt the first counts.

    Returns the jobs' statuses, without attempts that had ended or that the engine does not carry.
    """
    owners = await handovers.find_owners(tx, engine, [end.attempt for end in ends])
    changes: dict[Lease, Change] = {}
    for place, end in enumerate(ends):
        if place not in owners:
            log.info("result_refused", job_id=str(end.attempt.job_id), attempt_no=end.attempt.attempt_no)
        elif owners[place][0] not in changes:
            lease, owner = owners[place]
            changes[lease] = _build_change(tx, owner, end)
    if not changes:
        return {}
    # in one order: two bridges may learn of the same ends
    in_order = sorted(changes.items(), key=lambda one: one[0].job_id)
    done = await workflow_progress.finish_attempts(tx, in_order, actor=f"engine:{engine}")
    back = [change for lease, change in changes.items() if done.get(lease.job_id) is JobStatus.QUEUED]
    if any(change.delay > 0 for change in back):
        await bulk.notify(tx, "later")
    if any(change.delay <= 0 for change in back):
        await bulk.notify(tx, "ready")
    return done


def _build_change(tx: Tx, owner: LeaseOwner, end: AttemptEnd) -> Change:
    outcome = end.outcome
    if isinstance(outcome, Succeeded):
        try:
            outcome = Succeeded(check_output(outcome.output), outcome.cost_cents)
        except FairleadError as error:
            # the worker elsewhere is not there to be told; the same output would come again
            outcome = Failed("OutputInvalid", error.message, retryable=False)
    return build_change(tx, owner, outcome, AttemptDetails(stdout_tail=end.log))


async def store_progress(tx: Tx, steps: Sequence[AttemptProgress], *, engine: str) -> None:
    """Store the progress of attempts that the engine carries, 0 to 100."""
    owners = await handovers.find_owners(tx, engine, [step.attempt for step in steps])
    # the last one of an attempt counts
    written: dict[Lease, tuple[Lease, float, str]] = {}
    for place, (lease, owner) in owners.items():
        one = steps[place]
        message = clean_text(build_text_mask(tx, owner)(one.message), LONGEST_PROGRESS_MESSAGE)
        written[lease] = (lease, min(100.0, max(0.0, one.percent)), message)
    await queue.store_progress(tx, list(written.values()))
