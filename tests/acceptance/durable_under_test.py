"""Durable functions for real worker processes that are killed. Each run of a step is a line in a file, written before the step ends."""

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from fairlead import ChildFailed, Context, Fairlead, Fatal, StepFailed

fl = Fairlead()

# A step takes up to this time before and after its line.
LONGEST_SECONDS = 0.01


def write_line(folder: str, *words: object) -> None:
    """Append a line in one write: it is there, or it is not, also if the process is killed."""
    handle = os.open(Path(folder) / "runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, (" ".join(str(word) for word in words) + "\n").encode())
    finally:
        os.close(handle)


def take_a_moment() -> float:
    return random.uniform(0, LONGEST_SECONDS)  # noqa: S311


class Runs:
    """The steps of one attempt. The result of each is a number that no other run has."""

    def __init__(self, ctx: Context, folder: str) -> None:
        self._folder = folder
        self._words = (ctx.job_id, ctx.attempt_no)

    async def run(self, name: str, *, fails: bool = False) -> str:
        await asyncio.sleep(take_a_moment())
        mark = self._write(name)
        await asyncio.sleep(take_a_moment())
        if fails:
            raise ValueError("declined")
        return mark

    def run_in_thread(self, name: str) -> str:
        time.sleep(take_a_moment())
        mark = self._write(name)
        time.sleep(take_a_moment())
        return mark

    def _write(self, name: str) -> str:
        mark = uuid4().hex
        write_line(self._folder, *self._words, name, mark)
        return mark


@fl.job
async def double(n: int) -> int:
    await asyncio.sleep(take_a_moment())
    return 2 * n


@fl.job(max_attempts=1)
async def refuse() -> None:
    raise Fatal("not today")


@fl.job(durable=True)
async def voyage(ctx: Context, n: int, folder: str) -> dict[str, Any]:
    """Twenty steps with a sleep, a branch that sleeps, children, an event, a signal and a failure that is handled."""
    runs, marks = Runs(ctx, folder), dict[str, str]()

    async def step(name: str) -> None:
        marks[name] = await ctx.step(name, runs.run, name)

    async def branch(name: str) -> None:
        await step(f"{name}-begins")
        await ctx.sleep(0.05)
        await step(f"{name}-ends")

    for number in range(4):
        await step(f"first-{number}")
    await ctx.sleep(0.1)
    await step("slept")
    children = [await ctx.call(double, {"n": n})]
    await step("called")
    try:
        await ctx.step("declined", runs.run, "declined", fails=True)
    except StepFailed as error:
        await step("compensated")
        marks["error"] = error.message
    gathered = await ctx.gather(branch("left"), branch("right"), ctx.call(double, {"n": n + 1}))
    children.append(gathered[2])
    await step("gathered")
    event = await ctx.wait_for_event("arrived", where={"n": n})
    for number in range(3):
        await step(f"arrived-{number}")
    try:
        await ctx.call(refuse)
    except ChildFailed as error:
        marks["refused"] = error.message
    signal = await ctx.wait_for_signal("go")
    for number in range(4):
        await step(f"last-{number}")
    return {"marks": marks, "children": children, "event": event.data, "signal": signal.data}


@fl.job(durable=True)
def crossing(ctx: Context, n: int, folder: str) -> dict[str, Any]:
    """The same in a thread, shorter."""
    runs, marks = Runs(ctx, folder), dict[str, str]()

    def step(name: str) -> None:
        marks[name] = ctx.step(name, runs.run_in_thread, name)

    for number in range(8):
        step(f"first-{number}")
    ctx.sleep(0.1)
    children = [ctx.call(double, {"n": n})]
    ctx.gather(lambda: step("left"), lambda: step("right"))
    event = ctx.wait_for_event("arrived", where={"n": n})
    signal = ctx.wait_for_signal("go")
    for number in range(10):
        step(f"last-{number}")
    return {"marks": marks, "children": children, "event": event.data, "signal": signal.data}
