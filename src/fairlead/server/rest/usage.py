"""Usage of runs, by time, definition and tenant."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import AwareDatetime

from fairlead.actions import usage
from fairlead.actions.usage import UsageReport
from fairlead.model.access import Permission
from fairlead.model.usage import By, Per
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.views import ListOf, ReadableText, View

router = APIRouter(route_class=GuardedRoute, tags=["usage"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_USAGE))]


class UsageTotalsView(View):
    """Runs (each ended attempt is one), their outcomes, time and cost."""

    runs: int
    succeeded: int
    failed: int
    dead_letter: int
    canceled: int
    retried: int
    released: int
    run_ms: int
    queue_ms: int
    cost_cents: int


class UsageView(UsageTotalsView):
    """Usage in one hour, day or month; per definition or tenant if `per` says so."""

    definition_key: str | None
    tenant: str | None
    starts_at: datetime


class UsagePage(ListOf[UsageView]):
    """Usage in the hours that begin from `since` until before `until`, and the totals."""

    items: Sequence[UsageView]
    totals: UsageTotalsView
    since: datetime
    until: datetime
    by: By
    timezone: str

    @classmethod
    def of_report(cls, report: UsageReport) -> "UsagePage":
        """The page of a report."""
        return cls(
            items=[UsageView.of(one) for one in report.items],
            totals=UsageTotalsView.of(report.totals),
            since=report.period.since,
            until=report.period.until,
            by=report.period.by,
            timezone=report.timezone,
        )


@router.get(
    "/usage",
    responses={200: {"content": {"text/csv": {}}}},
    response_model=UsagePage,
)
async def show_usage(
    request: Request,
    caller: Reader,
    *,
    since: Annotated[AwareDatetime | None, Query(alias="from")] = None,
    until: Annotated[AwareDatetime | None, Query(alias="to")] = None,
    by: By = By.HOUR,
    per: Per = Per.DEFINITION,
    timezone: ReadableText | None = None,
    form: Annotated[Literal["json", "csv"] | None, Query(alias="format")] = None,
) -> Response | UsagePage:
    """Usage by hour (by default of the last day), day (30 days) or month (a year), newest first.

    Days and months are those of `timezone`, by default the tenant's. With `format=csv` or `Accept: text/csv`, the items
    as CSV.
    """
    async with caller.transaction() as tx:
        report = await usage.report_usage(
            tx, caller.principal, by=by, per=per, since=since, until=until, timezone=timezone
        )
    if form == "csv" or (form is None and _accepts_csv(request)):
        return csv_response(report, whose=None)
    return UsagePage.of_report(report)


def csv_response(report: UsageReport, *, whose: str | None) -> Response:
    """A report as a CSV download."""
    name = f"usage-{whose or 'all'}-{report.period.until:%Y-%m-%d}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Vary": "Accept"}
    return Response(report.as_csv(), media_type="text/csv; charset=utf-8", headers=headers)


def _accepts_csv(request: Request) -> bool:
    """Whether Accept names text/csv before JSON and */*."""
    asked = [one.split(";")[0].strip() for one in request.headers.get("accept", "").split(",")]
    first = next((one for one in asked if one in ("text/csv", "application/json", "*/*")), None)
    return first == "text/csv"
