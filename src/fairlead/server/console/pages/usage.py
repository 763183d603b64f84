"""The usage of runs, in figures and charts."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import usage
from fairlead.model.access import Permission
from fairlead.model.usage import By, Usage, UsageFigures, sum_usage
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.merged_lists import sum_cells
from fairlead.server.rest.usage import csv_response

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_USAGE))]

K = TypeVar("K")

# By step: the period.
SPANS = {By.HOUR: "24 hours", By.DAY: "30 days", By.MONTH: "12 months"}
# Milliseconds of each unit, the longest first.
UNITS = (("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))


class Chart(msgspec.Struct, frozen=True):
    """The data of a chart: times, then each series."""

    rows: list[list[float]]
    unit: str = ""


@router.get("/usage")
async def show_usage(request: Request, visit: Reader) -> Response:
    """The usage page."""
    by = _read_step(request)
    report = await _read_report(visit, by)
    steps = _group_usage(report.items, lambda one: one.starts_at.timestamp())
    return visit.page(
        "usage.html",
        by=by,
        spans=SPANS,
        timezone=report.timezone,
        total=report.totals,
        charts=build_charts(report.period.starts, steps),
        steps=[
            (start, steps[start.timestamp()])
            for start in reversed(report.period.starts)
            if start.timestamp() in steps
        ],
        definitions=sorted(
            _group_usage(report.items, lambda one: one.definition_key).items(),
            key=lambda one: (-one[1].run_ms, -one[1].runs, one[0]),
        ),
    )


@router.get("/usage.csv")
async def download_csv(request: Request, visit: Reader) -> Response:
    """The usage as CSV."""
    report = await _read_report(visit, _read_step(request))
    return csv_response(report, whose=visit.tenant_slug)


async def _read_report(visit: Visit, by: By) -> usage.UsageReport:
    return await sum_cells(
        visit, lambda tx: usage.report_usage(tx, visit.principal, by=by), usage.add_reports
    )


def build_charts(starts: Sequence[datetime], steps: dict[float, UsageFigures]) -> dict[str, Chart]:
    """The charts of runs, run time and cost, including steps without runs."""
    at = [start.timestamp() for start in starts]
    found = [steps.get(moment, UsageFigures()) for moment in at]
    unit, size = next((one for one in UNITS if any(used.run_ms >= one[1] for used in found)), UNITS[-1])

    def chart(*series: Callable[[UsageFigures], float], unit: str = "") -> Chart:
        return Chart([at, *(list(map(one, found)) for one in series)], unit)

    return {
        "runs": chart(lambda used: used.succeeded, lambda used: used.wrong),
        "run_time": chart(lambda used: round(used.run_ms / size, 3), unit=unit),
        "cost": chart(lambda used: used.cost_cents / 100),
    }


def _group_usage(items: Iterable[Usage], key: Callable[[Usage], K]) -> dict[K, UsageFigures]:
    groups: dict[K, list[Usage]] = defaultdict(list)
    for one in items:
        groups[key(one)].append(one)
    return {name: sum_usage(group) for name, group in groups.items()}


def _read_step(request: Request) -> By:
    asked = request.query_params.get("by", "")
    return By(asked) if asked in SPANS else By.HOUR
