"""Turn deliveries to hooks into events, each once."""

from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace
from uuid_utils.compat import uuid7

from fairlead.actions import events, hooks
from fairlead.actions.catalog import Catalog
from fairlead.db.tx import Tx
from fairlead.errors import HookDisabled
from fairlead.model.access import Permission, Principal, Role
from fairlead.model.event import NewEvent
from fairlead.model.hooks.delivery import ABOUT, HookDelivery
from fairlead.model.hooks.hook import Hook, KeyedHook, Refusal, build_event_name
from fairlead.model.payload import find_storage_flaw
from fairlead.store import hooks as store

TEST_TYPE = "test"


class Receipt(NamedTuple):
    """The event that a delivery became; `duplicate` if an earlier delivery became it."""

    event_id: UUID
    duplicate: bool


async def find_keyed(tx: Tx, *, tenant: str, name: str) -> KeyedHook | None:
    """A hook with its secrets, for a delivery that names it. The transaction must be the system's."""
    return None if find_storage_flaw(tenant + name) else await store.find_keyed(tx, tenant=tenant, name=name)


async def receive(tx: Tx, catalog: Catalog, hook: KeyedHook, delivery: HookDelivery) -> Receipt:
    """Store the event of a verified delivery, unless an earlier one with the same key became an event."""
    event_id = uuid7()
    if not await store.take_delivery(tx, hook.id, key=delivery.key, event_id=event_id):
        earlier = await store.find_delivery(tx, hook.id, key=delivery.key)
        if earlier is None:
            raise disabled_error()
        return Receipt(earlier, duplicate=True)
    actor = Principal(f"hook:{hook.name}", Role.APPLICATION, hook.tenant_id, id=hook.id)
    new = NewEvent(
        id=event_id,
        tenant=str(hook.tenant_id),
        name=build_event_name(hook.event_name, delivery.type),
        data=delivery.data,
        correlation_id=delivery.id,
    )
    return Receipt(await events.emit(tx, actor, catalog, new), duplicate=False)


async def note_refusal(tx: Tx, hook_id: UUID, refusal: Refusal) -> None:
    """Record for a hook's tenant that a delivery was refused just now."""
    await store.note_refusal(tx, hook_id, refusal)


async def send_test(tx: Tx, principal: Principal, catalog: Catalog, hook: Hook) -> UUID:
    """Emit an event like that of a delivery of the type `test`, to try a hook's triggers."""
    principal.require(Permission.MANAGE_TRIGGERS, hook.tenant_id)
    await hooks.get(tx, principal, hook.id)
    about = {"hook": hook.name, "scheme": str(hook.scheme), "type": TEST_TYPE, "id": None}
    new = NewEvent(
        tenant=str(hook.tenant_id),
        name=build_event_name(hook.event_name, TEST_TYPE),
        data={ABOUT: about, "test": True},
    )
    return await events.emit(tx, replace(principal, tenant_id=hook.tenant_id), catalog, new)


def disabled_error() -> HookDisabled:
    """The error for a delivery to a disabled hook."""
    return HookDisabled("This hook is disabled. Send the delivery again later.")
