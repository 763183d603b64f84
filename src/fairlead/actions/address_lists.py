"""The allow-list of a tenant: the networks from which its users and tokens may be used. Super admins are not bound by it."""

from collections.abc import Sequence
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.errors import AddressListExcludesYou, Fault, InvalidInput
from fairlead.model.access import ACCESS_CHANGED, Permission, Principal, Role, Tenant
from fairlead.model.address_list import AddressList, read_networks
from fairlead.model.request import unknown_tenant
from fairlead.store import access, audit, tenants


async def get(tx: Tx, principal: Principal, tenant_id: UUID) -> list[str]:
    """The networks of a tenant's allow-list; empty if any address may be used."""
    principal.require(Permission.MANAGE_ADDRESSES, tenant_id)
    return list(await access.read_tenant_addresses(tx, tenant_id) or ())


async def change(
    tx: Tx,
    principal: Principal,
    tenant_id: UUID,
    addresses: Sequence[str] | None,
    *,
    ip: str | None = None,
    force: bool = False,
) -> Tenant:
    """Set a tenant's allow-list (empty: any address); every process applies it within five seconds.

    Refused if it would lock out the principal, which asks from the address `ip`, unless forced.
    """
    principal.require(Permission.MANAGE_ADDRESSES, tenant_id)
    networks, faults = read_networks(addresses)
    if faults:
        raise InvalidInput(f"Invalid allow-list: {faults[0].path} {faults[0].message}.", faults)
    is_bound = principal.role is not Role.SUPER_ADMIN
    if networks and is_bound and not force and not AddressList("tenant", networks).admits(ip):
        raise AddressListExcludesYou(
            f"The new allow-list does not have your own address, {ip or 'which is not known'}: you would lock yourself out. "
            "Add it, or force the change.",
            [Fault("addresses", "does not have your own address")],
        )
    changed = await tenants.set_addresses(tx, tenant_id, networks)
    if changed is None:
        raise unknown_tenant(str(tenant_id))
    tx.notify(ACCESS_CHANGED)
    await audit.write(
        tx,
        actor=principal.actor,
        action="tenant_changed",
        resource_type="tenant",
        resource_id=tenant_id,
        tenant_id=tenant_id,
        details={
            "slug": changed.slug,
            "addresses": list(networks or ()),
            **({"forced": True} if force else {}),
        },
    )
    return changed


async def record_refusal(tx: Tx, principal: Principal, ip: str | None) -> None:
    """Audit a request from an address that is not allowed."""
    await audit.write(
        tx,
        actor=principal.actor,
        action="address_refused",
        resource_type="token" if principal.id != principal.user_id else "user",
        resource_id=principal.id,
        tenant_id=principal.tenant_id,
        details={"address": ip or "unknown"},
    )
