"""The system: its gate, its checks, and the queue by tenant."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from fairlead.actions import checks, system
from fairlead.actions.system import SystemGate, TenantQueue
from fairlead.model.access import Permission
from fairlead.model.finding import Finding, merge_findings
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import by_name, list_all, sum_cells
from fairlead.server.paging import PageQuery
from fairlead.server.views import Body, Listing

router = APIRouter(route_class=GuardedRoute, tags=["system"])

Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_SYSTEM, everywhere=True))]
QueueReader = Annotated[Caller, Depends(Requires(Permission.READ_QUEUE, everywhere=True))]


class GateBody(Body):
    """Whether workers may claim jobs, and a note."""

    online: bool
    note: str | None = None


@router.get("/admin/checks")
async def show_checks(caller: Manager) -> Listing[Finding]:
    """Run the checks of the database and the fleet now; `fairlead doctor` runs them, too."""
    found = await sum_cells(
        caller, lambda tx: checks.list_checks(tx, caller.principal), merge_findings, as_system=True
    )
    return Listing(found)


@router.get("/admin/system")
async def show(caller: Manager) -> SystemGate:
    """The system's gate."""
    async with caller.transaction() as tx:
        return await system.get_gate(tx, caller.principal)


@router.put("/admin/system")
async def change(body: GateBody, caller: Manager) -> SystemGate:
    """Open or close the system's gate. Running jobs continue."""
    async with caller.transaction() as tx:
        return await system.change_gate(tx, caller.principal, online=body.online, note=body.note)


@router.get("/admin/queue")
async def queue(query: Annotated[PageQuery, Query()], caller: QueueReader) -> Listing[TenantQueue]:
    """The queue by tenant, ordered by slug."""
    return await list_all(
        caller,
        query,
        lambda tx, page: system.list_queues(tx, caller.principal, after=page.after, limit=page.limit),
        by_name("tenant"),
    )
