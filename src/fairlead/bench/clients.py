"""Concurrent clients that enqueue, compared with bare INSERT loops on as many connections."""

import asyncio
import operator
import statistics
import time
from dataclasses import replace

from fairlead.bench.run import TENANT, Measure, Progress, compare, open_bench
from fairlead.db.listen import Listener
from fairlead.db.notifier import Notifier
from fairlead.db.scratch import build_slow_commit_url, measure_inserts
from fairlead.library.app import Fairlead
from fairlead.settings import Settings

ROUNDS = 5
JOBS = 3200
CLIENTS = 32
DELAY_MS = 2


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Single enqueues per second of all clients together, each durable before its client continues."""
    slow = await build_slow_commit_url(url, DELAY_MS)
    own = replace(settings, database_url=slow or url, pool_size=CLIENTS)
    values, limits, silent_values = [], [], []
    async with open_bench(own) as fl, Listener(url, settings.schema):
        notifying, silent = fl.database.notifier, SilentNotifier(_send_nothing)
        for number in range(ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            limit = await measure_inserts(slow or url, settings.schema, JOBS, connections=CLIENTS)
            fl.database.notifier = silent
            without_words = await _measure_rate(fl)
            fl.database.notifier = notifying
            value = await _measure_rate(fl)
            if number:  # the first round opens the connections
                limits.append(limit)
                values.append(value)
                silent_values.append(without_words)
    disk = f"commits take {DELAY_MS} ms more" if slow else "commits as this disk makes them: no superuser"
    without = statistics.median(map(operator.truediv, values, silent_values))
    note = (
        f"{CLIENTS} connections, {disk}; limit: bare psycopg INSERT loops of the same rows on as many connections; "
        f"{without:.3f} of Fairlead without notifications"
    )
    return compare("clients", values, limits, unit="jobs/s", note=note)


class SilentNotifier(Notifier):
    """Sends no notifications, and does not let the statements send them."""

    def take(self, _word: str) -> bool:
        return False


async def _measure_rate(fl: Fairlead) -> float:
    left = iter(range(JOBS))

    async def client() -> None:
        for n in left:
            await fl.enqueue("greet", tenant=TENANT, payload={"name": "somebody", "n": n})

    begun = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return JOBS / (time.perf_counter() - begun)


async def _send_nothing(word: str) -> None:
    """Send no notification."""
