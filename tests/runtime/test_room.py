"""A worker that was told to wait for room, while room was being made."""

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import SUCCEEDED, Backoff, Change
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.worker import Worker
from fairlead.runtime.worker_attempt import WorkerAttempt
from fairlead.store.queue import AttemptTerms, Claimed, HeartbeatResult, TenantName
from tests.waiting import SECONDS


class Source:
    """One job; then a claim that is answered `crowded`, but only when that job is finished and forgotten."""

    crowded = False
    opens_in: float | None = None

    def __init__(self) -> None:
        self.claims = 0
        self.worker: Worker | None = None
        self.asked = asyncio.Event()
        self.asked_again = asyncio.Event()

    async def claim(self, wanted: int) -> list[HeldJob]:
        assert wanted > 0
        self.claims += 1
        if self.claims == 1:
            job = Claimed(uuid4(), 1, "", 0, {}, 3, 0, 0, None, None)
            job.whose, job.terms = TenantName(uuid4(), "acme"), AttemptTerms("greet", 60, Backoff())
            return [HeldJob(Lease(job.job_id, 1, uuid4()), job)]
        if self.claims == 2:
            self.asked.set()
            while self.worker is None or self.worker.running or not self.worker.done:
                await asyncio.sleep(0)
            self.crowded = True
            return []
        self.asked_again.set()
        return []

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        assert leases
        return {}

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        await self.asked.wait()
        return {lease.job_id: change.status for lease, change in ends}


async def test_room_that_was_made_while_a_claim_looked_for_it_is_not_missed() -> None:
    def start(attempt: WorkerAttempt) -> None:
        attempt.handle_end(SUCCEEDED)

    source, stop = Source(), asyncio.Event()
    worker = source.worker = Worker(source, start, concurrency=4, lease_seconds=30, poll_seconds=3600)
    finishing = asyncio.create_task(worker.finisher.run())
    claiming = asyncio.create_task(worker.claim_until(stop))
    try:
        await asyncio.wait_for(source.asked_again.wait(), SECONDS)
    finally:
        stop.set()
        await claiming
        finishing.cancel()
