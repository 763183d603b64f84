"""Sources: brokers whose messages become events; pause and resume them."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import sources
from fairlead.model.access import Permission
from fairlead.model.event_source import SourceState
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_SOURCES))]
Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_SYSTEM, everywhere=True))]

ROWS = 200


@router.get("/sources")
async def list_sources(request: Request, visit: Reader) -> Response:
    """The sources, by name."""
    after = request.query_params.get("after", "")
    async with visit.transaction() as tx:
        found = await sources.list_sources(tx, visit.principal, after=after, limit=ROWS)
    return visit.page(
        "sources.html",
        rows=found,
        failing=[one for one in found if one.state is SourceState.FAILING],
        stopped=[one for one in found if one.state is SourceState.STOPPED],
        after=after,
        next=None if found.last is None else found.last.name,
    )


@router.post("/sources/{source}/pause")
async def pause(source: str, visit: Manager) -> Response:
    """Stop consuming."""
    async with visit.transaction() as tx:
        await sources.pause(tx, visit.principal, source)
    return visit.respond(
        "Paused: its messages wait in the broker.", undo=visit.to(f"/sources/{source}/resume")
    )


@router.post("/sources/{source}/resume")
async def resume(source: str, visit: Manager) -> Response:
    """Consume again."""
    async with visit.transaction() as tx:
        await sources.resume(tx, visit.principal, source)
    return visit.respond("Resumed: messages become events again.")
