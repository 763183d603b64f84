"""The system: its gate, its checks, and the queue by tenant."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query
from msgspec.structs import fields

from fairlead.actions import checks, limits, system
from fairlead.actions.system import SystemGate, TenantQueue
from fairlead.model.access import Permission
from fairlead.model.finding import Finding, merge_findings
from fairlead.model.flow import Rate
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import by_name, list_all, sum_cells
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.views import Body, Listing, derive_body

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["system"])

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


class SystemRate(msgspec.Struct, frozen=True):
    """How many jobs of all tenants may start; null: no limit."""

    rate: Rate | None


_Rate = derive_body(fields(Rate), name="RateBody")


class SystemRateBody(Body):
    """The new rate; null removes it."""

    rate: _Rate | None  # type: ignore[valid-type] # a class that is made at run time


@router.get("/admin/system/rate")
async def show_rate(caller: Manager) -> SystemRate:
    """The system's rate: how many jobs of all tenants may start."""
    async with caller.transaction() as tx:
        return SystemRate(await limits.get_system_rate(tx, caller.principal))


@router.put("/admin/system/rate")
async def change_rate(body: SystemRateBody, caller: Manager) -> SystemRate:
    """Set or remove the system's rate. It applies from the next start on."""
    rate = body.model_dump()["rate"]
    async with caller.transaction() as tx:
        return SystemRate(await limits.set_rate(tx, caller.principal, rate))


@router.get("/admin/queue")
async def queue(query: Annotated[PageQuery, Query()], caller: QueueReader) -> Listing[TenantQueue]:
    """The queue by tenant, ordered by slug."""
    return await list_all(
        caller,
        query,
        lambda tx, page: system.list_queues(tx, caller.principal, after=page.after, limit=page.limit),
        by_name("tenant"),
    )
