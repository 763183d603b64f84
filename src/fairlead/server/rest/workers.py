"""Workers that run jobs."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from fairlead.actions import system
from fairlead.actions.system import RegisteredWorker
from fairlead.model.access import Permission
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import by_name, list_all
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.views import Listing

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["system"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_WORKERS, everywhere=True))]


@router.get("/admin/workers")
async def list_workers(query: Annotated[PageQuery, Query()], caller: Reader) -> Listing[RegisteredWorker]:
    """Workers, by id."""
    return await list_all(
        caller,
        query,
        lambda tx, page: system.list_workers(
            tx,
            caller.principal,
            lease_seconds=caller.fl.settings.lease_seconds,
            after=page.after,
            limit=page.limit,
        ),
        by_name("worker_id"),
    )
