"""The job functions of a run: those of the victims, and those with which the hostile tenant attacks."""

import asyncio
from datetime import timedelta
from typing import Any

from fairlead.chaos.hostile.attacks import ANYTHING, ASKS, SLOW, STEPS
from fairlead.handlers.context import Context
from fairlead.library.app import Fairlead

QUICK = "victim.quick"
ON_EVENT = "victim.on_event"
EVENT = "victim.happened"
LONGEST_SECONDS = 5.0

fl = Fairlead(name="fairlead-hostile")


@fl.job(key=QUICK)
async def run_quick(n: int = 0) -> int:
    """A short job of a victim."""
    return n


@fl.job(key=ON_EVENT)
async def run_on_event(n: int = 0) -> int:
    """A job that an event of a victim makes."""
    return n


@fl.job(key=ANYTHING, max_attempts=1)
async def take_anything(value: Any = None) -> dict[str, Any]:
    """A job that gives back what it gets."""
    return {"value": value}


@fl.job(key=SLOW, max_attempts=1)
async def take_long(seconds: float = 0.0) -> None:
    """A job that holds its slot."""
    await asyncio.sleep(min(seconds, LONGEST_SECONDS))


@fl.job(key=STEPS, max_attempts=1, durable=True)
async def run_steps(ctx: Context, steps: int = 1, size: int = 1) -> int:
    """A durable function with many steps, or with large ones."""
    for number in range(steps):
        await ctx.step(f"step {number}", _write, size)
    return steps


def _write(size: int) -> str:
    return "x" * size


@fl.job(key=ASKS, max_attempts=1, durable=True)
async def ask(ctx: Context) -> bool:
    """A durable function that waits for an approval."""
    form = {"type": "object", "properties": {"text": {"type": "string"}}}
    answer = await ctx.wait_for_approval("ask", title="May it?", form=form, timeout=timedelta(seconds=60))
    return bool(answer)
