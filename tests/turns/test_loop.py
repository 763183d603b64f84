"""Turns at the event loop: exact rules, on a clock that only the steps move."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest

from fairlead.turns import loop
from fairlead.turns.active import ACTIVE_SECONDS
from fairlead.turns.loop import BURST_SECONDS, PASS_SECONDS, LoopTurns
from fairlead.turns.owner import Owner, owner_of_task
from tests.waiting import eventually

A, B, C = Owner("tenant a"), Owner("tenant b"), Owner("tenant c")
DOUBLE = Owner("tenant d", 2)
STEP = 2 * PASS_SECONDS


class Loop:
    """Tasks whose steps take a certain time on a clock, and the order in which they ran."""

    def __init__(self) -> None:
        self.now = 0.0
        # the same, unless steps take longer than the time of the processor
        self.paid = 0.0
        self.turns = LoopTurns(lambda: self.now, lambda: self.now - self.paid)
        self.ran = list[str]()
        self.tasks = list[asyncio.Task[None]]()

    def start(self, owner: Owner | None, steps: int, seconds: float = STEP, tasks: int = 1) -> None:
        self.tasks += [
            asyncio.create_task(self._run(owner, steps, seconds), context=Context()) for _ in range(tasks)
        ]

    async def _run(self, owner: Owner | None, steps: int, seconds: float) -> None:
        owner_of_task.set(owner)
        await self.turns.run(self._work(owner, steps, seconds))

    async def _work(self, owner: Owner | None, steps: int, seconds: float) -> None:
        for _ in range(steps):
            self.now += seconds
            self.ran.append("-" if owner is None else owner.name[-1])
            await asyncio.sleep(0)

    async def use_up_credit(self, *owners: Owner) -> None:
        """Let owners use up what they have saved, a while ago."""
        for owner in owners:
            self.start(owner, 3, BURST_SECONDS)
        await self.end()
        self.now += ACTIVE_SECONDS
        await eventually(lambda: not self.turns._is_watching, "the pause after it to end")
        for credit in self.turns._credits.values():
            credit.at = self.now
        self.ran.clear()

    async def end(self) -> None:
        await asyncio.gather(*self.tasks)
        self.tasks.clear()


async def test_who_uses_little_runs_at_once_beside_a_flood() -> None:
    here = Loop()
    await here.use_up_credit(A)
    here.start(A, 10, tasks=50)
    here.start(B, 10, seconds=0.0001)
    await here.end()

    last = max(at for at, name in enumerate(here.ran) if name == "b")
    # beside each step of the one, there is one long step of the flood at most
    assert here.ran[: last + 1].count("a") <= 10
    assert len(here.ran) == 510
    assert here.turns.waits > 400


async def test_without_turns_the_same_flood_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopTurns, "_must_wait", lambda _: False)
    here = Loop()
    await here.use_up_credit(A)
    here.start(A, 10, tasks=50)
    here.start(B, 10, seconds=0.0001)
    await here.end()

    last = max(at for at, name in enumerate(here.ran) if name == "b")
    assert here.ran[: last + 1].count("a") > 400


async def test_a_flood_leaves_half_of_the_loop_free_while_others_are_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Loop()
    await here.use_up_credit(A)
    running, pauses = asyncio.get_running_loop(), list[float]()

    def call_later(delay: float, call: Callable[[], None]) -> None:
        pauses.append(delay)
        here.now += delay
        running.call_soon(call)

    monkeypatch.setattr(running, "call_later", call_later)
    here.start(A, 10, tasks=2)
    await here.end()
    assert pauses == [], "nobody else is there"
    here.start(A, 10, tasks=2)
    here.start(B, 1, seconds=0.0001)
    await here.end()

    assert pauses[1:-1] == [pytest.approx(STEP)] * (len(pauses) - 2)
    assert sum(pauses) == pytest.approx(20 * STEP, rel=0.2)


async def test_a_lone_flood_is_not_paused_for_the_addresses_that_it_comes_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request begins as that of an address, which has credit, and becomes one of its tenant in the same step."""
    here = Loop()
    await here.use_up_credit(A)
    pauses = list[float]()
    running = asyncio.get_running_loop()

    def call_later(delay: float, call: Callable[[], None]) -> None:
        pauses.append(delay)
        running.call_soon(call)

    async def request() -> None:
        owner_of_task.set(Owner("address 127.0.0.1", is_address=True))
        await here.turns.run(sign_in())

    async def sign_in() -> None:
        owner_of_task.set(A)
        await here._work(A, 5, STEP)

    monkeypatch.setattr(running, "call_later", call_later)
    here.tasks += [asyncio.create_task(request(), context=Context()) for _ in range(10)]
    await here.end()

    assert here.turns.waits > 10
    assert pauses == []


async def test_floods_share_the_loop_by_weight() -> None:
    here = Loop()
    await here.use_up_credit(A, B, DOUBLE)
    for owner in (A, B, DOUBLE):
        here.start(owner, 100, tasks=20)
    while len(here.ran) < 1000:
        await asyncio.sleep(0)

    share = Counter(here.ran[:1000])
    assert share["a"] == pytest.approx(250, abs=15)
    assert share["b"] == pytest.approx(250, abs=15)
    assert share["d"] == pytest.approx(500, abs=30)
    await here.end()


async def test_the_work_of_the_process_never_waits() -> None:
    here = Loop()
    await here.use_up_credit(A)
    here.start(A, 10, tasks=20)
    here.start(None, 10)
    await here.end()

    last = max(at for at, name in enumerate(here.ran) if name == "-")
    assert here.ran[: last + 1].count("a") <= 11


async def test_short_steps_of_a_flood_share_a_pass_of_the_loop() -> None:
    here = Loop()
    await here.use_up_credit(A)
    here.start(A, 40, seconds=PASS_SECONDS / 20, tasks=20)
    passes = 0
    while not all(task.done() for task in here.tasks):
        passes += 1
        await asyncio.sleep(0)

    assert len(here.ran) == 800
    assert passes < 200
    assert here.turns.waiting == 0


async def test_who_waits_and_is_canceled_hears_of_it_and_leaves_nothing() -> None:
    here = Loop()
    await here.use_up_credit(A)
    begun, cleaned = list[bool](), list[bool]()

    async def work() -> None:
        begun.append(True)
        try:
            for _ in range(100):
                here.now += STEP
                await asyncio.sleep(0)
        finally:
            cleaned.append(True)

    async def run() -> None:
        owner_of_task.set(A)
        await here.turns.run(work())

    tasks = [asyncio.create_task(run(), context=Context()) for _ in range(10)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert here.turns.waiting
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)

    assert {type(end) for end in ends} == {asyncio.CancelledError}
    assert cleaned == begun != []
    for _ in range(10):
        await asyncio.sleep(0)
    assert (here.turns.waiting, here.turns._waiting, here.turns._is_watching) == (0, {}, False)


async def test_work_that_is_closed_ends_without_a_turn() -> None:
    """As at the end of the process: there is no later pass of the loop."""
    here = Loop()
    await here.use_up_credit(A)
    here.start(A, 3, tasks=2)
    cleaned = list[bool]()

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cleaned.append(True)

    def close() -> None:
        owner_of_task.set(A)
        turns: Any = here.turns.run(work())
        turns.send(None)
        here.turns._held = PASS_SECONDS
        turns.close()

    Context().run(close)
    assert cleaned == [True]
    await here.end()


async def test_results_exceptions_and_timeouts_pass_through() -> None:
    here = Loop()

    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("no")

    async def hang() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    owner_of_task.set(A)
    assert await here.turns.run(answer()) == 42
    with pytest.raises(LookupError):
        await here.turns.run(fail())
    with pytest.raises(TimeoutError):
        await here.turns.run(hang())
    owner_of_task.set(None)


async def test_a_step_is_charged_to_the_owner_that_is_found_in_it() -> None:
    here = Loop()

    async def sign_in() -> None:
        here.now += 0.001
        await asyncio.sleep(0)
        owner_of_task.set(B)
        here.now += BURST_SECONDS
        await asyncio.sleep(0)

    async def run() -> None:
        owner_of_task.set(A)
        await here.turns.run(sign_in())

    await asyncio.create_task(run(), context=Context())

    assert here.turns._credits[A.name].seconds == pytest.approx(BURST_SECONDS - 0.001, abs=0.0005)
    assert here.turns._credits[B.name].seconds <= 0
    assert here.turns.longest_step == BURST_SECONDS


async def test_an_owner_has_credit_again_after_a_rest() -> None:
    here = Loop()
    await here.use_up_credit(A)
    assert not here.turns._has_credit(A)
    here.now += 2 * BURST_SECONDS / loop.SHARE
    assert here.turns._has_credit(A)


async def test_few_tenants_have_a_larger_part_of_the_loop() -> None:
    here = Loop()
    shares = list[float]()
    for number in (1, 3, 5, 20):
        for n in range(number):
            here.start(Owner(f"tenant {n}"), 1, 0.0001)
            here.start(Owner(f"address {n}", is_address=True), 1, 0.0001)
        await here.end()
        here.now += 1.5 * ACTIVE_SECONDS
        here.start(A, 1, 0.0001)
        await here.end()
        shares.append(here.turns._share)
        here.now += 2 * ACTIVE_SECONDS

    assert shares == pytest.approx([loop.MOST_SHARE, loop.SHARED / 3, loop.SHARED / 5, loop.SHARE])


async def test_a_step_costs_no_more_on_a_busy_machine() -> None:
    here = Loop()

    async def wait_for_the_processor() -> None:
        for _ in range(3):  # only the first step is measured
            here.now += 10.0
            here.paid += 9.999
            await asyncio.sleep(0)

    async def run() -> None:
        owner_of_task.set(A)
        await here.turns.run(wait_for_the_processor())

    await asyncio.create_task(run(), context=Context())

    assert here.turns._credits[A.name].seconds == pytest.approx(BURST_SECONDS - 0.003)
    assert here.turns.longest_step == 10.0


async def test_owners_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_OWNERS", 3)
    here = Loop()
    await here.use_up_credit(*(Owner(f"tenant {number}") for number in range(5)))
    assert list(here.turns._credits) == ["tenant 2", "tenant 3", "tenant 4"]
