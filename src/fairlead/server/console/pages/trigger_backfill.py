"""The backfill of a schedule: the instants of a past range, a button that fires them, and how far their jobs are."""

from datetime import timedelta
from typing import Annotated
from uuid import UUID
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import backfill as backfills
from fairlead.actions import triggers
from fairlead.errors import Fault, InvalidInput, Refused
from fairlead.model.access import Permission
from fairlead.model.job import JobStatus
from fairlead.model.schedule.backfill import BackfillPreview
from fairlead.model.schedule.zone import is_known_zone
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.forms import Form
from fairlead.server.console.trigger_form import faults_of, format_moment
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_TRIGGERS))]

# How many instants the page lists.
ROWS = 100
# The range of an empty form.
USUAL = timedelta(days=1)


@router.get("/triggers/{trigger_id}/backfill")
async def show(request: Request, trigger_id: UUID, visit: Manager) -> Response:
    """The form of a range; with a range, its instants and their jobs."""
    given = dict(request.query_params)
    async with visit.transaction() as tx:
        trigger = await triggers.get(tx, visit.principal, trigger_id)
        zone = ZoneInfo(trigger.tenant_timezone if is_known_zone(trigger.tenant_timezone) else "UTC")
        form = Form(given)
        since, until = form.some_moment("from", zone), form.some_moment("to", zone)
        now = (await triggers.read_clock(tx)).replace(microsecond=0)
        found: BackfillPreview | None = None
        faults = list(form.faults)
        if since is not None and not faults:
            try:
                found = await backfills.preview_backfill(
                    tx, visit.principal, trigger_id, since=since, until=until, count=ROWS
                )
            except Refused as error:
                faults = faults_of(error)
    return visit.page(
        "trigger_backfill.html",
        trigger=trigger,
        found=found,
        ended=0 if found is None else _count_ended(found),
        faults=[" ".join(filter(None, one)) for one in faults],
        since=format_moment(since or now - USUAL, zone),
        until=format_moment(until or now, zone),
    )


def _count_ended(found: BackfillPreview) -> int:
    return sum(number for status, number in found.jobs.items() if JobStatus(status).terminal)


@router.post("/triggers/{trigger_id}/backfill")
async def start(request: Request, trigger_id: UUID, visit: Manager) -> Response:
    """Fire the instants of the range that have no job."""
    form = Form(dict(request.query_params))
    since, until = form.some_moment("from", ZoneInfo("UTC")), form.some_moment("to", ZoneInfo("UTC"))
    async with visit.transaction() as tx:
        # before the range is checked, since a stranger must not learn that the trigger exists
        await triggers.get(tx, visit.principal, trigger_id)
        form.check()
        if since is None:
            raise InvalidInput("from: is required.", [Fault("from", "is required")])
        done = await backfills.backfill(
            tx, visit.principal, visit.fl.catalog, trigger_id, since=since, until=until
        )
    told = f"{visit.number(done.enqueued)} jobs enqueued." if done.enqueued else "Nothing to enqueue."
    if done.fired:
        told += f" {visit.number(done.fired)} instants had a job already."
    page = {"from": done.since.isoformat(), "to": done.until.isoformat()}
    return visit.respond(told, to=visit.to(f"/triggers/{trigger_id}/backfill", **page))
