"""Single enqueues, compared with a bare INSERT loop of the same rows."""

import time

from fairlead.bench.run import TENANT, Measure, Progress, compare, open_bench
from fairlead.db.scratch import measure_inserts
from fairlead.settings import Settings

ROUNDS = 5
JOBS = 1500


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Single enqueues per second, each durable before the next begins."""
    values, limits = [], []
    async with open_bench(settings) as fl:
        for number in range(ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            limit = await measure_inserts(url, settings.schema, JOBS)
            begun = time.perf_counter()
            for n in range(JOBS):
                await fl.enqueue("greet", tenant=TENANT, payload={"name": "somebody", "n": n})
            if number:  # the first round warms both up
                limits.append(limit)
                values.append(JOBS / (time.perf_counter() - begun))
    return compare(
        "enqueue", values, limits, unit="jobs/s", note="limit: bare psycopg INSERT loop of the same rows"
    )
