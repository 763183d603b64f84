"""Add, list, drain and remove cells; find the cell of a tenant."""

import os
import re
from collections.abc import Iterable
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.errors import CellExists, CellInUse, CellInvalid, CellUnknown, Fault
from fairlead.handlers.commands import SecretMissing, read_secret
from fairlead.model.access import Permission, Principal
from fairlead.model.cells import HOME, Cell, CellLoad, TenantCell, TenantLoad
from fairlead.model.command.fields import read_secret_source
from fairlead.model.template.path import Flaw
from fairlead.store import allotments, audit, cells

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
SECRET_PREFIXES = ("env:", "file:/")
# The word that tells the processes of the home cell that the list of cells has changed.
CELLS = "cells"


async def list_all(tx: Tx, principal: Principal) -> list[Cell]:
    """All cells; none if there is only this database."""
    principal.require(Permission.READ_TENANTS)
    return await cells.list_all(tx)


async def read_own_id(tx: Tx) -> UUID:
    """The id of the cell that this transaction is in, whatever address leads to it."""
    return await cells.read_own_id(tx)


async def add(
    tx: Tx, principal: Principal, *, name: str, cell_id: UUID, url: str, schema: str, is_citus: bool = False
) -> Cell:
    """Add a cell to the directory. The first one also adds this database, the home cell.

    `cell_id` is that of the database at `url`; if it is this database, the cell is the home cell with this name.
    """
    known = await check_name(tx, principal, name)
    own_id = await cells.read_own_id(tx)
    if same := next((one for one in known if one.cell_id == cell_id), None):
        raise CellExists(
            f"This database is the cell {same.name!r} already. See: fairlead cells list",
            [Fault("url", "taken")],
        )
    if cell_id != own_id and not any(one.is_home for one in known):
        await _store(tx, principal, HOME, own_id, url=None, schema=tx.schema, is_citus=False)
    home = cell_id == own_id
    if not home:
        await allotments.begin_in_home(tx)
    return await _store(
        tx, principal, name, cell_id, url=None if home else url, schema=schema, is_citus=is_citus and not home
    )


async def check_name(tx: Tx, principal: Principal, name: str) -> list[Cell]:
    """Refuse a name that a new cell cannot have, before its database is changed. The cells that there are."""
    principal.require(Permission.MANAGE_TENANTS)
    if not NAME.fullmatch(name):
        raise CellInvalid(
            f"{name[:80]!r} cannot be a cell's name: use 1 to 63 lowercase letters, digits and hyphens.",
            [Fault("name", "not valid")],
        )
    known = await cells.list_all(tx)
    if any(one.name == name for one in known):
        raise CellExists(
            f"There is a cell {name!r} already. See: fairlead cells list", [Fault("name", "taken")]
        )
    return known


async def _store(
    tx: Tx, principal: Principal, name: str, cell_id: UUID, *, url: str | None, schema: str, is_citus: bool
) -> Cell:
    added = await cells.add(
        tx,
        name=name,
        cell_id=cell_id,
        url=url,
        schema_name=schema,
        is_citus=is_citus,
        created_by=principal.actor,
    )
    if added is None:
        raise CellExists(
            f"The name {name!r} is taken by another cell. Choose another one.", [Fault("name", "taken")]
        )
    await _audit(tx, principal, "cell_added", name)
    tx.notify(CELLS)
    return added


async def drain(tx: Tx, principal: Principal, name: str, *, is_draining: bool = True) -> Cell:
    """Give a cell no new tenants, or (is_draining=False) give it some again."""
    principal.require(Permission.MANAGE_TENANTS)
    await get(tx, name)
    if await cells.set_draining(tx, name, is_draining=is_draining):
        await _audit(tx, principal, "cell_drained" if is_draining else "cell_opened", name)
    return await get(tx, name)


async def remove(tx: Tx, principal: Principal, name: str) -> None:
    """Remove a cell that has no tenants from the directory. Its database stays as it is."""
    principal.require(Permission.MANAGE_TENANTS)
    found = await get(tx, name)
    if found.is_home:
        raise CellInUse(f"{name!r} is the home cell, which has the directory: it cannot be removed.")
    if not await cells.remove(tx, name):
        raise CellInUse(
            f"The cell {name!r} has tenants, or one is being moved. Move them first: fairlead cells rebalance "
            f"--empty {name}"
        )
    await _audit(tx, principal, "cell_removed", name)
    tx.notify(CELLS)


async def get(tx: Tx, name: str) -> Cell:
    """The cell of this name, or CellUnknown."""
    for cell in await cells.list_all(tx):
        if cell.name == name:
            return cell
    raise CellUnknown(
        f"There is no cell {name[:80]!r}. List them with: fairlead cells list", [Fault("cell", "unknown")]
    )


async def locate(tx: Tx, names: Iterable[str]) -> list[TenantCell]:
    """The directory's entries of tenants by slug or id; a tenant without one lives in the home cell, or nowhere."""
    return await cells.locate(tx, names)


async def reserve(
    tx: Tx, principal: Principal, *, tenant_id: UUID, slug: str, cell: str
) -> TenantCell | None:
    """Note that a new tenant lives in a cell; None if its slug is taken."""
    principal.require(Permission.MANAGE_TENANTS)
    return await cells.reserve(tx, tenant_id=tenant_id, slug=slug, cell=cell)


async def release(tx: Tx, principal: Principal, tenant_id: UUID) -> None:
    """Undo `reserve`: the tenant was not added."""
    principal.require(Permission.MANAGE_TENANTS)
    await cells.release(tx, tenant_id)


async def read_load(tx: Tx, principal: Principal) -> CellLoad:
    """What the cell of this transaction carries."""
    principal.require(Permission.READ_TENANTS)
    return await cells.read_load(tx)


async def list_tenant_loads(tx: Tx, principal: Principal, *, limit: int) -> list[TenantLoad]:
    """The tenants of this cell that used most in the last day, first."""
    principal.require(Permission.READ_TENANTS)
    return await cells.list_tenant_loads(tx, limit=limit)


def resolve_url(url: str) -> str:
    """The URL itself, or the one in the variable or file that it names (env:NAME, file:/path)."""
    if not url.startswith(SECRET_PREFIXES):
        return url
    try:
        return read_secret(read_secret_source(url), os.environ)
    except (Flaw, SecretMissing) as error:
        raise CellInvalid(f"The URL {url!r} cannot be read: {error}.", [Fault("url", str(error))]) from None


async def _audit(tx: Tx, principal: Principal, action: str, name: str) -> None:
    await audit.write(tx, actor=principal.actor, action=action, resource_type="cell", resource_id=name)
