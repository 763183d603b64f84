"""The cost of an idle worker: its transactions and its processor time."""

import asyncio
import math
import os
import time
from dataclasses import replace
from pathlib import Path

from fairlead.bench.backlog import add_queued
from fairlead.bench.drain_tools import open_drain_bench, run_workers
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.database import Database
from fairlead.db.scratch import settle_server
from fairlead.settings import Settings

SECONDS = 20.0
# Jobs that wait for a rate.
ROWS = 1_000_000
# An idle connection reports its transactions, also those of its start, to the statistics after ten seconds.
TOLD_SECONDS = 10.5
LIMIT = 2.0

_TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Transactions per second of one idle worker."""
    return await _measure("idle", 0, url, settings, progress)


async def measure_held(url: str, settings: Settings, progress: Progress) -> Measure:
    """Transactions per second of one idle worker beside a million due jobs that wait for a rate."""
    return await _measure("held", ROWS, url, settings, progress)


async def _measure(name: str, held: int, url: str, settings: Settings, progress: Progress) -> Measure:
    async with run_workers(settings) as [worker]:
        async with open_drain_bench(settings) as fl:
            await (await fl.enqueue("noop", tenant=TENANT)).result(timeout=60)  # the worker is up
            if held:
                await (await fl.enqueue("slow", tenant=TENANT)).result(timeout=60)  # the only one of this day
                await add_queued(fl, held, progress, definition="slow")
                await fl.enqueue("slow", tenant=TENANT)  # the worker looks at them
        async with Database(url, replace(settings, pool_size=1)) as database:
            await settle_server(url)  # or autovacuum's transactions would be counted too
            progress("waiting until the worker is idle")
            await asyncio.sleep(TOLD_SECONDS)
            await count_transactions(database)  # after this one, the statistics have all of our transactions
            before, ran, begun = (
                await count_transactions(database),
                _cpu_seconds(worker.pid),
                time.perf_counter(),
            )
            progress(f"watching an idle worker for {SECONDS:g} s")
            await asyncio.sleep(SECONDS)
            seconds = time.perf_counter() - begun
            after, cpu = await count_transactions(database), _cpu_seconds(worker.pid) - ran
    rate = (after - before - 1) / seconds  # one of them is the query of `before`
    return Measure(
        name,
        round(rate, 3),
        "transactions/s",
        LIMIT,
        round(rate / LIMIT, 3),
        f"one worker over {seconds:.0f} s{f' beside {held:,} jobs that wait for a rate' if held else ''}, by "
        f"pg_stat_database; its processor time {100 * cpu / seconds:.1f} %; "
        "limit: our own bound",
    )


async def count_transactions(database: Database) -> int:
    """The total number of this database's transactions."""
    [(number,)] = await database.single(lambda tx: tx.values(_TRANSACTIONS))
    return int(number)


def _cpu_seconds(pid: int) -> float:
    """The processor time of a process; NaN without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
