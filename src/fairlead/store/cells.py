"""The directory: cells, and the cells of tenants."""

from collections.abc import Iterable
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.cells import Cell, CellLoad, TenantCell, TenantLoad
from fairlead.store import allotments

sql = queries_beside(__file__)


async def list_all(tx: Tx) -> list[Cell]:
    return await tx.all(Cell, sql.every)


async def read_own_id(tx: Tx) -> UUID:
    """The id of the cell that this transaction is in."""
    [[cell_id]] = await tx.values(sql.own_id)
    return UUID(str(cell_id))


async def add(
    tx: Tx, *, name: str, cell_id: UUID, url: str | None, schema_name: str, is_citus: bool, created_by: str
) -> Cell | None:
    """Add a cell; None if the name or the database is taken."""
    values = {
        "name": name,
        "cell_id": cell_id,
        "url": url,
        "schema_name": schema_name,
        "is_citus": is_citus,
        "created_by": created_by,
    }
    return await tx.first(Cell, sql.add, values)


async def set_draining(tx: Tx, name: str, *, is_draining: bool) -> bool:
    """Whether this changed anything."""
    return await tx.run(sql.set_draining, {"name": name, "is_draining": is_draining}) > 0


async def remove(tx: Tx, name: str) -> bool:
    """Remove a cell without tenants; whether it was removed."""
    removed = await tx.run(sql.remove, {"name": name}) > 0
    if removed:
        await tx.run(sql.remove_lone_home)
        await allotments.end(tx)
    return removed


async def locate(tx: Tx, names: Iterable[str]) -> list[TenantCell]:
    """The directory's entries of these tenants, by slug or id."""
    return await tx.all(TenantCell, sql.locate, {"names": list(names)})


async def reserve(tx: Tx, *, tenant_id: UUID, slug: str, cell: str) -> TenantCell | None:
    """Note that a new tenant lives in a cell; None if its slug is taken."""
    return await tx.first(TenantCell, sql.reserve, {"tenant_id": tenant_id, "slug": slug, "cell": cell})


async def release(tx: Tx, tenant_id: UUID) -> None:
    """Undo `reserve`: the tenant was not added."""
    await tx.run(sql.release, {"tenant_id": tenant_id})


async def read_load(tx: Tx) -> CellLoad:
    """What the cell of this transaction carries."""
    await tx.show_shards()  # for the size
    found = await tx.first(CellLoad, sql.load, {"schema": tx.schema})
    assert found is not None  # noqa: S101 - a select without from
    return found


async def list_tenant_loads(tx: Tx, *, limit: int) -> list[TenantLoad]:
    """The tenants of this cell that used most, first."""
    return await tx.all(TenantLoad, sql.tenant_loads, {"limit": limit})
