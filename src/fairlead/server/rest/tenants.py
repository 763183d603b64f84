"""Tenants, for super admins."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from msgspec.structs import fields, replace
from pydantic import Field

from fairlead.actions import address_lists, quotas, tenants
from fairlead.db.tx import Tx
from fairlead.library.cell_tenants import add_in_cell
from fairlead.model.access import Permission, Tenant
from fairlead.model.flow import Rate
from fairlead.model.quota import QuotaUse
from fairlead.model.request import unknown_tenant
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.idempotency import create_once
from fairlead.server.merged_lists import by_name, list_all
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.views import Body, Listing, View, derive_body, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["tenants"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_TENANTS, everywhere=True))]
UsageReader = Annotated[Caller, Depends(Requires(Permission.READ_USAGE))]
AddressManager = Annotated[Caller, Depends(Requires(Permission.MANAGE_ADDRESSES))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_TENANTS, everywhere=True))]


RateBody: Any = derive_body(fields(Rate), name="RateBody")


class TenantBody(Body):
    """A new tenant."""

    slug: str
    name: str | None = None
    timezone: str = "UTC"
    weight: int = 1
    max_running: int | None = None
    rate: RateBody | None = None
    quotas: dict[str, int | None] = Field(default_factory=dict)
    cell: str | None = Field(
        None, description="The cell to live in; left out: the home cell. Without cells there is none to name."
    )


class TenantPatch(Body):
    """Changes to a tenant; omitted fields keep their value. `max_running` or `rate` null means no limit.

    `quotas` changes the named quotas: 0 means no limit, null the default from the settings.
    """

    name: str = ""
    timezone: str = "UTC"
    weight: int = 1
    max_running: int | None = None
    rate: RateBody | None = None
    quotas: dict[str, int | None] = Field(default_factory=dict)
    addresses: list[str] = Field(
        default_factory=list,
        description="Networks (CIDR) from which its users and tokens may be used; empty: any address.",
    )
    paused: bool = False


class AddressesBody(Body):
    """The allow-list of the tenant."""

    addresses: list[str] = Field(description="Networks (CIDR), at most 100; empty: any address.")
    force: bool = Field(False, description="Set it even if it does not have the caller's own address.")


class AddressesView(View):
    """The allow-list of the tenant; empty: any address."""

    addresses: list[str]


@router.get("/quotas")
async def own_quotas(caller: UsageReader) -> Listing[QuotaUse]:
    """The tenant's use of its quotas."""
    async with caller.transaction() as tx:
        found = await quotas.list_uses(tx, caller.principal, caller.tenant)
    return Listing(found)


@router.get("/addresses")
async def own_addresses(caller: AddressManager) -> AddressesView:
    """The networks from which the tenant's users and tokens may be used."""
    async with caller.transaction() as tx:
        return AddressesView(addresses=await address_lists.get(tx, caller.principal, caller.tenant))


@router.put("/addresses")
async def set_own_addresses(body: AddressesBody, caller: AddressManager) -> AddressesView:
    """Set the tenant's allow-list. 409 if it would lock out the caller, unless forced. Super admins are not bound by it."""
    async with caller.transaction(as_system=True) as tx:
        changed = await address_lists.change(
            tx, caller.principal, caller.tenant, body.addresses, ip=caller.ip, force=body.force
        )
    return AddressesView(addresses=list(changed.addresses or ()))


@router.get("/admin/tenants/{tenant}/quotas")
async def tenant_quotas(tenant: str, caller: Reader) -> Listing[QuotaUse]:
    """A tenant's use of its quotas, by id or slug."""
    async with caller.transaction() as tx:
        found = await tenants.find(tx, caller.principal, tenant)
        if found is None:
            raise unknown_tenant(tenant)
        used = await quotas.list_uses(tx, caller.principal, found.id)
    return Listing(used)


@router.get("/admin/tenants")
async def list_tenants(query: Annotated[PageQuery, Query()], caller: Reader) -> Listing[Tenant]:
    """Tenants, by slug."""
    return await list_all(
        caller,
        query,
        lambda tx, page: tenants.list_page(tx, caller.principal, after=page.after, limit=page.limit),
        by_name("slug"),
    )


@router.post("/admin/tenants", status_code=201, response_model=Tenant)
async def create(request: Request, body: TenantBody, caller: Manager) -> JSONResponse:
    """Create a tenant; 409 if the slug is taken."""

    async def create_in_tx(tx: Tx) -> tuple[int, Any]:
        said = body.model_dump(exclude={"cell", "slug"})
        if body.cell is None or await caller.fl.cells.member(body.cell) is caller.fl:
            return 201, to_json(await tenants.add(tx, caller.principal, slug=body.slug, **said))
        # the directory and the cell are written in transactions of their own, which a repeated request completes
        made = await add_in_cell(caller.fl, caller.principal, body.cell, body.slug, said)
        return 201, to_json(replace(made, cell=body.cell))

    return await create_once(request, caller, create_in_tx)


@router.patch("/admin/tenants/{tenant}")
async def change(tenant: str, body: TenantPatch, caller: Manager) -> Tenant:
    """Change the given fields of a tenant, by id or slug; `paused` is its gate."""
    changes = body.model_dump(exclude_unset=True)
    async with caller.transaction() as tx:
        return await tenants.change(tx, caller.principal, tenant, changes)
