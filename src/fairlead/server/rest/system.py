"""The system: its gate, and every tenant's part of the queue."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from fairlead.actions import checks, system
from fairlead.model.access import Permission
from fairlead.model.finding import Verdict
from fairlead.server.auth import Caller, Guarded, Requires
from fairlead.server.paging import PageQuery, page_of
from fairlead.server.views import Body, ListOf, View

router = APIRouter(route_class=Guarded, tags=["system"])

Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_SYSTEM, everywhere=True))]
QueueReader = Annotated[Caller, Depends(Requires(Permission.READ_QUEUE, everywhere=True))]


class GateBody(Body):
    """Whether jobs are to be claimed, and why not."""

    online: bool
    note: str | None = None


class GateView(View):
    """The system's gate: while it is not online, nothing is claimed."""

    online: bool
    note: str | None
    changed_by: str | None
    changed_at: datetime


class TenantQueueView(View):
    """A tenant's part of the queue."""

    tenant_id: UUID
    tenant: str
    name: str
    weight: int
    max_running: int | None
    paused_at: datetime | None
    queued: int
    running: int
    failed: int
    dead_letter: int
    oldest_queued_seconds: float | None


class CheckView(View):
    """What a check found: `ok`, `warn` or `fail`, what was seen, what to do, and the figure behind it."""

    check: str
    verdict: Verdict
    detail: str
    advice: str
    value: float | None


@router.get("/admin/checks")
async def show_checks(caller: Manager) -> ListOf[CheckView]:
    """What is wrong with the database or the fleet, examined now: what `fairlead doctor` looks at all the time."""
    async with caller.transaction(as_system=True) as tx:
        found = await checks.list_checks(tx, caller.principal)
    return ListOf(items=[CheckView.of(one) for one in found])


@router.get("/admin/system")
async def show(caller: Manager) -> GateView:
    """The system's gate."""
    async with caller.transaction() as tx:
        return GateView.of(await system.gate(tx, caller.principal))


@router.put("/admin/system")
async def change(body: GateBody, caller: Manager) -> GateView:
    """Open or close the system's gate. What runs goes on."""
    async with caller.transaction() as tx:
        gate = await system.change_gate(tx, caller.principal, online=body.online, note=body.note)
    return GateView.of(gate)


@router.get("/admin/queue")
async def queue(query: Annotated[PageQuery, Query()], caller: QueueReader) -> ListOf[TenantQueueView]:
    """Every tenant's part of the queue, by slug."""
    async with caller.transaction() as tx:
        found = await system.queue(tx, caller.principal, after=query.after, limit=query.limit)
    return page_of(TenantQueueView, found, lambda one: one.tenant)
