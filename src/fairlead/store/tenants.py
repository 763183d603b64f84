"""Tenants: whose work it is."""

from collections.abc import Iterable
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.access import Tenant
from fairlead.model.page import Page
from fairlead.store import bounded

sql = queries_beside(__file__)


async def get(tx: Tx, tenant: str) -> Tenant | None:
    """A tenant by slug or id."""
    return await tx.first(Tenant, sql.get, {"tenant": tenant})


async def every(tx: Tx) -> list[Tenant]:
    return await tx.all(Tenant, sql.every)


async def page(tx: Tx, *, after: str, limit: int) -> Page[Tenant]:
    """Tenants by slug, after this one."""
    weighed = ("name", "pause_note")
    return await bounded.page(tx, Tenant, sql.page, {"after": after}, limit=limit, weighed=weighed)


async def change(
    tx: Tx, tenant_id: UUID, *, name: str, timezone: str, weight: int, max_running: int | None
) -> Tenant | None:
    """Make the tenant say this; None if it already does."""
    values = {
        "id": tenant_id,
        "name": name,
        "timezone": timezone,
        "weight": weight,
        "max_running": max_running,
    }
    return await tx.first(Tenant, sql.change, values)


async def ids(tx: Tx, names: Iterable[str]) -> dict[str, UUID]:
    """The ids behind slugs or ids; a name that is not there is missing from the answer."""
    return dict(await tx.values(sql.ids, {"names": list(names)}))


async def add(
    tx: Tx, *, slug: str, name: str, timezone: str, weight: int, max_running: int | None
) -> Tenant | None:
    """A new tenant, or None if the slug is taken."""
    values = {"slug": slug, "name": name, "timezone": timezone, "weight": weight, "max_running": max_running}
    return await tx.first(Tenant, sql.add, values)
