"""A tick: claim due jobs, run them in this process, and return their statuses."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import msgspec
import structlog

from fairlead.db.tx import Database
from fairlead.lease_clock import lease_clock
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change, Outcome
from fairlead.runtime.heartbeat import Heartbeat
from fairlead.runtime.maintenance import stage
from fairlead.runtime.service import cancel_and_wait
from fairlead.runtime.store_source import StoreSource, new_worker_id
from fairlead.runtime.trigger_loops import trigger_due
from fairlead.runtime.watchdog import Watchdog
from fairlead.runtime.worker import Start, WorkerAttempt


class Tick(msgspec.Struct, frozen=True):
    """The result of a tick: how many jobs it ran, and how many have each status now."""

    ran: int
    statuses: dict[JobStatus, int]


async def tick(
    database: Database, start: Start, *, served: Sequence[UUID] | None, limit: int, lease_seconds: float
) -> Tick:
    """Run up to `limit` due jobs in this process concurrently, and wait for them.

    Also rescues leases, dispatches events and fires schedules, since there may be no other process that does.
    """
    await Watchdog(database, lease_seconds=lease_seconds, sweep_seconds=0)()
    await trigger_due(database)
    await stage(database)
    worker = new_worker_id()
    source = StoreSource(database, worker=worker, lease_seconds=lease_seconds, served=served)
    attempts: dict[Lease, WorkerAttempt] = {}

    def stop(lease: Lease) -> None:
        attempts[lease].ask_to_stop()

    heart = Heartbeat(lease_seconds, canceled=stop, lost=stop)
    asked_at = lease_clock()
    ended: asyncio.Queue[tuple[Lease, Change]] = asyncio.Queue()

    def collect(attempt: WorkerAttempt, outcome: Outcome) -> None:
        ended.put_nowait((attempt.held.lease, attempt.change(outcome)))

    for held in await source.claim_some(limit):
        attempts[held.lease] = WorkerAttempt(held, collect, worker)
    heart.hold(attempts, asked_at)
    beating = asyncio.create_task(heart.run(source, asyncio.Event()))
    try:
        with structlog.contextvars.bound_contextvars(worker_id=worker):
            for attempt in attempts.values():
                start(attempt)
        ends = [await ended.get() for _ in attempts]
        done = await source.finish(ends) if ends else {}
    finally:
        await cancel_and_wait(beating)
    return Tick(len(attempts), dict(Counter(done.values())))
