"""Workers that run jobs."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from fairlead.actions import system
from fairlead.model.access import Permission
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.paging import PageQuery, page_of
from fairlead.server.views import ListOf, View

router = APIRouter(route_class=GuardedRoute, tags=["system"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_WORKERS, everywhere=True))]


class WorkerView(View):
    """A worker; `stale` if it was not seen for more than two lease periods."""

    worker_id: str
    tenant_id: UUID | None
    tenant: str | None
    hostname: str
    version: str
    queues: list[str]
    started_at: datetime
    last_seen_at: datetime
    running_count: int
    concurrency: int
    metadata: Any
    stale: bool


@router.get("/admin/workers")
async def list_workers(query: Annotated[PageQuery, Query()], caller: Reader) -> ListOf[WorkerView]:
    """Workers, by id."""
    async with caller.transaction() as tx:
        found = await system.list_workers(
            tx,
            caller.principal,
            lease_seconds=caller.fl.settings.lease_seconds,
            after=query.after,
            limit=query.limit,
        )
    return page_of(WorkerView, found, lambda one: one.worker_id)
