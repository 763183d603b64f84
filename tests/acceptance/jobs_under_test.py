"""Jobs for real worker processes. They tell the test of themselves by files in the folder they are given."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from fairlead import Context, Fairlead, Secret

# How often a held function looks whether it may go on.
LOOK_SECONDS = 0.05

fl = Fairlead()


def _here() -> dict[str, Any]:
    return {"pid": os.getpid(), "main_thread": threading.current_thread() is threading.main_thread()}


@fl.job
async def on_the_loop() -> dict[str, Any]:
    return _here()


@fl.job(isolate=True)
def in_a_process() -> dict[str, Any]:
    return _here()


@fl.job
async def echo(n: int) -> int:
    return n


@fl.job
async def measure(text: str) -> int:
    return len(text)


@fl.job
async def total(outs: list[int]) -> int:
    return sum(outs)


@fl.job
async def costly(ctx: Context, cents: int) -> int:
    """Costs so much, at each attempt, and takes a moment."""
    ctx.add_cost(cents)
    await asyncio.sleep(0.02)
    return cents


@fl.job(max_attempts=1)
async def exits_on_the_loop() -> None:
    raise SystemExit(3)


@fl.job(max_attempts=1)
def exits_in_a_thread() -> None:
    raise SystemExit(3)


@fl.job(max_attempts=1, isolate=True)
def dies_in_a_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@fl.job(max_attempts=1)
async def raises_what_is_no_exception() -> None:
    raise KeyboardInterrupt


@fl.job
async def poison() -> None:
    """Takes its worker with it, every time."""
    os.kill(os.getpid(), signal.SIGKILL)


def _begin(ctx: Context, folder: str) -> Path:
    """Say that this attempt runs, and where; the answer is the file that lets it end."""
    name = f"{ctx.job_id}.{ctx.attempt_no}"
    draft = Path(folder, f"{name}.draft")
    draft.write_text(str(os.getpid()))
    draft.rename(Path(folder, f"{name}.begun"))
    return Path(folder, f"{name}.go")


class Pauses:
    """The longest time between two looks: how long the machine let a function stand still."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.longest = 0.0

    def look(self) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self._last)
        self._last = now


@contextlib.contextmanager
def _ending(go: Path) -> Iterator[Pauses]:
    """At the end, note the longest pause."""
    pauses = Pauses()
    try:
        yield pauses
    finally:
        pauses.look()
        draft = go.with_suffix(".ending")
        draft.write_text(str(pauses.longest))
        draft.rename(go.with_suffix(".ended"))


@fl.job(timeout=120)
async def held(ctx: Context, folder: str) -> int:
    """Runs until the test lets this attempt go."""
    return await _until_let_go(ctx, folder)


async def _until_let_go(ctx: Context, folder: str) -> int:
    with _ending(go := _begin(ctx, folder)) as pauses:
        while not go.exists():
            await asyncio.sleep(LOOK_SECONDS)
            pauses.look()
        return ctx.attempt_no


@fl.job(timeout=120)
async def reports(ctx: Context, folder: str) -> int:
    """Says how far it is, and then runs until the test lets it go."""
    await ctx.progress(10, "begun")
    await ctx.progress(50, "halfway there")
    return await _until_let_go(ctx, folder)


@fl.job(timeout=120)
async def logs_and_waits(ctx: Context, folder: str, token: Annotated[str, Secret()] = "") -> int:
    """Logs a line, runs until the test lets it go, and logs another one."""
    ctx.log.info("first", token=token)
    await _until_let_go(ctx, folder)
    ctx.log.info("last", token=token)
    return ctx.attempt_no


@fl.job(timeout=120)
def logs_and_waits_in_a_thread(ctx: Context, folder: str) -> int:
    ctx.log.info("first")
    go = _begin(ctx, folder)
    while not go.exists():
        time.sleep(LOOK_SECONDS)
    ctx.log.info("last")
    return ctx.attempt_no


@fl.job(timeout=120, isolate=True)
def logs_and_waits_in_a_process(ctx: Context, folder: str) -> int:
    ctx.log.info("first")
    go = _begin(ctx, folder)
    while not go.exists():
        time.sleep(LOOK_SECONDS)
    ctx.log.info("last")
    return ctx.attempt_no


@fl.job(timeout=120)
def held_in_a_thread(ctx: Context, folder: str) -> int:
    return _until_let_go_or_canceled(ctx, folder)


@fl.job(timeout=120, isolate=True)
def held_in_a_process_that_listens(ctx: Context, folder: str) -> int:
    return _until_let_go_or_canceled(ctx, folder)


def _until_let_go_or_canceled(ctx: Context, folder: str) -> int:
    with _ending(go := _begin(ctx, folder)) as pauses:
        while not go.exists() and not ctx.is_canceled:
            time.sleep(LOOK_SECONDS)
            pauses.look()
        ctx.check_canceled()
        return ctx.attempt_no


@fl.job(timeout=120, isolate=True)
def held_in_a_process(ctx: Context, folder: str) -> int:
    """Hears of nothing: only a signal ends it. A file shows until when it lived."""
    go = _begin(ctx, folder)
    while not go.exists():
        go.with_suffix(".alive").touch()
        time.sleep(LOOK_SECONDS)
    return ctx.attempt_no
