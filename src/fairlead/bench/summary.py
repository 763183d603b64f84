"""The API's summary and pages of jobs, for a tenant with a million jobs and for one with a thousand."""

import statistics
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

from fairlead.actions import jobs, stats
from fairlead.actions.jobs import JobFilter
from fairlead.bench import backlog
from fairlead.bench.drain_tools import open_drain_bench
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.db.scratch import settle_server
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.library.app import Fairlead
from fairlead.model.access import Principal, Role
from fairlead.model.job import JobStatus
from fairlead.settings import Settings
from fairlead.store import counts, tenants

SMALL = "small"
ROWS = 1_000_000
FEW = 1000
LOOKS = 40
PAGE = 50
# the number of pages before the deep page; with few jobs the deep page is in the middle
DEEP = 999

Look = Callable[[], Awaitable[object]]

FILTERS = {
    "": JobFilter(),
    " status=queued": JobFilter(status=[JobStatus.QUEUED]),
    " status=succeeded": JobFilter(status=[JobStatus.SUCCEEDED]),
    " status=failed": JobFilter(status=[JobStatus.FAILED]),
    " q=oo": JobFilter(q="oo"),
    " q=nowhere": JobFilter(q="nowhere"),
    " status=succeeded q=oo": JobFilter(status=[JobStatus.SUCCEEDED], q="oo"),
}


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """The worst query: its milliseconds for a tenant with many jobs, compared with a tenant with few."""
    pairs: dict[str, tuple[float, float]] = {}
    async with open_drain_bench(settings) as fl:
        await fl.add_tenant(SMALL, exist_ok=True)
        for kind, fill in (("finished", backlog.add_finished), ("queued", backlog.add_queued)):
            await backlog.remove_jobs(fl)
            await fill(fl, ROWS, progress)
            await fill(fl, FEW, progress, tenant=SMALL)
            await fold_counts(fl)
            await settle_server(url)
            progress(f"reading pages of {ROWS:,} and of {FEW:,} {kind} jobs")
            many, few = await _build_queries(fl, TENANT), await _build_queries(fl, SMALL)
            pairs |= {f"{name}, {kind}": await measure_medians(many[name], few[name]) for name in many}
    worst = max(pairs, key=lambda name: pairs[name][0] / pairs[name][1])
    value, limit = pairs[worst]
    return Measure(
        "summary",
        round(value, 3),
        "ms",
        round(limit, 3),
        round(value / limit, 3),
        f"worst of {len(pairs)} queries with {ROWS:,} jobs: {worst}; limit: the same with {FEW:,}. All: "
        + "; ".join(f"{name} {one:.2f}/{other:.2f}" for name, (one, other) in pairs.items()),
    )


async def fold_counts(fl: Fairlead) -> None:
    """Fold the counts, as the watchdog does."""
    while (await fl.database.transact(counts.fold_history, unhurried=True)).more:
        pass


async def _build_queries(fl: Fairlead, tenant: str) -> dict[str, Look]:
    """The queries of a viewer of the tenant."""
    async with fl.transaction() as tx:
        tenant_id = (await tenants.get_ids(tx, [tenant]))[tenant]
        deep = min(DEEP * PAGE, (ROWS if tenant == TENANT else FEW) // 2)
        [(cursor,)] = await tx.values(
            "select id::text from fairlead.jobs where tenant_id = %s order by id desc limit 1 offset %s",
            [tenant_id, deep - 1],
        )
    viewer = Principal("bench", Role.VIEWER, tenant_id)
    looks = {"summary": _query_as_tenant(fl, tenant_id, lambda tx: stats.get_summary(tx, viewer))}
    for name, wanted in FILTERS.items():
        for page, after in (("first page", None), ("deep page", cursor)):
            looks[page + name] = _query_as_tenant(fl, tenant_id, _build_page_query(viewer, wanted, after))
    return looks


def _build_page_query(
    viewer: Principal, wanted: JobFilter, cursor: str | None
) -> Callable[[Tx], Awaitable[object]]:
    return lambda tx: jobs.list_jobs(tx, viewer, wanted, limit=PAGE, cursor=cursor)


def _query_as_tenant(fl: Fairlead, tenant_id: UUID, look: Callable[[Tx], Awaitable[object]]) -> Look:
    """The query under row-level security, as in the API."""

    async def query() -> None:
        async with fl.database.transaction(TransactionIdentity(tenant_id)) as tx:
            await look(tx)

    return query


async def measure_medians(*looks: Look) -> tuple[float, float]:
    """Milliseconds of two queries that alternate, so that both see the same load."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(LOOKS):
        for look, mine in zip(looks, took, strict=True):
            begun = time.perf_counter()
            await look()
            mine.append((time.perf_counter() - begun) * 1000)
    return statistics.median(took[0]), statistics.median(took[1])
