"""Turns on the event loop: owners that need much of it take turns, a slice at a time, behind all others."""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any, TypeVar

from fairlead.turns.active import ACTIVE_SECONDS, ActiveTenants
from fairlead.turns.owner import Owner, owner_of_task

T = TypeVar("T")

# The part of the loop that an owner of weight 1 always has, and how many seconds of it an owner can save up.
SHARE = 0.1
BURST_SECONDS = 0.2
# Few owners have more: together this part of the loop, and each at most that.
SHARED = 0.6
MOST_SHARE = 0.25
# How long owners without credit may hold the loop in one pass; a step that takes longer is the last of its pass.
PASS_SECONDS = 0.005
MOST_STEPS = 32
# The processor time of every eighth step is measured, since that takes a system call. The other steps count by the average
# of the measured ones, to which each new measurement adds this part.
MEASURED_STEPS = 8
NEWEST_PART = 0.1
# A step that takes longer is reported.
LONG_STEP_SECONDS = 0.1
# How many owners are remembered. A forgotten one starts with its burst.
MOST_OWNERS = 10_000


class _Credit:
    """The seconds of the loop that an owner may use before its steps wait. It is refilled when it is used up."""

    __slots__ = ("at", "seconds")

    def __init__(self, now: float) -> None:
        self.seconds = BURST_SECONDS
        self.at = now

    def refill(self, owner: Owner, now: float, share: float) -> None:
        self.seconds = min(BURST_SECONDS, self.seconds + (now - self.at) * share * owner.weight)
        self.at = now


class _Queue:
    """The waiting steps of an owner."""

    __slots__ = ("steps", "used", "weight")

    def __init__(self, weight: float, used: float) -> None:
        self.steps: deque[asyncio.Future[None]] = deque()
        self.weight = weight
        # seconds of the loop by weight: the owner that has used the least is next
        self.used = used


class LoopTurns:
    """Runs tasks step by step, from one await to the next. Steps of owners that have used up their credit take turns.

    All other steps run at once. So a step waits for one slice of the steps without credit in each pass of the event
    loop, however many there are; and while others are active, these have half of the loop's time.

    A step costs its owner processor time. On a busy machine steps take longer, but cost the same.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock = clock
        self._processor_clock = processor_clock
        self._active = ActiveTenants()
        # of steps that were measured: their time and their processor time, on average, and how one follows from the other
        self._seconds = self._processor_seconds = 0.0
        self._processor_part = 1.0
        self._steps = 0
        self._credits: OrderedDict[str, _Credit] = OrderedDict()
        self._waiting: dict[str, _Queue] = {}
        # of the present pass of the loop: the time that owners without credit have held it
        self._held = 0.0
        self._steps_of_pass = 1
        self._is_watching = False
        # when an owner with credit last ran: for a second after it, those without leave half of the loop free
        self._active_at = -math.inf
        self.waits = 0
        self.waited_seconds = 0.0
        self.longest_step = 0.0

    @property
    def waiting(self) -> int:
        """How many steps wait for their turn."""
        return sum(len(queue.steps) for queue in self._waiting.values())

    @coroutine
    def run(
        self, work: Awaitable[T], report_long_step: Callable[[float], None] | None = None
    ) -> Generator[Any, Any, T]:
        """Await the work; each of its steps waits for the turn of its owner, who may change in between."""
        steps, clock = work.__await__(), self._clock
        value: Any = None
        # what the work hears of at once, without a turn: it was canceled, or is closed
        thrown: BaseException | None = None
        owner = owner_of_task.get()
        while True:
            has_credit = owner is None or self._has_credit(owner)
            if not has_credit and thrown is None and owner is not None and self._must_wait():
                try:
                    yield from self._wait(owner)
                except BaseException as error:  # noqa: BLE001 - the work hears of it
                    thrown = error
            begun, paid = clock(), None
            if self._steps % MEASURED_STEPS == 0:
                paid = self._processor_clock()
            self._steps += 1
            try:
                awaited = steps.send(value) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                now = clock()
                seconds = now - begun
                # it may have become known in the step
                owner = owner_of_task.get()
                if owner is not None:
                    if not has_credit:
                        self._held += seconds
                    cost = seconds * self._processor_part if paid is None else self._measure(seconds, paid)
                    self._charge(owner, cost, now, has_credit=has_credit)
                self.longest_step = max(self.longest_step, seconds)
                if seconds > LONG_STEP_SECONDS and report_long_step is not None:
                    report_long_step(seconds)
            try:
                value, thrown = (yield awaited), None
            except BaseException as error:  # noqa: BLE001 - what the loop throws in is for the work
                thrown = error

    def _has_credit(self, owner: Owner) -> bool:
        credit = self._credits.get(owner.name)
        if credit is None or credit.seconds > 0:
            return True
        # those whose credit is not used up may be forgotten: they would begin with as much
        self._credits.move_to_end(owner.name)
        credit.refill(owner, self._clock(), self._share)
        return credit.seconds > 0

    @property
    def _share(self) -> float:
        """The part of the loop that an owner of weight 1 has now."""
        weight = self._active.weight
        return max(SHARE, min(MOST_SHARE, SHARED / weight)) if weight else SHARE

    def _must_wait(self) -> bool:
        """Whether a step without credit must wait for another pass of the loop."""
        if not self._is_watching:
            self._is_watching = True
            self._held, self._steps_of_pass = 0.0, 1
            asyncio.get_running_loop().call_soon(self._begin_pass)
        return bool(self._waiting) or self._held >= PASS_SECONDS

    def _measure(self, seconds: float, paid: float) -> float:
        """The processor time of a step; `paid` is that of the thread before the step."""
        cost = self._processor_clock() - paid
        self._seconds += (seconds - self._seconds) * NEWEST_PART
        self._processor_seconds += (cost - self._processor_seconds) * NEWEST_PART
        if self._seconds:
            self._processor_part = self._processor_seconds / self._seconds
        return cost

    def _charge(self, owner: Owner, seconds: float, now: float, *, has_credit: bool) -> None:
        """Charge a step to its owner."""
        self._active.count(owner, now)
        credit = self._credits.get(owner.name)
        if credit is None:
            credit = self._credits[owner.name] = _Credit(now)
            if len(self._credits) > MOST_OWNERS:
                self._credits.popitem(last=False)
        left = credit.seconds - seconds
        # bounded, so that an owner that had the loop for itself has its share again soon after
        credit.seconds = max(left, -BURST_SECONDS)
        # of the owner that is charged: a request begins as that of an address, which has some
        if has_credit and left > 0:
            self._active_at = now
        if self._waiting and (queue := self._waiting.get(owner.name)) is not None:
            queue.used += seconds / queue.weight

    def _wait(self, owner: Owner) -> Generator[Any, None, None]:
        queue = self._waiting.get(owner.name)
        if queue is None:
            # it begins where the others are: nothing is saved up while an owner needs no turns
            least = min((other.used for other in self._waiting.values()), default=0.0)
            queue = self._waiting[owner.name] = _Queue(owner.weight, least)
        step = asyncio.get_running_loop().create_future()
        queue.steps.append(step)
        self.waits += 1
        begun = self._clock()
        try:
            yield from step
        finally:
            self.waited_seconds += self._clock() - begun

    def _begin_pass(self) -> None:
        """Let waiting steps run in the next pass of the loop: as many as take about PASS_SECONDS, and at least one."""
        if not self._waiting and not self._held:
            self._is_watching = False
            return
        held = self._held
        is_long = held > PASS_SECONDS / 2
        self._steps_of_pass = 1 if is_long else min(2 * self._steps_of_pass, MOST_STEPS)
        self._held = 0.0
        for _ in range(self._steps_of_pass):
            if not self._grant_turn():
                break
        loop = asyncio.get_running_loop()
        if self._clock() - self._active_at < ACTIVE_SECONDS:
            loop.call_later(held, self._begin_pass)
        else:
            loop.call_soon(self._begin_pass)

    def _grant_turn(self) -> bool:
        """Let the next step run; False if none waits."""
        while self._waiting:
            name, queue = min(self._waiting.items(), key=lambda item: item[1].used)
            if not queue.steps:
                del self._waiting[name]
                continue
            step = queue.steps.popleft()
            if not step.done():  # else it was canceled
                step.set_result(None)
                return True
        return False
