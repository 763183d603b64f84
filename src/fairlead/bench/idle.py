"""What a worker with nothing to do costs the database, and itself."""

import asyncio
import math
import os
import time
from dataclasses import replace
from pathlib import Path

from fairlead.bench.draining import opened, workers
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.scratch import settled
from fairlead.db.tx import Database
from fairlead.settings import Settings

SECONDS = 20.0
# An idle connection tells the server's statistics of its transactions after ten seconds, those of its start included.
TOLD_SECONDS = 10.5
LIMIT = 2.0

_TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Transactions a second of one idle worker."""
    async with workers(settings) as [worker]:
        async with opened(settings) as fl:
            await (await fl.enqueue("noop", tenant=TENANT)).result(timeout=60)  # the worker is up
        async with Database(url, replace(settings, pool_size=1)) as database:
            await settled(url)  # or autovacuum's transactions would be counted too
            progress("letting the worker come to rest")
            await asyncio.sleep(TOLD_SECONDS)
            await transactions(database)  # after this one, the server has been told of all ours
            before, ran, begun = await transactions(database), _cpu_seconds(worker.pid), time.perf_counter()
            progress(f"watching an idle worker for {SECONDS:g} s")
            await asyncio.sleep(SECONDS)
            seconds = time.perf_counter() - begun
            after, cpu = await transactions(database), _cpu_seconds(worker.pid) - ran
    rate = (after - before - 1) / seconds  # one of them asked for `before`
    return Measure(
        "idle",
        round(rate, 3),
        "transactions/s",
        LIMIT,
        round(rate / LIMIT, 3),
        f"one worker over {seconds:.0f} s, by pg_stat_database; its processor time {100 * cpu / seconds:.1f} %; "
        "limit: what we allow it",
    )


async def transactions(database: Database) -> int:
    """How many transactions this database has seen."""
    [(number,)] = await database.single(lambda tx: tx.values(_TRANSACTIONS))
    return int(number)


def _cpu_seconds(pid: int) -> float:
    """The processor time of a process; not a number where the system has no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
