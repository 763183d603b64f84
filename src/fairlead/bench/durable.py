"""Durable functions of empty steps: steps per second, and that a step costs the same in a long function as in a short one."""

import statistics
import time
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from fairlead.bench.drain_tools import open_drain_bench, poll_until, run_workers
from fairlead.bench.run import TENANT, Measure, Progress, compare
from fairlead.db.scratch import measure_step_inserts, settle_server
from fairlead.library.app import Fairlead
from fairlead.model.job import NewJob
from fairlead.settings import Settings

ROUNDS = 3
# The steps of one function, and how many such functions there are.
STEPS = 100
JOBS = 200
LONG_STEPS = 10_000
# The steps of one page, and how often it is read.
PAGE = 100
LOOKS = 10
# After the steps, so that a second attempt replays them.
SLEEP_SECONDS = 0.2

_LEFT = (
    "select count(*) from fairlead.jobs j where j.correlation_id = %s and j.status in ('queued', 'running')"
)
_RATE = """
select count(*) / extract(epoch from max(s.ended_at) - min(j.started_at))
from fairlead.job_records j join fairlead.job_steps s on s.job_id = j.id
where j.correlation_id = %s and s.kind = 'step'
"""
_REPLAY = """
select a.duration_ms from fairlead.jobs j join fairlead.attempts a on a.job_id = j.id and a.attempt_no = 2
where j.correlation_id = %s
"""
_TENTHS = "select j.id, j.output from fairlead.jobs j where j.correlation_id = %s"
_BYTES = """
select pg_total_relation_size('fairlead.job_steps') / greatest(1, (select count(*) from fairlead.job_steps))::float8
"""


class Function(NamedTuple):
    """What was measured with one function that ran alone."""

    # steps per second
    rate: float
    # how much longer its last steps took than its first
    growth: float
    # of the attempt that replays the steps, in milliseconds
    replay: float
    # of the last page of its steps, in milliseconds
    page: float


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Steps per second of functions of 100 empty steps on one worker process."""
    values, limits, shorts, longs = [], [], list[Function](), list[Function]()
    async with open_drain_bench(settings) as fl:
        for number in range(1, ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            await settle_server(url)
            limits.append(await measure_step_inserts(url, settings.schema, uuid4(), JOBS * 10))
            async with run_workers(settings):
                await _run(fl, 1, steps=10)  # the worker is up
                values.append(await _read_number(fl, _RATE, await _run(fl, JOBS, steps=STEPS)))
                shorts.append(await _run_alone(fl, STEPS))
                longs.append(await _run_alone(fl, LONG_STEPS))
        size = await _read_number(fl, _BYTES)
    note = (
        f"{JOBS:,} functions of {STEPS} steps; one alone: {_median(shorts, 'rate'):.0f} steps/s, with {LONG_STEPS:,} steps "
        f"{_median(longs, 'rate'):.0f} steps/s, the last tenth {_median(longs, 'growth'):.2f} × the first; replay: an attempt of "
        f"{_median(shorts, 'replay'):.0f} ms with {STEPS} steps, {1000 * _median(longs, 'replay') / LONG_STEPS:.1f} µs a step with "
        f"{LONG_STEPS:,}; the last page of {PAGE} steps {_median(shorts, 'page'):.1f} and {_median(longs, 'page'):.1f} ms; {size:.0f} "
        "bytes on disk a step; limit: bare INSERTs of the same rows, one by one"
    )
    return compare("durable", values, limits, unit="steps/s", note=note)


async def _run_alone(fl: Fairlead, steps: int) -> Function:
    mark = await _run(fl, 1, steps=steps)
    rate = await _read_number(fl, _RATE, mark)
    [(job_id, tenths)] = await _read(fl, _TENTHS, mark)
    replay = await _read_number(fl, _REPLAY, await _run(fl, 1, steps=steps, sleep=SLEEP_SECONDS))
    return Function(rate, tenths[-1] / tenths[0], replay, await _time_page(fl, job_id, steps))


async def _time_page(fl: Fairlead, job_id: UUID, steps: int) -> float:
    """How long the last page of the steps takes, in milliseconds: the least of some looks."""
    took = list[float]()
    for _ in range(LOOKS):
        begun = time.perf_counter()
        await fl.steps(job_id, limit=PAGE, after=str(steps - PAGE) if steps > PAGE else None)
        took.append(1000 * (time.perf_counter() - begun))
    return min(took)


async def _run(fl: Fairlead, functions: int, **payload: float) -> str:
    """Run functions to their end; the mark of their jobs."""
    mark = uuid4().hex
    await fl.enqueue_many(
        [
            NewJob(definition="steps", tenant=TENANT, correlation_id=mark, payload=payload)
            for _ in range(functions)
        ]
    )

    async def is_done() -> bool:
        return await _read_number(fl, _LEFT, mark) == 0

    await poll_until(is_done)
    return mark


async def _read_number(fl: Fairlead, query: str, *values: str) -> float:
    [(number,)] = await _read(fl, query, *values)
    return float(number)


async def _read(fl: Fairlead, query: str, *values: str) -> list[tuple[Any, ...]]:
    return await fl.database.transact(lambda tx: tx.values(query, list(values)))


def _median(functions: list[Function], field: str) -> float:
    return float(statistics.median(getattr(one, field) for one in functions))
