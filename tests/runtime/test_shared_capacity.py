"""The slots of a process that serves several cells."""

import asyncio

import pytest

from fairlead.runtime import shared_capacity
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.shared_capacity import SharedCapacity
from fairlead.runtime.worker import Worker
from tests.runtime.sources import EmptySource
from tests.waiting import eventually


class IdleWorker:
    """A cell's worker that holds no job, and notes that it was woken."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def count_held(self) -> int:
        return 0

    def count_ahead(self) -> int:
        return 0

    def wake(self) -> None:
        self.woken.set()

    def start_waiting_soon(self) -> None: ...

    def is_idle(self) -> bool:
        return True

    def has_settled(self) -> bool:
        return True

    def quiet_left(self) -> float:
        return 0.0


async def test_a_cell_that_does_not_answer_keeps_the_slots_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the other cell was refused first for another reason, so that the timer of that refusal runs out early."""
    now = 100.0
    monkeypatch.setattr(shared_capacity, "STALL_SECONDS", 0.05)
    monkeypatch.setattr(shared_capacity, "lease_clock", lambda: now)
    capacity = SharedCapacity(10)
    home, away = IdleWorker(), IdleWorker()
    share, silent = capacity.join(home), capacity.join(away)
    capacity.note_refusal()
    early = capacity._timer
    silent.begin_claim(10)
    assert share.offer(10, enough=10) == 0
    await eventually(lambda: capacity._timer is not early, "the timer of the first refusal to run out")
    assert not home.woken.is_set()

    now += 1.0
    await eventually(home.woken.is_set, "the waiting cell to be woken")
    assert share.offer(10, enough=10) == 10


class WaitingSource(EmptySource):
    """Answers a claim when it is told to."""

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def claim(self, wanted: int) -> list[HeldJob]:
        self.asked.set()
        await self.answer.wait()
        return await super().claim(wanted)


async def test_a_claim_that_began_before_the_slots_were_shared_gives_none_back() -> None:
    source = WaitingSource()
    worker = Worker(source, lambda _: None, concurrency=10, lease_seconds=30, poll_seconds=1)
    claiming = asyncio.create_task(worker._claim(10))
    await source.asked.wait()
    share = worker.share_slots(SharedCapacity(10))
    source.answer.set()
    await claiming
    assert (share.claiming, share.passed) == (0, 0.0)
