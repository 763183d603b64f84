"""Workers that run jobs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from fairlead.actions import system
from fairlead.actions.system import RegisteredWorker
from fairlead.model.access import Permission
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.paging import PageQuery, list_page
from fairlead.server.views import Listing

router = APIRouter(route_class=GuardedRoute, tags=["system"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_WORKERS, everywhere=True))]


@router.get("/admin/workers")
async def list_workers(query: Annotated[PageQuery, Query()], caller: Reader) -> Listing[RegisteredWorker]:
    """Workers, by id."""
    async with caller.transaction() as tx:
        found = await system.list_workers(
            tx,
            caller.principal,
            lease_seconds=caller.fl.settings.lease_seconds,
            after=query.after,
            limit=query.limit,
        )
    return list_page(found, lambda one: one.worker_id)
