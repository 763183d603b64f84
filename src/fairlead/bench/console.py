"""The console's pages and searches, of a tenant with a million jobs and of one with a thousand."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus

from fairlead.actions import access
from fairlead.bench import backlog
from fairlead.bench.drain_tools import open_drain_bench
from fairlead.bench.live import serve_api
from fairlead.bench.run import TENANT, Measure, Progress
from fairlead.bench.summary import FEW, ROWS, SMALL, fold_counts, measure_medians
from fairlead.db.scratch import settle_server
from fairlead.library.app import Fairlead
from fairlead.model.access import Role
from fairlead.settings import Settings
from fairlead.store import tenants

DEEP = 500
_FAR_BACK = """
select j.id::text, d.key from fairlead.job_records j join fairlead.job_definitions d on d.id = j.definition_id
where j.tenant_id = %s order by j.id desc limit 1 offset %s
"""
SEARCHES = (
    "status:queued",
    "status:succeeded",
    "status:failed",
    "status:scheduled",
    "status:retrying",
    "definition:{definition}",
    "definition:{definition} status:failed",
    "error:nothing",
    "worker:nothing",
    "payload.x:nothing",
    "duration:>1h",
    "created:1h",
    "source:event",
    "key:nothing",
    "correlation:nothing",
    "{short_id}",
    "nothing",
)
PAGES = {
    "overview": "/overview",
    "errors": "/errors",
    "definition": "/definitions/{definition}",
    "triggers": "/triggers",
    "audit": "/audit",
    "usage": "/usage",
    "jobs": "/jobs",
    "new jobs": "/jobs?top={cursor}",
    "a page far back": "/jobs?cursor={cursor}",
} | {search: f"/jobs?q={quote_plus(search, safe='{}')}" for search in SEARCHES}


async def measure(url: str, settings: Settings, progress: Progress) -> Measure:
    """The worst page: its milliseconds for a tenant with many jobs, compared with a tenant with few."""
    import httpx2  # noqa: PLC0415 - every command imports this module, and only this workload needs it

    pairs: dict[str, tuple[float, float]] = {}
    async with (
        open_drain_bench(
            replace(settings, rate_limit_burst=1_000_000, max_sockets_per_caller=0, max_sockets_per_tenant=0)
        ) as fl,
        serve_api(fl) as (host, port),
        httpx2.AsyncClient(base_url=f"http://{host}:{port}/console", timeout=60) as client,
    ):
        await fl.add_tenant(SMALL, exist_ok=True)
        for kind, fill in (("finished", backlog.add_finished), ("queued", backlog.add_queued)):
            await backlog.remove_jobs(fl)
            await fill(fl, ROWS, progress)
            await fill(fl, FEW, progress, tenant=SMALL)
            await fold_counts(fl)
            await settle_server(url)
            progress(f"reading pages of {ROWS:,} and of {FEW:,} {kind} jobs")
            many, few = await _build_requests(fl, client, TENANT), await _build_requests(fl, client, SMALL)
            pairs |= {f"{name}, {kind}": await measure_medians(many[name], few[name]) for name in PAGES}
    worst = max(pairs, key=lambda name: pairs[name][0] / pairs[name][1])
    value, limit = pairs[worst]
    note = (
        f"worst of {len(pairs)} pages with {ROWS:,} jobs: {worst}; limit: the same with {FEW:,}. All: "
        + "; ".join(f"{name} {one:.1f}/{other:.1f}" for name, (one, other) in pairs.items())
    )
    return Measure("console", round(value, 2), "ms", round(limit, 2), round(value / limit, 3), note)


async def _build_requests(
    fl: Fairlead, client: Any, tenant: str
) -> dict[str, Callable[[], Awaitable[object]]]:
    """Requests for the pages, as a viewer of the tenant."""
    async with fl.transaction() as tx:
        tenant_id = (await tenants.get_ids(tx, [tenant]))[tenant]
        made = await access.create_token(
            tx, fl.principal, name="bench", role=Role.VIEWER, tenant_id=tenant_id
        )
        [(cursor, definition)] = await tx.values(_FAR_BACK, [tenant_id, DEEP])
    headers = {"Authorization": f"Bearer {made.secret}"}

    values = {"cursor": cursor, "short_id": cursor[-8:], "definition": definition}

    def look(path: str) -> Callable[[], Awaitable[object]]:
        async def time_look() -> None:
            answer = await client.get(path.format(**values), headers=headers)
            answer.raise_for_status()

        return time_look

    return {name: look(path) for name, path in PAGES.items()}
