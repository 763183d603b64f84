"""The time from an enqueue to the handler's start on an idle worker, compared with a bare INSERT and NOTIFY."""

import asyncio
import statistics
import time

from fairlead.bench.drain_tools import open_drain_bench, run_workers
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.scratch import open_ping
from fairlead.settings import Settings

JOBS = 300
IDLE_SECONDS = 0.01


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """The median in milliseconds; the note has the 99th percentile."""
    took, raw = [], []
    async with open_drain_bench(settings) as fl, run_workers(settings):
        await (await fl.enqueue("stamp", tenant=TENANT)).result(timeout=60)  # the worker is up
        with open_ping(url) as ping:
            for number in range(JOBS):
                progress(f"{number} of {JOBS}")
                # each after the same pause: a processor that has just been idle is half as fast
                await asyncio.sleep(IDLE_SECONDS)
                raw.append(await asyncio.to_thread(ping))
                await asyncio.sleep(IDLE_SECONDS)
                begun = time.time()
                job = await fl.enqueue("stamp", tenant=TENANT)
                took.append(await job.result(timeout=60) - begun)
    limit = statistics.median(raw)
    median, high = statistics.median(took), statistics.quantiles(took, n=100)[98]
    return Measure(
        "latency",
        round(median * 1000, 3),
        "ms",
        round(limit * 1000, 3),
        round(median / limit, 3),
        f"p50; p99 {high * 1000:.2f} ms ({high / median:.1f} × p50); limit: bare INSERT + NOTIFY",
    )
