"""Bulk enqueue, compared with a bare COPY of the same rows."""

import asyncio
import time

from fairlead.bench.run import TENANT, Measure, Progress, compare, open_bench
from fairlead.db.scratch import measure_copy
from fairlead.model.job import NewJob
from fairlead.settings import Settings

ROUNDS = 3
JOBS = 50_000


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second in batches of 50,000, validated, one transaction per batch."""
    values, limits = [], []
    async with open_bench(settings) as fl:
        for number in range(ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            payloads = [{"name": f"user {n}", "n": n} for n in range(JOBS)]
            limit = await asyncio.to_thread(measure_copy, url, settings.schema, payloads)
            load = [NewJob(definition="greet", tenant=TENANT, payload=payload) for payload in payloads]
            begun = time.perf_counter()
            await fl.enqueue_many(load)
            if number:  # the first round warms both up
                limits.append(limit)
                values.append(JOBS / (time.perf_counter() - begun))
    return compare("bulk", values, limits, unit="jobs/s", note="limit: bare binary COPY of the same rows")
