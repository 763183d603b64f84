"""Add a tenant in another cell than the home cell."""

from collections.abc import Mapping
from typing import Any

from uuid_utils.compat import uuid7

from fairlead.actions import cells as directory
from fairlead.actions import tenants
from fairlead.db.tx import Tx
from fairlead.errors import Refused, TenantExists
from fairlead.library.client import Client
from fairlead.model.access import Principal, Tenant


async def add_in_cell(
    home: Client, principal: Principal, cell: str, slug: str, said: Mapping[str, Any]
) -> Tenant:
    """Add a tenant in a cell: first its entry in the directory, which keeps the slug unique in all cells."""
    member = await home.cells.member(cell)
    entry = await home.database.transact(
        lambda tx: directory.reserve(tx, principal, tenant_id=uuid7(), slug=slug, cell=cell)
    )
    if entry is None:
        found = await home.database.single(lambda tx: directory.locate(tx, [slug]))
        entry = found[0] if found else None
    if entry is None or entry.cell != cell:
        raise tenants.exists_error(slug)
    tenant_id = entry.tenant_id

    async def add(tx: Tx) -> Tenant:
        # an interrupted call has left the entry without the tenant
        if await tenants.find(tx, principal, slug):
            raise tenants.exists_error(slug)
        return await tenants.add(tx, principal, slug=slug, tenant_id=tenant_id, **said)

    try:
        return await member.database.transact(add)
    except TenantExists:
        raise
    except Refused:
        await home.database.transact(lambda tx: directory.release(tx, principal, tenant_id))
        raise
