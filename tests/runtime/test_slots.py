"""A worker's running jobs never take more slots than it has; slots are kept for a large job, and room is not missed."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import SUCCEEDED, Change
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.pace import CLAIM_BATCH
from fairlead.runtime.shared_capacity import SharedCapacity
from fairlead.runtime.slot_reserve import RESERVE_SECONDS, SlotReserve
from fairlead.runtime.worker import Worker
from fairlead.runtime.worker_attempt import WorkerAttempt
from tests.runtime.sources import EmptySource, held_job
from tests.waiting import SECONDS


class Source(EmptySource):
    """Hands out jobs in order, as far as they fit, as the database does; or all of them, as they are."""

    crowded = True

    def __init__(self, sizes: Sequence[int], *, careless: bool = False) -> None:
        self.left = [held_job(slots=slots) for slots in sizes]
        self.careless = careless

    async def claim(self, wanted: int) -> list[HeldJob]:
        taken = []
        while self.left and (self.careless or self.left[0].job.slots <= wanted):
            taken.append(self.left.pop(0))
            wanted -= taken[-1].job.slots
        return taken


class Machine:
    """Runs attempts until they are told to end, and adds up their slots."""

    def __init__(self, source: Source, concurrency: int) -> None:
        self.concurrency = concurrency
        self.running: list[WorkerAttempt] = []
        self.order: list[int] = []
        self.most = 0
        self.worker = Worker(
            source, self.start, concurrency=concurrency, lease_seconds=600, poll_seconds=0.05
        )

    def start(self, attempt: WorkerAttempt) -> None:
        self.running.append(attempt)
        self.order.append(attempt.held.job.slots)
        self.most = max(self.most, sum(one.slots for one in self.running))

    async def run(self, number: int) -> None:
        """Run this many jobs, and end one at a time."""
        stop = asyncio.Event()
        tasks = [asyncio.create_task(self.worker.finisher.run())]
        claiming = asyncio.create_task(self.worker.claim_until(stop))
        async with asyncio.timeout(SECONDS):
            while len(self.order) < number or self.running:
                if self.running:
                    self.running.pop(0).handle_end(SUCCEEDED)
                await asyncio.sleep(0.001)
            stop.set()
            await claiming
            await self.worker.drain(1, asyncio.Event())
        tasks[0].cancel()


async def test_running_jobs_take_no_more_slots_than_there_are() -> None:
    sizes = [3, 1, 4, 1, 2, 2, 4, 3, 1, 1, 1, 1, 4] * 3
    machine = Machine(Source(sizes), 4)
    await machine.run(len(sizes))
    assert machine.order == sizes
    assert machine.most == 4
    assert machine.worker.count_free_slots() == 4


async def test_jobs_that_come_without_enough_slots_wait_for_them() -> None:
    """As if a definition were changed between two claims: a job that needs more slots than there are runs alone."""
    sizes = [2, 3, 9, 1, 4]
    machine = Machine(Source(sizes, careless=True), 4)
    await machine.run(len(sizes))
    assert machine.order == sizes
    assert machine.most == 4


async def test_cells_share_the_slots_of_their_process() -> None:
    sizes = [3, 2, 1, 4, 2]
    machines = [Machine(Source(sizes), 4) for _ in range(2)]
    capacity, running = SharedCapacity(4), list[WorkerAttempt]()
    for machine in machines:
        machine.running = running
        machine.worker.share_slots(capacity)
    await asyncio.gather(*(machine.run(len(sizes)) for machine in machines))
    assert [machine.order for machine in machines] == [sizes, sizes]
    assert max(machine.most for machine in machines) <= 4
    assert capacity.running == 0


def test_slots_are_kept_for_a_bounded_time_and_then_given_away() -> None:
    now = 0.0
    reserve = SlotReserve(8, lambda: now)
    assert reserve.count_most_slots(3) == 8
    reserve.note(is_short=True)
    now = RESERVE_SECONDS - 1
    reserve.note(is_short=True)
    assert reserve.count_most_slots(3) == 8
    now = RESERVE_SECONDS
    reserve.note(is_short=True)
    assert (reserve.count_most_slots(3), reserve.count_most_slots(20)) == (3, 8)
    now = 2 * RESERVE_SECONDS - 1
    reserve.note(is_short=True)  # of the jobs that fit, one did not
    assert reserve.count_most_slots(3) == 3
    now = 2 * RESERVE_SECONDS
    assert reserve.count_most_slots(3) == 8


def test_a_reserve_that_was_used_begins_anew() -> None:
    now = 0.0
    reserve = SlotReserve(8, lambda: now)
    reserve.note(is_short=True)
    now = RESERVE_SECONDS - 1
    reserve.note(is_short=False)
    now = RESERVE_SECONDS + 1
    reserve.note(is_short=True)
    assert reserve.count_most_slots(3) == 8


def test_a_worker_that_does_not_count_slots_keeps_none() -> None:
    reserve = SlotReserve(None)
    reserve.note(is_short=True)
    assert reserve.count_most_slots(3) is None


class RoomSource(EmptySource):
    """One job; then a claim that is answered `crowded`, but only when that job is finished and forgotten."""

    def __init__(self) -> None:
        self.claims = 0
        self.worker: Worker | None = None
        self.asked = asyncio.Event()
        self.asked_again = asyncio.Event()

    async def claim(self, wanted: int) -> list[HeldJob]:
        assert wanted > 0
        self.claims += 1
        if self.claims == 1:
            return [held_job()]
        if self.claims == 2:
            self.asked.set()
            while self.worker is None or self.worker.running or not self.worker.done:
                await asyncio.sleep(0)
            self.crowded = True
            return []
        self.asked_again.set()
        return []

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        await self.asked.wait()
        return await super().finish(ends)


async def test_room_that_was_made_while_a_claim_looked_for_it_is_not_missed() -> None:
    def start(attempt: WorkerAttempt) -> None:
        attempt.handle_end(SUCCEEDED)

    source, stop = RoomSource(), asyncio.Event()
    worker = source.worker = Worker(source, start, concurrency=4, lease_seconds=30, poll_seconds=3600)
    finishing = asyncio.create_task(worker.finisher.run())
    claiming = asyncio.create_task(worker.claim_until(stop))
    try:
        await asyncio.wait_for(source.asked_again.wait(), SECONDS)
    finally:
        stop.set()
        await claiming
        finishing.cancel()


class FullSource(EmptySource):
    """Always has as many jobs as are wanted, and notes how many run at each claim."""

    def __init__(self) -> None:
        self.running: list[WorkerAttempt] = []
        self.running_at_claims: list[int] = []

    async def claim(self, wanted: int) -> list[HeldJob]:
        self.running_at_claims.append(len(self.running))
        return [held_job() for _ in range(wanted)]


async def test_the_next_claim_is_sent_when_the_last_one_is_answered_and_not_when_its_jobs_have_started() -> (
    None
):
    source, stop = FullSource(), asyncio.Event()
    slots = 3 * CLAIM_BATCH
    worker = Worker(source, source.running.append, concurrency=slots, lease_seconds=30, poll_seconds=3600)
    finishing = asyncio.create_task(worker.finisher.run())
    claiming = asyncio.create_task(worker.claim_until(stop))
    async with asyncio.timeout(SECONDS):
        while len(source.running) < slots:
            await asyncio.sleep(0)
    stop.set()
    for attempt in source.running:
        attempt.handle_end(SUCCEEDED)
    await claiming
    finishing.cancel()

    first, second, third = source.running_at_claims
    assert first == 0
    assert second < third < 2 * CLAIM_BATCH
