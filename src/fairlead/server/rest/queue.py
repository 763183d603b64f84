"""The depth of the queue, for autoscalers such as KEDA."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from fairlead.actions import queue_depth
from fairlead.model.access import Permission
from fairlead.model.queue_depth import QueueDepth, add_depths
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import sum_cells
from fairlead.server.problems import PREFIX
from fairlead.server.views import Parameters, ReadableText

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["queue"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_JOBS))]


class DepthQuery(Parameters):
    """Which jobs are counted."""

    definition: ReadableText | None = Field(None, description="Only jobs of this definition, by key or id.")


@router.get("/queue/depth")
async def show_depth(query: Annotated[DepthQuery, Query()], caller: Reader) -> QueueDepth:
    """How many jobs workers run or could start now. An autoscaler divides it by the jobs that a worker runs at once.

    Of the caller's tenant. Of a super admin: of all tenants, or of the one in X-Tenant. Jobs that are due later, held back by
    a limit or a rate, paused, or bound to a host are not counted, since more workers would not start them.
    """
    read = partial(queue_depth.get_depth, principal=caller.principal, definition=query.definition)
    return await sum_cells(caller, read, add_depths, as_system=True)
