"""Tenants compared, and one tenant with its settings, quotas and gate."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from msgspec.structs import replace

from fairlead.actions import fairness, quotas, system, tenants
from fairlead.actions.fairness import FairnessReport
from fairlead.actions.system import TenantComparison
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.library.cell_tenants import add_in_cell
from fairlead.model.access import Permission, Tenant
from fairlead.model.flow import format_rate
from fairlead.model.page import Page
from fairlead.model.quota import Quota
from fairlead.model.request import unknown_tenant
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.forms import Form
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.merged_lists import list_absent, read_cells

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_QUEUE, everywhere=True))]
Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_TENANTS, everywhere=True))]

# How many tenants are compared, and how many are on a page.
MOST_COMPARED = 1000
ROWS = 100
SPANS = {"1h": 3600, "24h": 86_400}
# The colours of the tenants in the chart of run time, and the last one of all others together.
COLORS = ("accent", "running", "dead", "warn", "canceled")
NEW = {"slug": "", "name": "", "timezone": "UTC", "weight": 1, "max_running": "", "cell": ""}

QUOTAS = {
    Quota.QUEUED_JOBS: "Queued jobs",
    Quota.RUN_JOBS: "Jobs of a workflow run",
    Quota.TRIGGERS: "Triggers",
    Quota.TOKENS: "Valid tokens",
    Quota.STORED_BYTES: "Stored bytes",
    Quota.LONG_POLLS: "Open long polls",
    Quota.LIVE_SOCKETS: "Open live sockets",
    Quota.FOLLOWED_LOGS: "Followed logs",
}

# By column: what to sort by, and whether the largest comes first.
ORDERS: dict[str, tuple[Callable[[TenantComparison], Any], bool]] = {
    "tenant": (lambda one: one.queue.tenant, False),
    "backlog": (lambda one: one.queue.queued, True),
    "oldest": (lambda one: one.queue.oldest_queued_seconds or 0, True),
    "running": (lambda one: one.queue.running, True),
    "weight": (lambda one: one.queue.weight, True),
    "share": (lambda one: one.share or 0, True),
    "failures": (lambda one: (one.failure_rate or 0, one.failed), True),
    "dead": (lambda one: one.queue.dead_letter, True),
    "gate": (lambda one: one.queue.paused_at is not None, True),
}


class TenantsPageQuery(msgspec.Struct, frozen=True):
    """The URL's parameters."""

    q: str
    sort: str
    turned: bool
    span: str
    page: int
    # the order of the rows at the first load, kept while figures change
    top: tuple[str, ...]

    @classmethod
    def of(cls, request: Request) -> "TenantsPageQuery":
        """Read the URL; invalid parameters are ignored."""
        given = request.query_params
        sort = given.get("sort", "")
        number = given.get("page", "")
        return cls(
            q=given.get("q", "")[:100].strip(),
            sort=sort.removeprefix("-") if sort.removeprefix("-") in ORDERS else "tenant",
            turned=sort.startswith("-"),
            span=given["span"] if given.get("span") in SPANS else "1h",
            page=int(number) if number.isdecimal() and len(number) <= 4 else 0,
            top=tuple(one for one in given.get("top", "").split(",") if one),
        )

    def query(self, **others: Any) -> dict[str, Any]:
        """The URL's parameters, with some replaced."""
        sort = ("-" if self.turned else "") + self.sort
        own = {
            "q": self.q,
            "sort": None if sort == "tenant" else sort,
            "span": None if self.span == "1h" else self.span,
        }
        return own | others

    def sorted_by(self, column: str) -> str:
        """The sort parameter for a click on a column; the current column is reversed."""
        return f"-{column}" if column == self.sort and not self.turned else column

    def direction(self, column: str) -> str:
        """The value of aria-sort for a column."""
        if column != self.sort:
            return "none"
        return "descending" if ORDERS[column][1] != self.turned else "ascending"

    def matches(self, one: TenantComparison) -> bool:
        """Whether a tenant has the searched words in its slug or name."""
        words = self.q.lower()
        return words in one.queue.tenant or words in one.queue.name.lower()

    def rows(self, parts: list[TenantComparison]) -> list[TenantComparison]:
        """The matching tenants, sorted; a refresh keeps the order of the first load."""
        found = [one for one in parts if self.matches(one)]
        value, largest_first = ORDERS[self.sort]
        found.sort(key=value, reverse=largest_first != self.turned)
        if self.top:
            place = {slug: number for number, slug in enumerate(self.top)}
            found.sort(key=lambda one: place.get(one.queue.tenant, len(place)))
        return found


@router.get("/tenants")
async def list_tenants(request: Request, visit: Reader) -> Response:
    """All tenants compared."""
    return await _render_list(request, visit)


async def _render_list(
    request: Request, visit: Visit, *, given: Mapping[str, Any] = NEW, error: FairleadError | None = None
) -> Response:
    wanted = TenantsPageQuery.of(request)

    async def read(tx: Tx) -> Page[TenantComparison]:
        found = await system.compare_tenants(
            tx, visit.principal, seconds=SPANS[wanted.span], limit=MOST_COMPARED
        )
        absent = await list_absent(visit, tx)
        return found.with_rows(one for one in found if one.queue.tenant_id not in absent)

    cells = await read_cells(visit, read)
    parts = Page(
        (replace(one, cell=cell or None) for cell, page in cells for one in page),
        more=any(page.more for _, page in cells),
    )
    # time is shared fairly within a cell
    fair = None if visit.is_for_all_cells else await _compare_hours(visit)
    rows = wanted.rows(parts)
    shown = rows[wanted.page * ROWS : (wanted.page + 1) * ROWS]
    return visit.page(
        "tenants.html",
        status=200 if error is None else 422,
        wanted=wanted,
        rows=shown,
        matching=len(rows),
        most=len(parts) if parts.more else None,
        more=len(rows) > (wanted.page + 1) * ROWS,
        spans=list(SPANS),
        fair=fair,
        fair_chart=None if fair is None else _draw_fairness(fair),
        cells=[(name, name) for name in sorted(visit.fl.cells.by_name)] if visit.is_for_all_cells else [],
        home_cell=next((one.name for one in visit.fl.cells.by_name.values() if one.is_home), ""),
        fair_colors=COLORS,
        given=given,
        error=error,
    )


async def _compare_hours(visit: Visit) -> FairnessReport:
    async with visit.transaction() as tx:
        return await fairness.compare_hours(tx, visit.principal)


def _draw_fairness(fair: FairnessReport) -> list[list[float]]:
    """The hours, then for each drawn tenant its percent of each hour's run time, then those of all others together.

    There is a row for each colour, also if fewer tenants ran: a drawn chart cannot get more rows.
    """
    drawn = [[0.0] * len(fair.hours) for _ in COLORS[1:]]
    for row, one in zip(drawn, fair.tenants, strict=False):
        row[:] = [round(100 * one.hourly.get(hour, 0.0), 1) for hour in fair.hours]
    others = [
        max(0.0, round(100 - sum(row[at] for row in drawn), 1))
        if any(hour in one.hourly for one in fair.tenants)
        else 0.0
        for at, hour in enumerate(fair.hours)
    ]
    return [[hour.timestamp() for hour in fair.hours], *drawn, others]


@router.post("/tenants")
async def add(request: Request, visit: Manager) -> Response:
    """Create a tenant."""
    form = Form(await visit.form())
    values = {"slug": form.text("slug"), "name": form.some_text("name"), **_read_values(form)}
    try:
        form.check()
        made = await _add_tenant(visit, form.some_text("cell"), values)
    except FairleadError as error:
        if not error.faults:
            raise
        return await _render_list(request, visit, given={**NEW, **form.given}, error=error)
    return visit.respond(f"Tenant {made.slug} created.", to=visit.to(f"/tenants/{made.slug}"))


async def _add_tenant(visit: Visit, cell: str | None, values: dict[str, Any]) -> Tenant:
    if cell is None or await visit.fl.cells.member(cell) is visit.fl:
        async with visit.transaction() as tx:
            return await tenants.add(tx, visit.principal, **values)
    slug, said = values["slug"], {name: value for name, value in values.items() if name != "slug"}
    return await add_in_cell(visit.fl, visit.principal, cell, slug, said)


@router.get("/tenants/{slug}")
async def show(slug: str, visit: Reader) -> Response:
    """One tenant."""
    return await _render_tenant(slug, visit)


async def _render_tenant(
    slug: str, visit: Visit, *, given: Mapping[str, Any] | None = None, error: FairleadError | None = None
) -> Response:
    async with visit.transaction() as tx:
        tenant = await _require_tenant(tx, visit, slug)
        parts = await system.compare_tenants(tx, visit.principal, seconds=SPANS["24h"], limit=MOST_COMPARED)
        uses = await quotas.list_uses(tx, visit.principal, tenant.id)
    return visit.page(
        "tenant.html",
        status=200 if error is None else 422,
        tenant=tenant,
        part=next((one for one in parts if one.queue.tenant_id == tenant.id), None),
        uses=uses,
        quota_names=QUOTAS,
        given=_as_fields(tenant) | dict(given or {}),
        error=error,
    )


@router.post("/tenants/{slug}")
async def change(slug: str, visit: Manager) -> Response:
    """Change a tenant's name, zone, weight or limits."""
    form = Form(await visit.form())
    values = {"name": form.text("name"), "rate": form.some_rate("rate"), **_read_values(form)}
    try:
        form.check()
        async with visit.transaction() as tx:
            await tenants.change(tx, visit.principal, slug, values)
    except FairleadError as error:
        if not error.faults:
            raise
        return await _render_tenant(slug, visit, given=form.given, error=error)
    return visit.respond("Saved.", to=visit.to(f"/tenants/{slug}"))


@router.post("/tenants/{slug}/quotas")
async def change_quotas(slug: str, visit: Manager) -> Response:
    """Change a tenant's quotas; an empty field means the default from the settings."""
    form = Form(await visit.form())
    values = {quota.value: form.some_whole(f"quotas.{quota}") for quota in Quota}
    try:
        form.check()
        async with visit.transaction() as tx:
            await tenants.change(tx, visit.principal, slug, {"quotas": values})
    except FairleadError as error:
        if not error.faults:
            raise
        return await _render_tenant(slug, visit, given=form.given, error=error)
    return visit.respond("Saved.", to=visit.to(f"/tenants/{slug}"))


@router.post("/tenants/{slug}/pause")
async def pause(slug: str, visit: Manager) -> Response:
    """Close a tenant's gate."""
    note = Form(await visit.form()).some_text("note")
    async with visit.transaction() as tx:
        await tenants.pause(tx, visit.principal, slug, note=note)
    return visit.respond("Paused: no new jobs start.", undo=visit.to(f"/tenants/{slug}/resume"))


@router.post("/tenants/{slug}/resume")
async def resume(slug: str, visit: Manager) -> Response:
    """Open a tenant's gate."""
    async with visit.transaction() as tx:
        await tenants.pause(tx, visit.principal, slug, paused=False)
    return visit.respond("Processing on: jobs start again.")


async def _require_tenant(tx: Tx, visit: Visit, slug: str) -> Tenant:
    found = await tenants.find(tx, visit.principal, slug)
    if found is None:
        raise unknown_tenant(slug)
    return found


def _read_values(form: Form) -> dict[str, Any]:
    return {
        "timezone": form.text("timezone"),
        "weight": form.whole("weight"),
        "max_running": form.some_whole("max_running"),
    }


def _as_fields(tenant: Tenant) -> dict[str, Any]:
    values = {name: getattr(tenant, name) for name in tenants.CHANGEABLE}
    values["rate"] = None if tenant.rate is None else format_rate(tenant.rate)
    values |= {f"quotas.{quota}": tenant.quotas.get(quota) for quota in Quota}
    return {name: "" if value is None else value for name, value in values.items()}
