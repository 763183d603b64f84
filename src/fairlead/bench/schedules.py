"""A scheduler's round among many schedules, and the dispatch of events to jobs."""

import time

from fairlead.actions import triggers
from fairlead.bench.run import TENANT, Measure, Progress, compare, open_bench
from fairlead.db.scratch import settle_server
from fairlead.db.sql import queries_beside
from fairlead.library.app import Fairlead
from fairlead.runtime.trigger_loops import Dispatcher, Scheduler
from fairlead.settings import Settings

ROUNDS = 5
DUE = 100
ROWS = 10_000
JOBS = 2000

EVENT = "bench.greeting"

sql = queries_beside(__file__)


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """Milliseconds of a round with 100 due schedules among 10,000, compared with a round without the others."""
    values, limits = [], []
    async with open_bench(settings) as fl:
        await _add_schedules(fl, "due", DUE)
        for number in range(ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            await fl.database.transact(lambda tx: tx.run(sql.remove, {"label": "later"}))
            limit = await _measure_round(fl, url)
            await _add_schedules(fl, "later", ROWS)
            value = await _measure_round(fl, url)
            if number:  # the first round warms both up
                limits.append(limit)
                values.append(value)
    note = f"a round with {DUE} of {ROWS + DUE:,} schedules due; limit: the same {DUE} with no others"
    return compare("schedules", values, limits, unit="ms", note=note)


async def _add_schedules(fl: Fairlead, label: str, count: int) -> None:
    values = {"label": label, "count": count, "tenant": TENANT}
    await fl.database.transact(lambda tx: tx.run(sql.add, values))


async def _measure_round(fl: Fairlead, url: str) -> float:
    await settle_server(url)
    await fl.database.transact(lambda tx: tx.run(sql.come, {"label": "due"}))
    scheduler = Scheduler(fl.database, fl.catalog, poll_seconds=60)
    begun = time.perf_counter()
    await scheduler()
    return (time.perf_counter() - begun) * 1000


async def measure_events(url: str, settings: Settings, progress: Progress) -> Measure:
    """Dispatched events per second, compared with single enqueues of the same jobs."""
    values, limits = [], []
    async with open_bench(settings) as fl:
        async with fl.transaction() as tx:
            await triggers.create(tx, fl.principal, TENANT, _build_trigger())
        for number in range(ROUNDS + 1):
            progress(f"round {number} of {ROUNDS}")
            async with fl.transaction() as tx:
                for n in range(JOBS):
                    await fl.emit(EVENT, tenant=TENANT, data={"n": number * JOBS + n}, tx=tx.connection)
            await settle_server(url)
            limit, value = await _measure_enqueues(fl), await _measure_dispatch(fl)
            if number:
                limits.append(limit)
                values.append(value)
    note = (
        "each event creates a job by one trigger, with a window; limit: a loop of fl.enqueue of the same jobs"
    )
    return compare("events", values, limits, unit="events/s", note=note)


def _build_trigger() -> dict[str, object]:
    return {
        "label": "Greet",
        "trigger_type": "event",
        "event_name": EVENT,
        "definition_key": "greet",
        "payload_template": {"name": "somebody", "n": "{{event.n}}"},
    }


async def _measure_enqueues(fl: Fairlead) -> float:
    begun = time.perf_counter()
    for n in range(JOBS):
        await fl.enqueue("greet", tenant=TENANT, payload={"name": "somebody", "n": n})
    return JOBS / (time.perf_counter() - begun)


async def _measure_dispatch(fl: Fairlead) -> float:
    dispatcher = Dispatcher(fl.database, fl.catalog, poll_seconds=60)
    begun = time.perf_counter()
    while not await dispatcher():
        pass
    return JOBS / (time.perf_counter() - begun)
