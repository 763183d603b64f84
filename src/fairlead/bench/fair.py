"""Fairness: how many jobs of a flooding tenant start before the single jobs of fifty others; the effect of weights."""

from uuid import uuid4

from fairlead.bench import backlog
from fairlead.bench.drain_tools import count_left, drain_rate, open_drain_bench, poll_until, run_workers
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.connection import Params
from fairlead.db.scratch import settle_server
from fairlead.library.app import Fairlead
from fairlead.runtime.pace import CLAIM_BATCH
from fairlead.settings import Settings

FLOOD = 200_000
TENANTS = 50
JOBS = 20_000
LIGHT, HEAVY = "light", "heavy"
WEIGHTS = {LIGHT: 1, HEAVY: 3}

_WAITING = "select count(*) from fairlead.jobs where correlation_id = %s and started_at is null"
_OVERTAKING = """
with late as (
    select max(queued_at) as asked, max(started_at) as begun, max(started_at - queued_at) as longest
    from fairlead.jobs where correlation_id = %(mark)s
)
select (select count(*) from fairlead.jobs j
        where j.correlation_id is null and j.started_at > late.asked and j.started_at <= late.begun),
    extract(epoch from late.longest) * 1000
from late
"""
# Of the half that started first, while both tenants still had queued jobs.
_HEAVY_SHARE = """
select avg((t.slug = %(heavy)s)::int)
from (
    select tenant_id from fairlead.jobs where correlation_id = %(mark)s order by started_at, id limit %(half)s
) begun join fairlead.tenants t on t.id = begun.tenant_id
"""


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """The flooder's jobs that started between the last other enqueue and the last other start."""
    async with open_drain_bench(settings) as fl:
        overtaking, longest = await _drain_flood(fl, url, settings, progress)
        await backlog.remove_jobs(fl)
        progress("draining two tenants of different weight")
        share = await _measure_heavy_share(fl, settings)
    limit = 2 * CLAIM_BATCH
    note = (
        f"limit: two claims of {CLAIM_BATCH}; {TENANTS} tenants with a job each beside {FLOOD:,} of one, the longest "
        f"waited {longest:.0f} ms; weights 1:3 shared 1:{share / (1 - share):.2f}"
    )
    return Measure("fair", overtaking, "jobs", limit, round(overtaking / limit, 3), note)


async def _drain_flood(fl: Fairlead, url: str, settings: Settings, progress: Progress) -> tuple[int, float]:
    others = await backlog.add_tenants(fl, TENANTS, name="single")
    await backlog.add_queued(fl, FLOOD, progress, tenant=TENANT)
    await settle_server(url)
    progress("draining a flood")
    mark = uuid4().hex

    async def at_full_speed() -> bool:
        return await count_left(fl) < FLOOD * 0.98

    async def all_began() -> bool:
        return await _query_value(fl, _WAITING, [mark]) == 0

    async with run_workers(settings):
        await poll_until(at_full_speed)
        for tenant in others:
            await fl.enqueue("noop", tenant=tenant, correlation_id=mark)
        await poll_until(all_began)
    [(overtaking, longest)] = await fl.database.transact(lambda tx: tx.values(_OVERTAKING, {"mark": mark}))
    return int(overtaking), float(longest)


async def _measure_heavy_share(fl: Fairlead, settings: Settings) -> float:
    for slug, weight in WEIGHTS.items():
        await fl.add_tenant(slug, weight=weight)
    mark = uuid4().hex
    await drain_rate(fl, settings, JOBS, mark, tenants=list(WEIGHTS))
    return await _query_value(fl, _HEAVY_SHARE, {"mark": mark, "heavy": HEAVY, "half": JOBS // 2})


async def _query_value(fl: Fairlead, query: str, params: Params) -> float:
    [(value,)] = await fl.database.transact(lambda tx: tx.values(query, params))
    return float(value)
