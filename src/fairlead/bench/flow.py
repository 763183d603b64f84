"""Drains of a definition with a rate and of one with limits by key, taking turns with a plain drain of the same jobs."""

from uuid import uuid4

from fairlead.bench.drain_tools import open_drain_bench, poll_until, run_workers
from fairlead.bench.run import TENANT, Measure, Progress, compare
from fairlead.db.scratch import settle_server
from fairlead.library.app import Fairlead
from fairlead.model.job import NewJob
from fairlead.settings import Settings

ROUNDS = 5
JOBS = 20_000
# How many keys the jobs have.
KEYS = 10_000

_LEFT = """
select coalesce(sum(queued) + sum(running), 0) from fairlead.counts
where definition_id = (select id from fairlead.job_definitions where key = %s)
"""
_RATE = """
select count(*) / extract(epoch from max(j.finished_at) - min(j.started_at))
from fairlead.job_records j where j.correlation_id = %s
"""


async def measure_rates(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second of a definition whose rate is far from full."""
    note = f"one worker, {JOBS:,} jobs; limit: the same jobs of a definition without a rate, taking turns"
    return await _compare("rates", "rated", url, settings, progress, note=note)


async def measure_keys(url: str, settings: Settings, progress: Progress) -> Measure:
    """Jobs per second of a definition that runs one job of each key at a time."""
    note = f"one worker, {JOBS:,} jobs of {KEYS:,} keys; limit: the same jobs of a definition without keys, taking turns"
    return await _compare("keys", "keyed", url, settings, progress, note=note)


async def _compare(
    name: str, definition: str, url: str, settings: Settings, progress: Progress, *, note: str
) -> Measure:
    values, limits = [], []
    async with open_drain_bench(settings) as fl:
        for number in range(1, ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            await settle_server(url)
            limits.append(await _drain(fl, settings, "noop"))
            values.append(await _drain(fl, settings, definition))
    return compare(name, values, limits, unit="jobs/s", note=note)


async def _drain(fl: Fairlead, settings: Settings, definition: str) -> float:
    """Enqueue the jobs, then start a worker; jobs per second by the database's clock."""
    mark = uuid4().hex
    await fl.enqueue_many(
        [
            NewJob(definition=definition, tenant=TENANT, correlation_id=mark, payload={"customer": n % KEYS})
            for n in range(JOBS)
        ]
    )

    async def is_drained() -> bool:
        [(left,)] = await fl.database.transact(lambda tx: tx.values(_LEFT, [definition]))
        return int(left) == 0

    async with run_workers(settings):
        await poll_until(is_drained)
    [(rate,)] = await fl.database.transact(lambda tx: tx.values(_RATE, [mark]))
    return float(rate)
