"""Tenants, for super admins."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from fairlead.actions import quotas, tenants
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.quota import Quota
from fairlead.model.request import unknown_tenant
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.paging import PageQuery, page_of
from fairlead.server.views import Body, ListOf, View, to_json

router = APIRouter(route_class=GuardedRoute, tags=["tenants"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_TENANTS, everywhere=True))]
UsageReader = Annotated[Caller, Depends(Requires(Permission.READ_USAGE))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_TENANTS, everywhere=True))]


class TenantBody(Body):
    """A new tenant."""

    slug: str
    name: str | None = None
    timezone: str = "UTC"
    weight: int = 1
    max_running: int | None = None
    quotas: dict[str, int | None] = Field(default_factory=dict)


class TenantPatch(Body):
    """Changes to a tenant; omitted fields keep their value. `max_running` null means no limit.

    `quotas` changes the named quotas: 0 means no limit, null the default from the settings.
    """

    name: str = ""
    timezone: str = "UTC"
    weight: int = 1
    max_running: int | None = None
    quotas: dict[str, int | None] = Field(default_factory=dict)
    paused: bool = False


class TenantView(View):
    """A tenant."""

    id: UUID
    slug: str
    name: str
    timezone: str
    weight: int
    max_running: int | None
    quotas: dict[str, int]
    paused_at: datetime | None
    paused_by: str | None
    pause_note: str | None
    created_at: datetime


class QuotaView(View):
    """A tenant's use of a quota. `allowed` null means no limit; `used` null means that each workflow run is counted separately."""

    quota: Quota
    used: int | None
    allowed: int | None
    is_own: bool


@router.get("/quotas")
async def own_quotas(caller: UsageReader) -> ListOf[QuotaView]:
    """The tenant's use of its quotas."""
    async with caller.transaction() as tx:
        found = await quotas.list_uses(tx, caller.principal, caller.tenant)
    return ListOf(items=[QuotaView.of(one) for one in found], next_cursor=None)


@router.get("/admin/tenants/{tenant}/quotas")
async def tenant_quotas(tenant: str, caller: Reader) -> ListOf[QuotaView]:
    """A tenant's use of its quotas, by id or slug."""
    async with caller.transaction() as tx:
        found = await tenants.find(tx, caller.principal, tenant)
        if found is None:
            raise unknown_tenant(tenant)
        used = await quotas.list_uses(tx, caller.principal, found.id)
    return ListOf(items=[QuotaView.of(one) for one in used], next_cursor=None)


@router.get("/admin/tenants")
async def list_tenants(query: Annotated[PageQuery, Query()], caller: Reader) -> ListOf[TenantView]:
    """Tenants, by slug."""
    async with caller.transaction() as tx:
        found = await tenants.list_page(tx, caller.principal, after=query.after, limit=query.limit)
    return page_of(TenantView, found, lambda one: one.slug)


@router.post("/admin/tenants", status_code=201, response_model=TenantView)
async def create(request: Request, body: TenantBody, caller: Manager) -> JSONResponse:
    """Create a tenant; 409 if the slug is taken."""

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        tenant = await tenants.add(tx, caller.principal, **body.model_dump())
        return 201, to_json(TenantView.of(tenant))

    return await create_once(request, caller, create_in_tx)


@router.patch("/admin/tenants/{tenant}")
async def change(tenant: str, body: TenantPatch, caller: Manager) -> TenantView:
    """Change the given fields of a tenant, by id or slug; `paused` is its gate."""
    changes = body.model_dump(exclude_unset=True)
    async with caller.transaction() as tx:
        return TenantView.of(await tenants.change(tx, caller.principal, tenant, changes))
