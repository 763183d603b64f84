"""A run of a thousand steps, compared with a thousand plain jobs."""

from uuid import uuid4

from fairlead.bench.drain_tools import (
    LOOK_SECONDS,
    enqueue_jobs,
    open_drain_bench,
    run_workers,
    wait_until_drained,
)
from fairlead.bench.run import TENANT, Measure, Progress, compare
from fairlead.library.app import Fairlead
from fairlead.library.workflows import Flow
from fairlead.settings import Settings

ROUNDS = 7
LAYERS = 10
WIDTH = 100
# how many steps of the previous layer a step waits for
PARENTS = 3
SECONDS = 120


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:  # noqa: ARG001
    """Steps per second of one run with one worker process, compared with as many plain jobs."""
    values, limits, layered = [], [], []
    async with open_drain_bench(settings) as fl, run_workers(settings):
        for number in range(ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            limit, value, all_to_all = (
                await _measure_plain(fl),
                await _measure_run(fl, PARENTS),
                await _measure_run(fl, WIDTH),
            )
            if number:  # the first round warms all up
                limits.append(limit)
                values.append(value)
                layered.append(all_to_all)
    slow = sorted(layered)[len(layered) // 2] / sorted(limits)[len(limits) // 2]
    note = (
        f"{LAYERS} layers of {WIDTH}, each step after {PARENTS} of the layer before; limit: {LAYERS * WIDTH:,} plain jobs "
        f"of the same worker process, in turn; after all {WIDTH} of the layer before: {slow:.2f}"
    )
    return compare("workflows", values, limits, unit="steps/s", note=note)


async def _measure_plain(fl: Fairlead) -> float:
    mark = uuid4().hex
    await enqueue_jobs(fl, LAYERS * WIDTH, mark)
    return await wait_until_drained(fl, mark)


async def _measure_run(fl: Fairlead, parents: int) -> float:
    mark = uuid4().hex
    run = await fl.run_inline(_build_layers(parents), tenant=TENANT, correlation_id=mark)
    await run.result(SECONDS, look_seconds=LOOK_SECONDS)
    return await wait_until_drained(fl, mark)


def _build_layers(parents: int) -> Flow:
    flow = Flow("layers")
    before = [flow.step(f"s0_{n}", "noop") for n in range(WIDTH)]
    for layer in range(1, LAYERS):
        before = [
            flow.step(
                f"s{layer}_{n}", "noop", after=[before[(n + shift) % WIDTH] for shift in range(parents)]
            )
            for n in range(WIDTH)
        ]
    return flow
