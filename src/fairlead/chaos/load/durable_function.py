"""The durable function of a run: steps, waits, children and compensation, as its payload says.

Each run of a step is noted outside of Fairlead, with a value that no other run has. The function returns the values that it
saw, so the checker can compare what ran, what was recorded, and what the function got.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import msgspec

from fairlead.chaos import scenario
from fairlead.chaos.history import StepRunRecord, now
from fairlead.handlers.context import ChildFailed, Context, StepFailed
from fairlead.handlers.step_call import Retry
from fairlead.model.approval import ApprovalAnswer
from fairlead.model.outcome import Backoff

# A wait for an event that never comes.
PATIENCE_SECONDS = 0.5
# How long people may take to answer.
ANSWER_SECONDS = 12.0
# How often the step fails that makes its attempt fail.
FAILURES = 0.3
AT_ONCE = Backoff(base_seconds=0.01, factor=1, cap_seconds=1, jitter=0)
# The number of a child's payload: no call has such a place.
OF_CHILD = -1


class FunctionPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload: what the function does, in this order."""

    call: str = ""
    n: int = 0
    # steps one after the other, and how long each of them runs
    steps: int = 1
    seconds: float = 0.0
    # tries of a step that fail, with one more that does not
    failing_tries: int = 0
    # a step that fails its attempt now and then
    unsure: bool = False
    sleep: float = 0.0
    # branches of two steps with a sleep in between
    parallel: int = 0
    # "function": a child that is a durable function; "fatal": one that fails; beside the branches, if there are some
    child: str = ""
    event: bool = False
    signal: bool = False
    # asks for an approval, and goes on without an answer after a while
    approval: bool = False
    # waits for the approval without an end
    patient: bool = False
    # waits for what never comes, until its timeout
    late: bool = False
    # a step fails for good, and the function undoes what the first steps did
    broken: bool = False
    # how many steps have succeeded in the end, for the checker
    total: int = 1

    @property
    def key(self) -> str:
        """What the event and the signal carry that this function waits for."""
        return f"{self.call}/{self.n}"

    def count_steps(self) -> int:
        own = self.steps * (2 if self.broken else 1) + 2 * self.parallel
        return own + bool(self.failing_tries) + self.unsure


class _FailedAsPlanned(Exception):
    """A step that is to fail."""


class _Run:
    """One attempt of the function."""

    def __init__(self, ctx: Context, plan: FunctionPlan, write: Callable[[StepRunRecord], None]) -> None:
        self._ctx = ctx
        self._plan = plan
        self._write = write
        self._place = 0
        self._tries = 0
        self.seen: dict[str, str] = {}

    async def step(self, name: str, check: Callable[[], None] | None = None, **options: Any) -> None:
        """A step after those before it."""
        self._place += 1
        await self._step(name, check, **options)

    async def _step(self, name: str, check: Callable[[], None] | None = None, **options: Any) -> None:
        self.seen[name] = await self._ctx.step(name, self._act, name, self._place, check, **options)

    async def _act(self, name: str, place: int, check: Callable[[], None] | None) -> str:
        """The effect: a record in the history of the run."""
        value = uuid4().hex
        self._write(StepRunRecord(now(), self._ctx.job_id, self._ctx.attempt_no, name, place, value))
        if self._plan.seconds:
            await asyncio.sleep(self._plan.seconds)
        if check is not None:
            check()
        return value

    def fail_first_tries(self) -> None:
        self._tries += 1
        if self._tries <= self._plan.failing_tries:
            raise _FailedAsPlanned(f"try {self._tries}")

    async def fork(self) -> Any:
        """The branches, and the child beside them: what the child came to."""
        self._place += 1
        branches = [self._branch(number) for number in range(self._plan.parallel)]
        return (await self._ctx.gather(*branches, self.call()))[-1]

    async def _branch(self, number: int) -> None:
        await self._step(f"branch-{number}")
        await self._ctx.sleep(0.05)
        await self._step(f"branch-{number}-after")

    async def call(self) -> Any:
        """The values that the child saw, or that it failed."""
        if not self._plan.child:
            return None
        plan = FunctionPlan(call=self._plan.call, n=OF_CHILD, steps=2, sleep=0.1, total=2)
        key = scenario.DURABLE if self._plan.child == "function" else scenario.FATAL
        payload = msgspec.to_builtins(plan) if self._plan.child == "function" else {"n": OF_CHILD}
        try:
            output = await self._ctx.call(key, payload)
        except ChildFailed:
            return "failed"
        return output["steps"]

    async def undo(self) -> bool:
        """Fail a step for good, then undo the first ones."""
        try:
            await self.step("broken", _fail)
        except StepFailed:
            for number in reversed(range(self._plan.steps)):
                await self.step(f"undo-{number}")
            return True
        return False


def _fail() -> None:
    raise _FailedAsPlanned("for good")


def _fail_now_and_then() -> None:
    if random.random() < FAILURES:  # noqa: S311
        raise _FailedAsPlanned("this time")


def _describe(answer: ApprovalAnswer | None) -> str | None:
    return None if answer is None else f"{'approve' if answer.approved else 'reject'}/{answer.comment}"


async def run_function(
    ctx: Context, plan: FunctionPlan, write: Callable[[StepRunRecord], None]
) -> dict[str, Any]:
    """One attempt of the function. What it saw."""
    run = _Run(ctx, plan, write)
    result: dict[str, Any] = {"attempt": ctx.attempt_no, "steps": run.seen}
    for number in range(plan.steps):
        await run.step(f"step-{number}")
    if plan.failing_tries:
        await run.step("tried", run.fail_first_tries, retry=Retry(plan.failing_tries + 1, AT_ONCE))
    if plan.unsure:
        await run.step("unsure", _fail_now_and_then)
    if plan.sleep:
        await ctx.sleep(plan.sleep)
    result["child"] = await (run.fork() if plan.parallel else run.call())
    if plan.event:
        result["event"] = (await ctx.wait_for_event(scenario.CONFIRMED, where={"key": plan.key})).data["key"]
    if plan.signal:
        result["signal"] = (await ctx.wait_for_signal(scenario.SIGNAL)).data
    if plan.approval:
        answer = await ctx.wait_for_approval(
            "go-on", title="Go on?", timeout=None if plan.patient else ANSWER_SECONDS
        )
        result["approval"] = _describe(answer)
    if plan.late:
        result["late"] = await ctx.wait_for_event(scenario.NEVER, timeout=PATIENCE_SECONDS)
    if plan.broken:
        result["undone"] = await run.undo()
    return result
