"""Quotas of tenants: their use, and the refusal of requests that exceed them."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput, Refused
from fairlead.model.access import Permission, Principal, Tenant
from fairlead.model.quota import (
    MAX_QUOTA,
    OF_OPENINGS,
    Quota,
    QuotaUse,
    effective_quota,
    quota_error,
    quota_error_from_database,
)
from fairlead.store import open_connections, quotas, stats

# More triggers or tokens than this are not counted.
MOST_COUNTED = 1_000_000


async def require_room(tx: Tx, tenant_id: UUID, *, more: int = 1) -> None:
    """Refuse `more` new jobs of a tenant if they exceed its quotas."""
    for refusal in (await quotas.find_refusals(tx, tenants={tenant_id: more})).values():
        raise quota_error_from_database(refusal, more=more)


async def require_room_for(tx: Tx, principal: Principal) -> None:
    """Refuse a request that leads to jobs if it comes from a tenant whose queue is full."""
    if principal.tenant_id is not None:
        await require_room(tx, principal.tenant_id)


async def find_full_tenants(tx: Tx, jobs: Mapping[UUID, int]) -> dict[UUID, Refused]:
    """The tenants that may not have these numbers of new jobs, each with its refusal."""
    found = await quotas.find_refusals(tx, tenants=jobs)
    return {
        tenant_id: quota_error_from_database(one, more=jobs[tenant_id]) for tenant_id, one in found.items()
    }


async def require_trigger(tx: Tx, tenant_id: UUID) -> None:
    """Refuse one more trigger if a tenant is at its quota."""
    allowed = effective_quota(Quota.TRIGGERS, await quotas.get_own_quotas(tx, tenant_id), tx.settings)
    if allowed is not None and (used := await quotas.count_triggers(tx, tenant_id, most=allowed)) >= allowed:
        raise quota_error(Quota.TRIGGERS, used=used, allowed=allowed)


async def require_token(tx: Tx, tenant_id: UUID) -> None:
    """Refuse one more token if a tenant's valid tokens are at its quota."""
    allowed = effective_quota(Quota.TOKENS, await quotas.get_own_quotas(tx, tenant_id), tx.settings)
    if allowed is not None and (used := await quotas.count_tokens(tx, tenant_id, most=allowed)) >= allowed:
        raise quota_error(Quota.TOKENS, used=used, allowed=allowed)


async def list_uses(tx: Tx, principal: Principal, tenant_id: UUID) -> list[QuotaUse]:
    """A tenant's use of each of its quotas. The jobs of a run are counted by run, so RUN_JOBS has no use here."""
    principal.require(Permission.READ_USAGE, tenant_id)
    own = await quotas.get_own_quotas(tx, tenant_id)
    held = await open_connections.count_connections(tx, tenant_id)
    used: dict[Quota, int | None] = {
        Quota.QUEUED_JOBS: await stats.count_queued(tx, tenant_id=tenant_id),
        Quota.RUN_JOBS: None,
        Quota.TRIGGERS: await quotas.count_triggers(tx, tenant_id, most=MOST_COUNTED),
        Quota.TOKENS: await quotas.count_tokens(tx, tenant_id, most=MOST_COUNTED),
        Quota.STORED_BYTES: await quotas.get_stored_bytes(tx, tenant_id),
        **{quota: held.get(quota, 0) for quota in OF_OPENINGS},
    }
    return [
        QuotaUse(quota, used[quota], effective_quota(quota, own, tx.settings), is_own=quota in own)
        for quota in Quota
    ]


async def change_quotas(tx: Tx, tenant: Tenant, changes: Mapping[str, Any]) -> dict[str, int]:
    """Change a tenant's own quotas; None restores the setting's value. The tenant's own quotas."""
    _check(changes)
    own = {**await quotas.get_own_quotas(tx, tenant.id), **changes}
    now = {name: number for name, number in own.items() if number is not None}
    await quotas.set_own_quotas(tx, tenant.id, now)
    return now


def _check(changes: Mapping[str, Any]) -> None:
    faults = list[Fault]()
    for name, number in changes.items():
        if name not in set(Quota):
            faults.append(Fault(f"quotas.{name}", f"is not one of {', '.join(Quota)}"))
        elif number is not None and not (type(number) is int and 0 <= number <= MAX_QUOTA):
            faults.append(
                Fault(
                    f"quotas.{name}",
                    "must be an integer (0: no limit), or null for the value of the settings",
                )
            )
    if faults:
        raise InvalidInput(f"Invalid quota: {faults[0].path} {faults[0].message}.", faults)
