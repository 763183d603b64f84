"""Rates and limits by key: what is left of each, what it holds back, and changes of rates."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import to_builtins

from fairlead.actions import definitions, tenants
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Principal
from fairlead.model.flow import Rate, parse_rate, read_rate
from fairlead.model.limits import LimitScope, LimitUse
from fairlead.model.page import Page
from fairlead.model.request import unknown_definition
from fairlead.store import audit, bulk, limits, system

__all__ = ["LimitScope", "LimitUse", "get_system_rate", "list_all", "list_page", "set_rate"]

MAX_PAGE = 200
MOST = 1000


async def list_page(
    tx: Tx,
    principal: Principal,
    *,
    tenant_id: UUID | None = None,
    definition_id: UUID | None = None,
    after: str = "",
    limit: int = MAX_PAGE,
) -> Page[LimitUse]:
    """Rates and limits by key: of the system, of tenants by slug, of definitions by key.

    A tenant sees its own, and when the rates that it shares with others allow the next start; it counts its own jobs. The
    transaction must see the rows of all tenants.
    """
    tenant_id = principal.tenant_id or tenant_id
    principal.require(Permission.READ_DEFINITIONS, tenant_id)
    principal.require(Permission.READ_JOBS, tenant_id)
    return await limits.list_page(
        tx, tenant_id=tenant_id, definition_id=definition_id, after=after, limit=limit
    )


async def list_all(
    tx: Tx, principal: Principal, *, tenant_id: UUID | None = None, definition_id: UUID | None = None
) -> list[LimitUse]:
    """The first MOST limits of `list_page`."""
    return await list_page(tx, principal, tenant_id=tenant_id, definition_id=definition_id, limit=MOST)


async def get_system_rate(tx: Tx, principal: Principal) -> Rate | None:
    """How many jobs of the system may start."""
    principal.require(Permission.MANAGE_SYSTEM)
    return await system.get_rate(tx)


async def set_rate(
    tx: Tx,
    principal: Principal,
    rate: Rate | Mapping[str, Any] | str | None,
    *,
    tenant: str | None = None,
    definition: str | None = None,
    each_tenant: bool = False,
) -> Rate | None:
    """Set (None: remove) the rate of a tenant, of a definition or (none named) of the system.

    `each_tenant`: the definition's rate for each tenant.
    """
    new = parse_rate(rate) if isinstance(rate, str) else read_rate(rate)
    if tenant is not None and definition is not None:
        raise InvalidInput(
            "Name a tenant or a definition, not both: a definition has a rate for each tenant.",
            [Fault("definition", "name only one")],
        )
    if each_tenant and definition is None:
        raise InvalidInput(
            "A rate for each tenant is a definition's: name the definition.", [Fault("definition", "missing")]
        )
    if tenant is not None:
        await tenants.change(tx, principal, tenant, {"rate": new})
    elif definition is not None:
        if await definitions.find(tx, principal, definition) is None:
            raise unknown_definition(definition)
        name = "rate_per_tenant" if each_tenant else "rate"
        await definitions.patch(tx, principal, definition, {name: new})
    else:
        await _set_system_rate(tx, principal, new)
    return new


async def _set_system_rate(tx: Tx, principal: Principal, rate: Rate | None) -> None:
    principal.require(Permission.MANAGE_SYSTEM)
    if not await system.set_rate(tx, rate):
        return
    await bulk.notify(tx, "ready")
    await audit.write(
        tx,
        actor=principal.actor,
        action="system_changed",
        resource_type="system",
        details={"rate": to_builtins(rate)},
    )
