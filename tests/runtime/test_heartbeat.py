"""The heart, with a clock and a source that the test plays by hand."""

import asyncio
import runpy
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

import fairlead
from fairlead.errors import DatabaseUnreachable
from fairlead.lease_clock import lease_clock
from fairlead.model.job import Lease
from fairlead.runtime.heartbeat import Heartbeat
from fairlead.store.queue import HeartbeatResult
from tests.runtime.sources import EmptySource
from tests.waiting import SECONDS, eventually

LEASE_SECONDS = 0.3


class Source(EmptySource):
    """Answers heartbeats with what the test says; `None` never answers, an exception is raised."""

    def __init__(self, answer: dict[Lease, HeartbeatResult] | Exception | None) -> None:
        self.answer = answer

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        assert leases
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or {}


class Watched:
    """A heart with one lease, and what it said about it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.lost: list[Lease] = []
        self.canceled: list[Lease] = []
        self.heart = Heartbeat(
            LEASE_SECONDS, canceled=self.canceled.append, lost=self.lost.append, clock=lambda: self.now
        )
        self.lease = Lease(uuid4(), 1, uuid4())
        self.heart.hold([self.lease], self.now)


@pytest.mark.parametrize("answer", [None, DatabaseUnreachable("away")])
async def test_a_lease_that_cannot_be_renewed_is_given_up_before_it_ends(answer: Exception | None) -> None:
    watched = Watched()
    fencing = asyncio.create_task(watched.heart.fence())
    await watched.heart.beat(Source(answer))  # it fails, or hangs and is given up
    assert watched.lost == []

    watched.now += LEASE_SECONDS * 0.9  # nearly over, not yet anybody else's
    await eventually(lambda: watched.lost, "the lease to be given up")

    fencing.cancel()
    assert watched.lost == [watched.lease]


async def test_a_lease_that_is_renewed_is_kept_past_its_first_end() -> None:
    watched = Watched()
    source = Source({watched.lease: HeartbeatResult()})
    for _ in range(5):
        watched.now += LEASE_SECONDS / 2
        await watched.heart.beat(source)
        watched.heart._drop_expiring()
    assert watched.lost == []


async def test_until_every_lost_lease_is_told_the_fence_counts_as_late() -> None:
    """Another thread asks whether it may start jobs while the heartbeat's thread gives leases up."""
    watched, answers = Watched(), list[bool]()
    watched.now += LEASE_SECONDS
    watched.heart._lost = lambda _: answers.append(watched.heart.fence_if_late())
    watched.heart._drop_expiring()
    answers.append(watched.heart.fence_if_late())
    assert answers == [True, False]


async def test_a_renewed_lease_counts_from_the_request_and_not_from_a_slow_reply() -> None:
    watched = Watched()

    class SlowSource(Source):
        async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
            watched.now += LEASE_SECONDS * 0.9  # the database renewed it before this
            return await super().heartbeat(leases)

    await watched.heart.beat(SlowSource({watched.lease: HeartbeatResult()}))
    watched.heart._drop_expiring()

    assert watched.lost == [watched.lease]


async def test_a_lease_that_somebody_was_writing_keeps_only_the_time_it_had() -> None:
    watched = Watched()
    watched.now += LEASE_SECONDS * 0.9
    await watched.heart.beat(Source({watched.lease: HeartbeatResult(renewed=False)}))
    watched.heart._drop_expiring()
    assert watched.lost == [watched.lease]


async def test_a_lease_that_is_not_ours_any_more_is_lost_at_once_and_told_once() -> None:
    watched = Watched()
    for _ in range(2):
        await watched.heart.beat(Source({}))
    assert watched.lost == [watched.lease]


async def test_a_lease_that_was_not_renewed_is_tried_again_long_before_the_next_beat() -> None:
    heart = Heartbeat(3600, canceled=lambda _: None, lost=lambda _: None)
    lease = Lease(uuid4(), 1, uuid4())
    heart.hold([lease], lease_clock())
    beats: asyncio.Queue[None] = asyncio.Queue()

    class Locked(Source):
        async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
            assert leases == [lease]
            beats.put_nowait(None)
            return {lease: HeartbeatResult(renewed=False)}

    wake = asyncio.Event()
    wake.set()  # for the first beat
    running = asyncio.create_task(heart.run(Locked({}), wake))
    async with asyncio.timeout(SECONDS):
        for _ in range(3):
            await beats.get()
    running.cancel()


async def test_of_two_attempts_of_one_job_only_the_one_that_is_alive_is_kept() -> None:
    watched = Watched()
    later = Lease(watched.lease.job_id, 2, uuid4())
    watched.heart.hold([later], watched.now)

    await watched.heart.beat(Source({later: HeartbeatResult()}))

    assert watched.lost == [watched.lease]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="needs CLOCK_BOOTTIME: Linux only")
def test_the_clock_of_leases_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had slept for an hour: that is in CLOCK_BOOTTIME and in no other clock."""
    slept = {time.CLOCK_BOOTTIME: 3600.0}
    read = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: read(clock) + slept.get(clock, 0.0))

    clock = runpy.run_path(str(Path(fairlead.__file__).with_name("lease_clock.py")))["lease_clock"]

    assert clock() > time.monotonic() + 3000


async def test_a_cancel_request_is_told_once() -> None:
    watched = Watched()
    for _ in range(3):
        await watched.heart.beat(Source({watched.lease: HeartbeatResult(cancel=True)}))
    assert watched.canceled == [watched.lease]
