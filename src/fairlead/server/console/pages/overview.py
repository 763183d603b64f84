"""The home page: whether everything is fine, what is slow, and what is busy."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import overview, stats
from fairlead.actions.stats import ThroughputStep
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.job import JobStatus
from fairlead.model.overview import Overview, OverviewProblem, ProblemKind, merge_overviews
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.pages.jobs import RANGES
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.merged_lists import sum_cells

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]


@router.get("/overview")
async def show(request: Request, visit: Reader) -> Response:
    """The overview."""
    given = request.query_params.get("range", "")
    span = given if given in RANGES else "1h"
    seconds, step = RANGES[span]

    async def read(tx: Tx) -> tuple[Overview, list[ThroughputStep]]:
        found = await overview.get_overview(tx, visit.principal)
        return found, await stats.get_throughput(tx, visit.principal, seconds=seconds, step=step)

    found, flow = await sum_cells(
        visit,
        read,
        lambda cells: (
            merge_overviews([one for one, _ in cells]),
            stats.add_throughput([flow for _, flow in cells]),
        ),
        as_system=True,
    )
    return visit.page(
        "overview.html",
        found=found,
        link=lambda problem: find_link(visit, problem),
        flow=[
            [int(one.at.timestamp()) for one in flow],
            [one.succeeded for one in flow],
            [one.failed for one in flow],
        ],
        span=span,
        ranges=list(RANGES),
    )


def find_link(visit: Visit, problem: OverviewProblem) -> tuple[str, str] | None:
    """The URL and the text of the page where the problem can be solved; None if the visitor may not open it."""
    if problem.kind is ProblemKind.NEW_ERROR:
        return _to(visit, problem, f"/errors/{problem.subject}"), "Open the error"
    if problem.kind is ProblemKind.NO_WORKER:
        return _to(
            visit, problem, "/jobs", status=JobStatus.QUEUED, definition=problem.subject
        ), "Show the jobs"
    for kinds, permission, path, text in _PAGES:
        if problem.kind in kinds:
            name = problem.tenant if path == "/tenants/" else problem.subject
            there = path + (quote(name or "", safe=":") if path.endswith("/") else "")
            return (_to(visit, problem, there), text) if visit.may(permission) else None
    return _find_limit_link(visit, problem)


_PAGES = (
    ({ProblemKind.SYSTEM_PAUSED}, Permission.MANAGE_SYSTEM, "/system", "Resume"),
    ({ProblemKind.CHECK}, Permission.MANAGE_SYSTEM, "/system", "Open the checks"),
    ({ProblemKind.WORKER_SILENT}, Permission.READ_WORKERS, "/workers/", "Open the worker"),
    ({ProblemKind.TRIGGER_FAILING}, Permission.READ_TRIGGERS, "/triggers/", "Open the trigger"),
    (
        {ProblemKind.NO_AGENT, ProblemKind.AGENT_SILENT, ProblemKind.HOST_PAUSED},
        Permission.READ_HOSTS,
        "/hosts/",
        "Open the host",
    ),
    (
        {ProblemKind.DEFINITION_PAUSED},
        Permission.READ_DEFINITIONS,
        "/definitions/",
        "Open the definition",
    ),
    (
        {ProblemKind.TENANT_PAUSED, ProblemKind.UNFAIR_SHARE},
        Permission.MANAGE_TENANTS,
        "/tenants/",
        "Open the tenant",
    ),
)


def _find_limit_link(visit: Visit, problem: OverviewProblem) -> tuple[str, str] | None:
    if problem.subject is not None:
        return _to(visit, problem, f"/definitions/{problem.subject}"), "Open the definition"
    if visit.may(Permission.MANAGE_TENANTS):
        return _to(visit, problem, f"/tenants/{problem.tenant}"), "Open the tenant"
    return _to(visit, problem, "/jobs", status=JobStatus.QUEUED), "Show the jobs"


def _to(visit: Visit, problem: OverviewProblem, path: str, **query: str | None) -> str:
    """A page's URL; of all tenants' problems, in the tenant that the problem is about."""
    if visit.is_super and visit.tenant_slug is None and problem.tenant is not None:
        return visit.to(path, **query, tenant=problem.tenant)
    return visit.to(path, **query)
