"""The system: its gate, its checks, and the queue by tenant."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query

from fairlead.actions import checks, system
from fairlead.model.access import Permission
from fairlead.model.finding import Verdict
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.paging import PageQuery, page_of
from fairlead.server.views import Body, ListOf, View

router = APIRouter(route_class=GuardedRoute, tags=["system"])

Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_SYSTEM, everywhere=True))]
QueueReader = Annotated[Caller, Depends(Requires(Permission.READ_QUEUE, everywhere=True))]


class GateBody(Body):
    """Whether workers may claim jobs, and a note."""

    online: bool
    note: str | None = None


class GateView(View):
    """The system's gate: while it is not online, workers claim no jobs."""

    online: bool
    note: str | None
    changed_by: str | None
    changed_at: datetime


class TenantQueueView(View):
    """A tenant's jobs in the queue."""

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
    """A check's verdict (`ok`, `warn` or `fail`), its detail, advice, and measured value."""

    check: str
    verdict: Verdict
    detail: str
    advice: str
    value: float | None


@router.get("/admin/checks")
async def show_checks(caller: Manager) -> ListOf[CheckView]:
    """Run the checks of the database and the fleet now; `fairlead doctor` runs them, too."""
    async with caller.transaction(as_system=True) as tx:
        found = await checks.list_checks(tx, caller.principal)
    return ListOf(items=[CheckView.of(one) for one in found])


@router.get("/admin/system")
async def show(caller: Manager) -> GateView:
    """The system's gate."""
    async with caller.transaction() as tx:
        return GateView.of(await system.get_gate(tx, caller.principal))


@router.put("/admin/system")
async def change(body: GateBody, caller: Manager) -> GateView:
    """Open or close the system's gate. Running jobs continue."""
    async with caller.transaction() as tx:
        gate = await system.change_gate(tx, caller.principal, online=body.online, note=body.note)
    return GateView.of(gate)


@router.get("/admin/queue")
async def queue(query: Annotated[PageQuery, Query()], caller: QueueReader) -> ListOf[TenantQueueView]:
    """The queue by tenant, ordered by slug."""
    async with caller.transaction() as tx:
        found = await system.list_queues(tx, caller.principal, after=query.after, limit=query.limit)
    return page_of(TenantQueueView, found, lambda one: one.tenant)
