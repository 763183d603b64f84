"""The jobs that the benchmarks run in separate worker processes."""

import time
from itertools import pairwise

from fairlead.handlers.context import Context
from fairlead.library.app import Fairlead
from fairlead.model.flow import KeyLimit, Rate

fl = Fairlead(actor="bench")


@fl.job(key="noop")
async def noop(customer: int = 0) -> None:
    """Do nothing, quickly."""


@fl.job(key="paused")
async def run_pausable() -> None:
    """Served; a workload may pause it."""


@fl.job(key="held", max_running=1)
async def run_blockable() -> None:
    """Served; a workload may block it by leaving one job running."""


@fl.job(key="rated", rate=Rate(1_000_000, 1))
async def run_rated(customer: int = 0) -> None:
    """Do nothing, with a rate that is never reached."""


@fl.job(key="keyed", by_key=KeyLimit("/customer", max_running=1))
async def run_keyed(customer: int = 0) -> None:
    """Do nothing, one job of each customer at a time."""


@fl.job(key="slow", rate=Rate(1, 86_400))
async def run_slow() -> None:
    """Do nothing, once a day."""


@fl.job(key="stamp")
async def stamp() -> float:
    """Return when the handler started."""
    return time.time()


async def _do_nothing() -> None:
    """An empty step."""


@fl.job(key="steps", durable=True, timeout=3600)
async def run_steps(ctx: Context, steps: int, sleep: float = 0) -> list[float]:
    """Run empty steps, then sleep without a worker; how long each tenth of the steps took in the last attempt, in seconds."""
    times = [time.perf_counter()]
    for number in range(1, steps + 1):
        await ctx.step("step", _do_nothing)
        if number * 10 % steps == 0:
            times.append(time.perf_counter())
    if sleep:
        await ctx.sleep(sleep)
    return [after - before for before, after in pairwise(times)]


@fl.job(key="sleeper", durable=True)
async def run_sleeper(ctx: Context, seconds: float) -> float:
    """Sleep without a worker; when it woke."""
    await ctx.sleep(seconds)
    return time.time()
