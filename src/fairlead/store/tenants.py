"""Tenants."""

from collections.abc import Iterable
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.access import Tenant
from fairlead.model.page import Page
from fairlead.store import bounded_page

sql = queries_beside(__file__)


async def get(tx: Tx, tenant: str) -> Tenant | None:
    """A tenant by slug or id."""
    return await tx.first(Tenant, sql.get, {"tenant": tenant})


async def list_all(tx: Tx) -> list[Tenant]:
    return await tx.all(Tenant, sql.every)


async def list_page(tx: Tx, *, after: str, limit: int) -> Page[Tenant]:
    """Tenants ordered by slug, after the given slug."""
    weighed = ("name", "pause_note")
    return await bounded_page.fetch_page(tx, Tenant, sql.page, {"after": after}, limit=limit, weighed=weighed)


async def change(
    tx: Tx, tenant_id: UUID, *, name: str, timezone: str, weight: int, max_running: int | None
) -> Tenant | None:
    """Change a tenant; None if nothing changes."""
    values = {
        "id": tenant_id,
        "name": name,
        "timezone": timezone,
        "weight": weight,
        "max_running": max_running,
    }
    return await tx.first(Tenant, sql.change, values)


async def get_ids(tx: Tx, names: Iterable[str]) -> dict[str, UUID]:
    """The ids of tenants by slug or id; unknown names are missing."""
    return dict(await tx.values(sql.ids, {"names": list(names)}))


async def add(
    tx: Tx, *, slug: str, name: str, timezone: str, weight: int, max_running: int | None
) -> Tenant | None:
    """Add a tenant; None if the slug is taken."""
    values = {"slug": slug, "name": name, "timezone": timezone, "weight": weight, "max_running": max_running}
    return await tx.first(Tenant, sql.add, values)
