"""The overview of a tenant, or of all."""

from typing import Annotated

from fastapi import APIRouter, Depends

from fairlead.actions import overview
from fairlead.model.access import Permission
from fairlead.model.overview import Overview, merge_overviews
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import sum_cells
from fairlead.server.problems import PREFIX

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["overview"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_JOBS))]


@router.get("/overview")
async def show_overview(caller: Reader) -> Overview:
    """Whether everything is fine: problems, the worst first; what is slow, and what is busy.

    Of the caller's tenant. Of a super admin: of all tenants, or of the one in X-Tenant.
    """
    return await read_overview(caller)


async def read_overview(caller: Caller) -> Overview:
    """The overview of the caller's tenant, or of all tenants of all cells."""
    return await sum_cells(
        caller, lambda tx: overview.get_overview(tx, caller.principal), merge_overviews, as_system=True
    )
