"""Saved views of the console's lists."""

from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.saved_view import SavedView

sql = queries_beside(__file__)


async def list_visible(tx: Tx, *, tenant_id: UUID | None, page: str, owner_id: UUID) -> list[SavedView]:
    """The shared views of a page, and the owner's own."""
    return await tx.all(SavedView, sql.visible, {"tenant_id": tenant_id, "page": page, "owner_id": owner_id})


async def get(tx: Tx, view_id: UUID, *, tenant_id: UUID | None, owner_id: UUID) -> SavedView | None:
    """A view that is shared or the owner's own."""
    return await tx.first(SavedView, sql.get, {"id": view_id, "tenant_id": tenant_id, "owner_id": owner_id})


async def count(tx: Tx, *, tenant_id: UUID | None) -> int:
    """The number of a tenant's views, shared or not."""
    [(found,)] = await tx.values(sql.count, {"tenant_id": tenant_id})
    return int(found)


async def add(
    tx: Tx,
    *,
    tenant_id: UUID | None,
    page: str,
    name: str,
    query: str,
    is_shared: bool,
    owner: str,
    owner_id: UUID,
) -> SavedView | None:
    """Save a view; None if its name is taken."""
    values = {
        "tenant_id": tenant_id,
        "page": page,
        "name": name,
        "query": query,
        "is_shared": is_shared,
        "owner": owner,
        "owner_id": owner_id,
    }
    return await tx.first(SavedView, sql.add, values)


async def rename(tx: Tx, view_id: UUID, *, name: str) -> None:
    """Give a view another name; raises UniqueViolation if it is taken."""
    await tx.run(sql.rename, {"id": view_id, "name": name})


async def remove(tx: Tx, view_id: UUID) -> None:
    """Delete a view."""
    await tx.run(sql.remove, {"id": view_id})
