"""Usage of runs, by time, definition and tenant."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import AwareDatetime

from fairlead.actions import usage
from fairlead.actions.usage import UsageReport
from fairlead.model.access import Permission
from fairlead.model.usage import By, Per, Usage, UsageFigures
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import sum_cells
from fairlead.server.problems import PREFIX
from fairlead.server.views import ReadableText

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["usage"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_USAGE))]


class UsagePage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage in the hours that begin from `since` until before `until`, and the totals."""

    items: Sequence[Usage]
    next_cursor: str | None = None
    totals: UsageFigures
    since: datetime
    until: datetime
    by: By
    timezone: str


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
    report = await sum_cells(
        caller,
        lambda tx: usage.report_usage(
            tx, caller.principal, by=by, per=per, since=since, until=until, timezone=timezone
        ),
        usage.add_reports,
    )
    if form == "csv" or (form is None and _accepts_csv(request)):
        return csv_response(report, whose=None)
    return UsagePage(
        items=report.items,
        totals=report.totals,
        since=report.period.since,
        until=report.period.until,
        by=report.period.by,
        timezone=report.timezone,
    )


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
