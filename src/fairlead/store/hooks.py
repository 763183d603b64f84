"""Hooks, their secrets, and the deliveries that became events."""

from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.hooks.hook import Hook, KeyedHook, Refusal, Scheme, UniqueBy
from fairlead.model.page import Page
from fairlead.store import sealing

sql = queries_beside(__file__)


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that became an event; `name` is None if retention removed the event."""

    event_id: UUID
    received_at: datetime
    name: str | None


async def get(tx: Tx, hook_id: UUID, *, tenant_id: UUID | None = None) -> Hook | None:
    """A hook of a tenant, or (None) of any."""
    return await tx.first(Hook, f"{sql.selected} {sql.by_id}", {"id": hook_id, "tenant_id": tenant_id})


async def list_named(tx: Tx, name: str, *, tenant_id: UUID | None = None) -> list[Hook]:
    """The hooks of this name, at most two: each tenant may have one."""
    return await tx.all(Hook, f"{sql.selected} {sql.named}", {"name": name, "tenant_id": tenant_id})


async def list_page(tx: Tx, *, tenant_id: UUID | None, after: UUID | None, limit: int) -> Page[Hook]:
    """Hooks, oldest first."""
    values = {"tenant_id": tenant_id, "after": after, "limit": limit + 1}
    found = await tx.all(Hook, f"{sql.selected} {sql.page}", values)
    return Page(found[:limit], more=len(found) > limit)


async def count(tx: Tx, *, tenant_id: UUID) -> int:
    """The number of a tenant's hooks."""
    [(found,)] = await tx.values(sql.count, {"tenant_id": tenant_id})
    return int(found)


async def add(
    tx: Tx,
    *,
    tenant_id: UUID,
    name: str,
    scheme: Scheme,
    event_name: str,
    unique_by: UniqueBy,
    tolerance_seconds: int,
    is_enabled: bool,
    created_by: str,
) -> UUID | None:
    """Add a hook without a secret. Its id; None if the name is taken."""
    values = {
        "tenant_id": tenant_id,
        "name": name,
        "scheme": scheme,
        "event_name": event_name,
        "unique_by": unique_by,
        "tolerance_seconds": tolerance_seconds,
        "is_enabled": is_enabled,
        "created_by": created_by,
    }
    found = await tx.values(sql.add, values)
    return found[0][0] if found else None


async def set_secret(tx: Tx, hook_id: UUID, *, tenant_id: UUID, secret: str, keep_seconds: float) -> None:
    """Give a hook a new secret; the one before it stays valid for `keep_seconds`."""
    await tx.run(sql.expire_secrets, {"hook_id": hook_id, "seconds": keep_seconds})
    sealed = await sealing.seal(tx, tenant_id, describe_secret(hook_id), secret)
    await tx.run(sql.add_secret, {"hook_id": hook_id, "tenant_id": tenant_id, "secret": sealed})


def describe_secret(hook_id: UUID) -> str:
    """The purpose for which the secrets of a hook are sealed."""
    return f"hook_secrets:{hook_id}:secret"


async def change(
    tx: Tx, hook_id: UUID, *, event_name: str, unique_by: UniqueBy, tolerance_seconds: int, is_enabled: bool
) -> None:
    """Change a hook."""
    values = {
        "id": hook_id,
        "event_name": event_name,
        "unique_by": unique_by,
        "tolerance_seconds": tolerance_seconds,
        "is_enabled": is_enabled,
    }
    await tx.run(sql.change, values)


async def remove(tx: Tx, hook_id: UUID) -> None:
    """Remove a hook with its secrets and the record of its deliveries."""
    await tx.run(sql.remove, {"id": hook_id})


async def find_keyed(tx: Tx, *, tenant: str, name: str) -> KeyedHook | None:
    """A hook with its valid secrets. Only a transaction of the system may read those."""
    found = await tx.first(KeyedHook, sql.find_keyed, {"tenant": tenant, "name": name})
    if found is None:
        return None
    purpose = describe_secret(found.id)
    plain = [await sealing.unseal(tx, found.tenant_id, purpose, one) for one in found.secrets]
    return msgspec.structs.replace(found, secrets=type(found.secrets)(plain))


async def take_delivery(tx: Tx, hook_id: UUID, *, key: bytes, event_id: UUID) -> bool:
    """Store a delivery; False if there is one with this key, or the hook is gone or disabled."""
    return bool(await tx.values(sql.take_delivery, {"hook_id": hook_id, "key": key, "event_id": event_id}))


async def find_delivery(tx: Tx, hook_id: UUID, *, key: bytes) -> UUID | None:
    """The event of the delivery with this key."""
    found = await tx.values(sql.earlier_delivery, {"hook_id": hook_id, "key": key})
    return found[0][0] if found else None


async def list_events(tx: Tx, hook_id: UUID, *, limit: int) -> list[HookEvent]:
    """The newest deliveries that became events."""
    return await tx.all(HookEvent, sql.events_of, {"hook_id": hook_id, "limit": limit})


async def note_refusal(tx: Tx, hook_id: UUID, refusal: Refusal) -> None:
    """Record that a hook refused a delivery just now."""
    await tx.run(sql.note_refusal, {"id": hook_id, "refusal": refusal})


async def remove_old(tx: Tx, *, days: int) -> None:
    """Forget deliveries of more than `days` ago, and secrets that are no longer valid."""
    await tx.run(sql.forget_deliveries, {"days": days})
    await tx.run(sql.forget_secrets)
