"""The system's gate, versions, and checks."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from fairlead.actions import doctor, limits, system
from fairlead.db import migrate
from fairlead.errors import FairleadError
from fairlead.model.access import Permission
from fairlead.model.finding import Finding
from fairlead.model.flow import format_rate
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.forms import Form
from fairlead.server.console.visit import RequiresVisit, Visit
from fairlead.server.merged_lists import sum_cells

router = APIRouter(route_class=GuardedRoute)

Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_SYSTEM, everywhere=True))]

MOST_WORKERS = 1000


@router.get("/system")
async def show(visit: Manager) -> Response:
    """The system's page: gate, versions and workers."""
    return await _render_system(visit)


async def _render_system(
    visit: Visit,
    findings: Sequence[Finding] | None = None,
    *,
    given: str | None = None,
    error: FairleadError | None = None,
) -> Response:
    outdated: FairleadError | None = None
    async with visit.transaction() as tx:
        gate = await system.get_gate(tx, visit.principal)
        rate = await limits.get_system_rate(tx, visit.principal)
        facts = await system.read_facts(tx, visit.principal)
        try:
            await migrate.check_connection(tx.connection, tx.schema)
        except FairleadError as found:
            outdated = found
    workers = await sum_cells(
        visit,
        lambda tx: system.list_workers(
            tx,
            visit.principal,
            lease_seconds=visit.fl.settings.lease_seconds,
            after="",
            limit=MOST_WORKERS,
        ),
        lambda cells: system.merge_workers(cells, limit=MOST_WORKERS),
    )
    return visit.page(
        "system.html",
        status=200 if error is None else 422,
        gate=gate,
        rate=rate,
        given=given if given is not None else "" if rate is None else format_rate(rate),
        error=error,
        facts=facts,
        schema=visit.fl.settings.schema,
        newest=migrate.list_migrations()[-1],
        outdated=outdated,
        alive=sum(not one.stale for one in workers),
        stale=sum(one.stale for one in workers),
        findings=findings,
    )


@router.post("/system/pause")
async def pause(visit: Manager) -> Response:
    """Close the system's gate."""
    note = Form(await visit.form()).some_text("note")
    async with visit.transaction() as tx:
        await system.change_gate(tx, visit.principal, online=False, note=note)
    return visit.respond("Paused: no new jobs start.", to=visit.to("/system"))


@router.post("/system/resume")
async def resume(visit: Manager) -> Response:
    """Open the system's gate."""
    async with visit.transaction() as tx:
        await system.change_gate(tx, visit.principal, online=True, note=None)
    return visit.respond("Processing on: jobs start again.", to=visit.to("/system"))


@router.post("/system/rate")
async def change_rate(visit: Manager) -> Response:
    """Set the system's rate; an empty field removes it."""
    form = Form(await visit.form())
    rate = form.some_rate("rate")
    try:
        form.check()
        async with visit.transaction() as tx:
            await limits.set_rate(tx, visit.principal, rate)
    except FairleadError as error:
        if not error.faults:
            raise
        return await _render_system(visit, given=form.text("rate"), error=error)
    return visit.respond("Saved." if rate else "The system has no rate.", to=visit.to("/system"))


@router.post("/system/checks")
async def run_checks(visit: Manager) -> Response:
    """Run the doctor's checks. They read the whole queue, so they run only on request."""
    database, settings = visit.fl.database, visit.fl.settings
    found = [one async for one in doctor.examine(database.url, settings)]
    # the check of environment variables only makes sense on the command line
    return await _render_system(visit, [one for one in found if one.check != "settings"])
