"""A tick: claim what is due, run it here and now, and say what became of it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from fairlead.db.tx import Database
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change, decide
from fairlead.runtime.heart import Heart
from fairlead.runtime.store_source import StoreSource, worker_id
from fairlead.runtime.worker import Attempt, Start
from fairlead.store import queue


@dataclass(frozen=True, slots=True)
class Tick:
    """What a tick did: how many jobs it ran, and how they stand now."""

    ran: int
    statuses: dict[JobStatus, int]


async def tick(
    database: Database, start: Start, *, served: Sequence[UUID] | None, limit: int, lease_seconds: float
) -> Tick:
    """Run up to `limit` due jobs in this process, all at once, and wait for them."""
    await database.transact(queue.stage)
    source = StoreSource(database, worker=worker_id(), lease_seconds=lease_seconds, served=served)
    attempts: dict[Lease, Attempt] = {}

    def stop(lease: Lease) -> None:
        attempts[lease].ask_to_stop()

    heart = Heart(lease_seconds, canceled=stop, lost=stop)
    asked_at = asyncio.get_running_loop().time()
    for held in await source.claim(limit):
        attempts[held.lease] = Attempt(held)
        heart.hold(held.lease, asked_at)
    beating = asyncio.create_task(heart.run(source, asyncio.Event()))
    try:
        ends = await asyncio.gather(*(_end(start, attempt) for attempt in attempts.values()))
        done = await source.finish(ends) if ends else {}
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
    return Tick(len(attempts), dict(Counter(done.values())))


async def _end(start: Start, attempt: Attempt) -> tuple[Lease, Change]:
    held = attempt.held
    return held.lease, decide(held.job.budget, await start(held, attempt))
