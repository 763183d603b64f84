"""What was done, in figures."""

import csv
import io
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import usage
from fairlead.model.access import Permission
from fairlead.server.auth import Guarded
from fairlead.server.console.visit import Visit, Visits
from fairlead.store.usage import Flow

router = APIRouter(route_class=Guarded)

Reader = Annotated[Visit, Depends(Visits(Permission.READ_USAGE))]

STEPS = ("hour", "day")
HOURS = 24
# What a spreadsheet would take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(slots=True)
class Total:
    """How many jobs ended how: those that were retried by hand are taken off again where they had ended."""

    succeeded: int = 0
    failed: int = 0
    dead_letter: int = 0
    canceled: int = 0

    def add(self, flow: Flow) -> None:
        """Count these too."""
        self.succeeded += flow.succeeded
        self.failed += flow.failed
        self.dead_letter += flow.dead_letter
        self.canceled += flow.canceled

    @property
    def troubled(self) -> int:
        return self.failed + self.dead_letter

    @property
    def troubled_percent(self) -> float | None:
        """Of those that ran to an end, how many went wrong."""
        ended = self.succeeded + self.troubled
        return None if ended <= 0 else 100 * max(0, self.troubled) / ended


@router.get("/usage")
async def shown(request: Request, visit: Reader) -> Response:
    """The last day: how much of what, and when."""
    by = _by(request)
    async with visit.transaction() as tx:
        hourly = await usage.flows(tx, visit.principal, by="hour")
        flows = hourly if by == "hour" else await usage.flows(tx, visit.principal, by=by)
    return visit.page(
        "usage.html",
        by=by,
        steps=STEPS,
        utc=UTC,
        flows=flows,
        chart=charted(hourly, datetime.now(UTC)),
        total=_summed(hourly),
        definitions=sorted(
            _totals(hourly).items(), key=lambda one: (-one[1].succeeded - one[1].troubled, one[0])
        ),
    )


@router.get("/usage.csv")
async def table(request: Request, visit: Reader) -> Response:
    """The same, for a spreadsheet."""
    async with visit.transaction() as tx:
        flows = await usage.flows(tx, visit.principal, by=_by(request))
    name = f"usage-{visit.tenant_slug or 'all'}-{datetime.now(UTC):%Y-%m-%d}.csv"
    return Response(
        as_csv(flows),
        media_type="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def charted(flows: Iterable[Flow], now: datetime) -> list[list[int]]:
    """By hour, up to this one: when, how many succeeded, how many went wrong. Hours without any are there too."""
    last = now.replace(minute=0, second=0, microsecond=0)
    # an hour more at both ends, or half of the outermost bars would be cut off
    hours = [last - timedelta(hours=back) for back in range(HOURS + 1, -2, -1)]
    by_hour = {hour: Total() for hour in hours}
    for flow in flows:
        if flow.starts_at in by_hour:
            by_hour[flow.starts_at].add(flow)
    return [
        [int(hour.timestamp()) for hour in hours],
        [max(0, by_hour[hour].succeeded) for hour in hours],
        [max(0, by_hour[hour].troubled) for hour in hours],
    ]


def as_csv(flows: Iterable[Flow]) -> str:
    """A line for each, under the names of the columns."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\r\n")
    lines.writerow([field.name for field in fields(Flow)])
    for flow in flows:
        lines.writerow([_cell(value) for value in astuple(flow)])
    return written.getvalue()


def _cell(value: object) -> object:
    """A value that a spreadsheet reads as what it is: never as a formula."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


def _totals(flows: Iterable[Flow]) -> dict[str, Total]:
    """By definition."""
    found: dict[str, Total] = {}
    for flow in flows:
        found.setdefault(flow.definition_key, Total()).add(flow)
    return found


def _summed(flows: Iterable[Flow]) -> Total:
    total = Total()
    for flow in flows:
        total.add(flow)
    return total


def _by(request: Request) -> str:
    asked = request.query_params.get("by", "")
    return asked if asked in STEPS else STEPS[0]
