"""Tenants."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.access import Tenant
from fairlead.model.flow import Rate
from fairlead.model.page import Page
from fairlead.placement import require_readable
from fairlead.store import bounded_page

sql = queries_beside(__file__)


class StoredTenant(Tenant, frozen=True, kw_only=True):
    """A tenant, and whether it lives in this cell."""

    placement: str
    moved_to: str | None


async def get(tx: Tx, tenant: str) -> Tenant | None:
    """A tenant by slug or id; TenantMoved if it lives in another cell."""
    found = await tx.first(StoredTenant, sql.get, {"tenant": tenant})
    if found is not None:
        require_readable(found.slug, found.placement, found.moved_to)
    return found


async def read_placement(tx: Tx, tenant_id: UUID) -> str | None:
    """Whether a tenant lives in this cell; None if there is no such tenant here."""
    rows = await tx.values(sql.placement, {"id": tenant_id})
    return str(rows[0][0]) if rows else None


async def list_all(tx: Tx) -> list[Tenant]:
    return await tx.all(Tenant, sql.every)


async def list_page(tx: Tx, *, after: str, limit: int) -> Page[Tenant]:
    """Tenants ordered by slug, after the given slug."""
    weighed = ("name", "pause_note")
    return await bounded_page.fetch_page(tx, Tenant, sql.page, {"after": after}, limit=limit, weighed=weighed)


async def list_absent(tx: Tx) -> frozenset[UUID]:
    """Tenants that live in another cell, or are on their way to this one."""
    return frozenset(tenant_id for (tenant_id,) in await tx.values(sql.absent))


async def change(
    tx: Tx,
    tenant_id: UUID,
    *,
    name: str,
    timezone: str,
    weight: int,
    max_running: int | None,
    rate: Rate | None,
) -> Tenant | None:
    """Change a tenant; None if nothing changes."""
    values = {
        "id": tenant_id,
        "name": name,
        "timezone": timezone,
        "weight": weight,
        "max_running": max_running,
        "rate": rate and json_text(rate),
    }
    return await tx.first(Tenant, sql.change, values)


async def get_ids(tx: Tx, names: Iterable[str]) -> dict[str, UUID]:
    """The ids of tenants by slug or id; unknown names are missing. TenantMoved if one lives in another cell."""
    rows = await tx.values(sql.ids, {"names": list(names)})
    for name, _, placement, moved_to in rows:
        require_readable(name, placement, moved_to)
    return {name: tenant_id for name, tenant_id, _, _ in rows}


async def add(
    tx: Tx,
    *,
    slug: str,
    name: str,
    timezone: str,
    weight: int,
    max_running: int | None,
    rate: Rate | None,
    tenant_id: UUID | None = None,
) -> Tenant | None:
    """Add a tenant; None if the slug is taken."""
    values = {
        "id": tenant_id,
        "slug": slug,
        "name": name,
        "timezone": timezone,
        "weight": weight,
        "max_running": max_running,
        "rate": rate and json_text(rate),
    }
    return await tx.first(Tenant, sql.add, values)


async def set_addresses(tx: Tx, tenant_id: UUID, addresses: Sequence[str] | None) -> Tenant | None:
    """Set the allow-list of a tenant (None: any address)."""
    values = {"id": tenant_id, "addresses": None if addresses is None else list(addresses)}
    return await tx.first(Tenant, sql.set_addresses, values)
