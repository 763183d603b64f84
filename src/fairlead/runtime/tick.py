"""A tick: claim due jobs, run them in this process, and return their statuses."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import msgspec
import structlog

from fairlead.actions import approvals
from fairlead.db.database import Database
from fairlead.lease_clock import lease_clock
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Outcome
from fairlead.runtime.heartbeat import Heartbeat
from fairlead.runtime.joined_attempts import log_late_outcome
from fairlead.runtime.joined_ends import JoinedEnds
from fairlead.runtime.maintenance import release_left_steps, settle_steps, stage
from fairlead.runtime.service import cancel_and_wait
from fairlead.runtime.store_source import StoreSource
from fairlead.runtime.trigger_loops import trigger_due
from fairlead.runtime.watchdog import Watchdog
from fairlead.runtime.worker_attempt import Start, WorkerAttempt
from fairlead.store.queue import JoinedEnd

# Approvals that one tick escalates.
ESCALATIONS = 100


class Tick(msgspec.Struct, frozen=True):
    """The result of a tick: how many jobs it ran, and how many have each status now."""

    ran: int
    statuses: dict[JobStatus, int]


async def tick(
    database: Database,
    start: Start,
    ends: JoinedEnds,
    *,
    worker: str,
    served: Sequence[UUID] | None,
    limit: int,
    lease_seconds: float,
) -> Tick:
    """Run up to `limit` due jobs in this process concurrently, and wait for them.

    Also rescues leases, escalates approvals, dispatches events and fires schedules, since there may be no other process that does.
    """
    await Watchdog(database, lease_seconds=lease_seconds, sweep_seconds=0)()
    await database.transact(lambda tx: approvals.escalate_overdue(tx, limit=ESCALATIONS))
    await trigger_due(database)
    await settle_steps(database)
    await release_left_steps(database)
    await stage(database)
    source = StoreSource(database, worker=worker, lease_seconds=lease_seconds, served=served)
    attempts: dict[Lease, WorkerAttempt] = {}

    def stop(lease: Lease) -> None:
        attempts[lease].ask_to_stop()

    heart = Heartbeat(
        lease_seconds,
        canceled=stop,
        lost=stop,
        may_have_ended=lambda lease: attempts[lease].joined is not None,
    )
    asked_at = lease_clock()
    ended: asyncio.Queue[tuple[WorkerAttempt, Outcome]] = asyncio.Queue()

    def collect(attempt: WorkerAttempt, outcome: Outcome) -> None:
        ended.put_nowait((attempt, outcome))

    for held in await source.claim_some(limit):
        attempts[held.lease] = WorkerAttempt(held, collect, worker)
    heart.hold(attempts, asked_at)
    beating = asyncio.create_task(heart.run(source, asyncio.Event()))
    try:
        with structlog.contextvars.bound_contextvars(worker_id=worker):
            for attempt in attempts.values():
                start(attempt)
        outcomes = [await ended.get() for _ in attempts]
        joined = set[UUID]()
        for attempt, outcome in outcomes:
            if await _has_ended(attempt, ends):
                joined.add(attempt.held.lease.job_id)
                log_late_outcome(attempt, outcome)
        left = [
            (one.held.lease, one.change(outcome))
            for one, outcome in outcomes
            if one.held.lease.job_id not in joined
        ]
        done = await source.finish(left) if left else {}
        if joined:
            await settle_steps(database)
            await release_left_steps(database)
    finally:
        await cancel_and_wait(beating)
    statuses = Counter(done.values()) + Counter({JobStatus.SUCCEEDED: len(joined)})
    return Tick(len(attempts), dict(statuses))


async def _has_ended(attempt: WorkerAttempt, ends: JoinedEnds) -> bool:
    """Whether a transaction of its handler has ended the attempt."""
    if attempt.joined is None or attempt.has_ended:
        return attempt.has_ended
    return await ends.wait_for_end(attempt.held.lease, lambda: attempt.canceled) is JoinedEnd.ENDED
