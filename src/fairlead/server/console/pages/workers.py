"""Workers, and stale ones."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import system
from fairlead.model.access import Permission
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_WORKERS, everywhere=True))]

ROWS = 200


@router.get("/workers")
async def list_workers(request: Request, visit: Reader) -> Response:
    """The workers."""
    lease = visit.fl.settings.lease_seconds
    after = request.query_params.get("after", "")
    async with visit.transaction() as tx:
        found = await system.list_workers(tx, visit.principal, lease_seconds=lease, after=after, limit=ROWS)
    alive = [one for one in found if not one.stale]
    return visit.page(
        "workers.html",
        rows=found,
        stale=[one for one in found if one.stale],
        alive=len(alive),
        running=sum(one.running_count for one in alive),
        room=sum(one.concurrency for one in alive),
        after=after,
        next=None if found.last is None else found.last.worker_id,
        stale_seconds=system.STALE_LEASES * lease,
    )
