"""From enqueue to the handler's start on an idle worker, against a bare INSERT and a bare NOTIFY."""

import asyncio
import statistics
import time

from fairlead.bench.draining import opened, workers
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.scratch import raw_latency
from fairlead.settings import Settings

JOBS = 300


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """The median in milliseconds; the note has the 99th percentile."""
    took = []
    async with opened(settings) as fl, workers(settings):
        await (await fl.enqueue("stamp", tenant=TENANT)).result(timeout=60)  # the worker is up
        limit = await asyncio.to_thread(raw_latency, url, JOBS)
        for number in range(JOBS):
            progress(f"{number} of {JOBS}")
            begun = time.time()
            job = await fl.enqueue("stamp", tenant=TENANT)
            took.append(await job.result(timeout=60) - begun)
            await asyncio.sleep(0.01)  # idle again
    median, high = statistics.median(took), statistics.quantiles(took, n=100)[98]
    return Measure(
        "latency",
        round(median * 1000, 3),
        "ms",
        round(limit * 1000, 3),
        round(median / limit, 3),
        f"p50; p99 {high * 1000:.2f} ms ({high / median:.1f} × p50); limit: bare INSERT + NOTIFY",
    )
