"""Add, list, change and pause tenants."""

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import to_builtins
from msgspec.structs import replace

from fairlead.actions import address_lists, gates, schedules
from fairlead.actions import quotas as tenant_quotas
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput, TenantExists
from fairlead.model.access import GLOBAL_TENANT, Permission, Principal, Tenant
from fairlead.model.flow import Rate, read_rate
from fairlead.model.page import Page
from fairlead.model.payload import find_storage_flaw
from fairlead.model.request import unknown_tenant
from fairlead.model.schedule import zone
from fairlead.store import audit, bulk, tenants

SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
UUID_LIKE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MAX_NAME = 200
MAX_WEIGHT = 1000
MAX_RUNNING = 2_147_483_647
CHANGEABLE = ("name", "timezone", "weight", "max_running", "rate")
QUOTAS = "quotas"
ADDRESSES = "addresses"


async def add(
    tx: Tx,
    principal: Principal,
    *,
    slug: str,
    name: str | None = None,
    timezone: str = "UTC",
    weight: int = 1,
    max_running: int | None = None,
    rate: Rate | Mapping[str, Any] | None = None,
    quotas: Mapping[str, int | None] | None = None,
    tenant_id: UUID | None = None,
) -> Tenant:
    """Add a tenant."""
    principal.require(Permission.MANAGE_TENANTS)
    name = slug if name is None else name
    _check(name=name, timezone=timezone, weight=weight, max_running=max_running, slug=slug)
    tenant = await tenants.add(
        tx,
        slug=slug,
        name=name,
        timezone=timezone,
        weight=weight,
        max_running=max_running,
        rate=read_rate(rate),
        tenant_id=tenant_id,
    )
    if tenant is None:
        raise exists_error(slug)
    if quotas:
        tenant = replace(tenant, quotas=await tenant_quotas.change_quotas(tx, tenant, quotas))
    await _audit(tx, principal, "tenant_created", tenant, {QUOTAS: tenant.quotas} if quotas else None)
    return tenant


def exists_error(slug: str) -> TenantExists:
    return TenantExists(f"There is a tenant {slug!r} already. Choose another slug.", [Fault("slug", "taken")])


async def find(tx: Tx, principal: Principal, tenant: str) -> Tenant | None:
    """A tenant by slug or id, if it exists."""
    principal.require(Permission.READ_TENANTS)
    return await tenants.get(tx, tenant)


async def find_id(tx: Tx, name: str) -> UUID | None:
    """The id of a tenant by slug or id, if it exists. The caller must not tell others' tenants from unknown ones."""
    return (await tenants.get_ids(tx, [name])).get(name) if name.isprintable() else None


async def get_slug(tx: Tx, tenant_id: UUID | None) -> str | None:
    """The slug of a caller's own tenant."""
    found = None if tenant_id is None else await tenants.get(tx, str(tenant_id))
    return None if found is None else found.slug


async def list_all(tx: Tx, principal: Principal) -> list[Tenant]:
    """All tenants, by slug."""
    principal.require(Permission.READ_TENANTS)
    return await tenants.list_all(tx)


async def list_absent(tx: Tx) -> frozenset[UUID]:
    """The tenants of which this cell has rows, and another cell the valid ones."""
    return await tenants.list_absent(tx)


async def list_page(tx: Tx, principal: Principal, *, after: str, limit: int) -> Page[Tenant]:
    """Tenants ordered by slug, after the given slug."""
    principal.require(Permission.READ_TENANTS)
    return await tenants.list_page(tx, after=after, limit=limit)


async def change(tx: Tx, principal: Principal, tenant: str, changes: Mapping[str, Any]) -> Tenant:
    """Change the given fields of a tenant: its name, timezone, weight, max_running, rate, quotas or addresses; `paused` is its gate.

    Only the given quotas change; None restores the setting's value.
    """
    principal.require(Permission.MANAGE_TENANTS)
    found = await tenants.get(tx, tenant) if not find_storage_flaw(tenant) else None
    if found is None:
        raise unknown_tenant(tenant)
    values = {name: changes.get(name, getattr(found, name)) for name in CHANGEABLE}
    values["rate"] = read_rate(values["rate"])
    _check(**values)
    changed = await tenants.change(tx, found.id, **values)
    if changed is not None:
        given = {name: to_builtins(values[name]) for name in CHANGEABLE if name in changes}
        await _audit(tx, principal, "tenant_changed", changed, given)
        if changed.rate != found.rate:
            await bulk.notify(tx, "ready")  # workers wait until the former rate allows the next start
        if changed.timezone != found.timezone:
            await schedules.update_zone(tx, changed.slug, was=found.timezone)
    if changes.get(QUOTAS):
        quotas = await tenant_quotas.change_quotas(tx, found, changes[QUOTAS])
        if quotas != found.quotas:
            changed = replace(changed or found, quotas=quotas)
            await _audit(tx, principal, "tenant_changed", changed, {QUOTAS: dict(changes[QUOTAS])})
    if ADDRESSES in changes:
        changed = await address_lists.change(tx, principal, found.id, changes[ADDRESSES])
    if "paused" in changes and changes["paused"] != (found.paused_at is not None):
        return await pause(tx, principal, str(found.id), paused=bool(changes["paused"]))
    return changed or found


async def pause(
    tx: Tx, principal: Principal, slug: str, *, paused: bool = True, note: str | None = None
) -> Tenant:
    """Close or open a tenant's gate: while it is closed none of its jobs is claimed."""
    await (gates.pause if paused else gates.resume)(tx, principal, tenant=slug, note=note)
    tenant = await tenants.get(tx, slug)
    if tenant is None:
        raise unknown_tenant(slug)
    return tenant


def _check(
    *,
    name: str,
    timezone: str,
    weight: int,
    max_running: int | None,
    slug: str | None = None,
    **_: Any,
) -> None:
    checks = {
        "slug": slug is None
        or bool(SLUG.fullmatch(slug) and not UUID_LIKE.fullmatch(slug) and slug != GLOBAL_TENANT)
        or f"must have 1 to 63 lowercase letters, digits and hyphens, begin with a letter or digit, not look like a UUID and not be {GLOBAL_TENANT!r}",
        "name": (0 < len(name) <= MAX_NAME and not find_storage_flaw(name))
        or f"must have 1 to {MAX_NAME} characters",
        "timezone": zone.is_known_zone(timezone) or zone.ADVICE,
        "weight": 1 <= weight <= MAX_WEIGHT or f"must be between 1 and {MAX_WEIGHT}",
        "max_running": max_running is None
        or 0 < max_running <= MAX_RUNNING
        or "must be 1 or more, or left out",
    }
    if faults := [Fault(field, fine) for field, fine in checks.items() if isinstance(fine, str)]:
        raise InvalidInput(f"Invalid tenant: {faults[0].path} {faults[0].message}.", faults)


async def _audit(
    tx: Tx, principal: Principal, action: str, tenant: Tenant, details: Mapping[str, Any] | None = None
) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="tenant",
        resource_id=tenant.id,
        tenant_id=tenant.id,
        details={"slug": tenant.slug, **(details or {})},
    )
