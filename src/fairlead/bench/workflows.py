"""A run of a thousand steps, compared with the same jobs enqueued layer by layer."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID, uuid4

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
from fairlead.model.job import NewJob
from fairlead.settings import Settings

ROUNDS = 7
LAYERS = 10
WIDTH = 100
# how many steps of the previous layer a step waits for
PARENTS = 3
SECONDS = 120
# Between two looks at a layer: more looks would take the server's time from the jobs, fewer would find its end late.
PAUSE_SECONDS = 0.001

_LEFT = "select from fairlead.jobs where id = any(%s) and status <= 'running' limit 1"
# From the request to the last finish of the marked jobs, by the database's clock.
_RATE = """
select count(*) / extract(epoch from max(j.finished_at) - %s)
from fairlead.job_records j where j.correlation_id = %s
"""


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:  # noqa: ARG001
    """Steps per second of one run with one worker process, its start included, compared with layers of plain jobs."""
    rates: list[tuple[float, ...]] = []
    async with open_drain_bench(settings) as fl, run_workers(settings):
        for number in range(ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            seen = (
                await _measure(fl, _enqueue_layers),
                await _measure(fl, lambda fl, mark: _run(fl, mark, PARENTS)),
                await _measure(fl, lambda fl, mark: _run(fl, mark, WIDTH)),
                await _measure_plain(fl),
            )
            if number:  # the first round warms all up
                rates.append(seen)
    by_hand, few, all_to_all, plain = map(list, zip(*rates, strict=True))
    dense = compare("", all_to_all, by_hand, unit="steps/s", note="")
    note = (
        f"{LAYERS} layers of {WIDTH}, each step after {PARENTS} of the layer before, no placeholders, from the request on, of a "
        f"workflow that the process has started before; limit: to enqueue {WIDTH} jobs in bulk, wait for their ends, and "
        f"enqueue the next {WIDTH}, with the same worker process, "
        f"in turn; after all {WIDTH} of the layer before: {dense.value:,.0f} steps/s, {dense.ratio:.2f}; "
        f"{LAYERS * WIDTH:,} plain jobs at once, from the first claim on: {statistics.median(plain):,.0f} jobs/s"
    )
    return compare("workflows", few, by_hand, unit="steps/s", note=note)


async def _measure(fl: Fairlead, work: Callable[[Fairlead, str], Awaitable[None]]) -> float:
    mark = uuid4().hex
    [(begun_at,)] = await fl.database.transact(lambda tx: tx.values("select clock_timestamp()"))
    await work(fl, mark)
    await wait_until_drained(fl, mark)
    return await _read_rate(fl, begun_at, mark)


async def _read_rate(fl: Fairlead, begun_at: datetime, mark: str) -> float:
    [(rate,)] = await fl.database.transact(lambda tx: tx.values(_RATE, [begun_at, mark]))
    return float(rate)


async def _enqueue_layers(fl: Fairlead, mark: str) -> None:
    for _ in range(LAYERS):
        new = [NewJob(definition="noop", tenant=TENANT, correlation_id=mark) for _ in range(WIDTH)]
        await _wait_for_jobs(fl, [job.id for job in await fl.enqueue_many(new)])


async def _wait_for_jobs(fl: Fairlead, ids: list[UUID]) -> None:
    """Wait with one query for all of them: to await the result of each would take six times as long."""
    async with asyncio.timeout(SECONDS):
        while await fl.database.single(lambda tx: tx.values(_LEFT, [ids])):  # noqa: ASYNC110 - another process ends them
            await asyncio.sleep(PAUSE_SECONDS)


async def _run(fl: Fairlead, mark: str, parents: int) -> None:
    run = await fl.run_inline(_build_layers(parents), tenant=TENANT, correlation_id=mark)
    await run.result(SECONDS, look_seconds=LOOK_SECONDS)


async def _measure_plain(fl: Fairlead) -> float:
    mark = uuid4().hex
    await enqueue_jobs(fl, LAYERS * WIDTH, mark)
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
