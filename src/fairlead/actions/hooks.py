"""Create, list, change and remove hooks, and rotate their secrets."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.errors import Fault, HookExists, HookInvalid, HookUnknown
from fairlead.model.access import Permission, Principal
from fairlead.model.hooks.hook import (
    DEFAULT_TOLERANCE,
    Hook,
    Scheme,
    UniqueBy,
    check_hook,
    check_secret,
    default_event_name,
    generate_secret,
)
from fairlead.model.page import Page
from fairlead.store import audit, hooks
from fairlead.store.hooks import HookEvent

# The notification of transactions after which a hook, or one of its secrets, is no longer what it was.
HOOKS_CHANGED = "hooks"
# Of a tenant.
MOST_HOOKS = 200
MAX_PAGE = 1000
# How long the secret before a new one stays valid.
DEFAULT_KEEP_SECONDS = 86_400
LONGEST_KEEP_SECONDS = 7 * 86_400
CHANGEABLE = ("event_name", "unique_by", "tolerance_seconds", "is_enabled")


class HookSecret(NamedTuple):
    """A hook, and its new secret if it was generated here: it is shown only once."""

    hook: Hook
    secret: str | None


async def create(
    tx: Tx,
    principal: Principal,
    *,
    tenant_id: UUID,
    name: str,
    scheme: Scheme,
    event_name: str | None = None,
    secret: str | None = None,
    unique_by: UniqueBy = UniqueBy.ID,
    tolerance_seconds: int = DEFAULT_TOLERANCE,
    is_enabled: bool = True,
) -> HookSecret:
    """Create a hook. Without a secret one is generated, if the scheme allows it."""
    principal.require(Permission.MANAGE_TRIGGERS, tenant_id)
    event_name = default_event_name(name) if event_name is None else event_name
    check_hook(name=name, event_name=event_name, tolerance_seconds=tolerance_seconds)
    generated = None if secret is not None else generate_secret(scheme)
    valid = check_secret(scheme, generated or secret or "")
    if await hooks.count(tx, tenant_id=tenant_id) >= MOST_HOOKS:
        raise HookInvalid(f"This tenant has {MOST_HOOKS} hooks already. Remove some that are not used.")
    hook_id = await hooks.add(
        tx,
        tenant_id=tenant_id,
        name=name,
        scheme=scheme,
        event_name=event_name,
        unique_by=unique_by,
        tolerance_seconds=tolerance_seconds,
        is_enabled=is_enabled,
        created_by=principal.actor,
    )
    if hook_id is None:
        raise HookExists(
            f"There is a hook {name!r} already. Choose another name, or remove that one.",
            [Fault("name", "taken")],
        )
    await hooks.set_secret(tx, hook_id, tenant_id=tenant_id, secret=valid, keep_seconds=0)
    tx.notify(HOOKS_CHANGED)
    hook = await _get(tx, hook_id, principal.tenant_id)
    await _audit(tx, principal, "hook_created", hook, {"scheme": scheme, "event_name": event_name})
    return HookSecret(hook, generated)


async def list_hooks(
    tx: Tx, principal: Principal, *, after: UUID | None = None, limit: int = 100
) -> Page[Hook]:
    """Hooks of the principal's tenant, or of all, oldest first."""
    principal.require(Permission.READ_TRIGGERS, principal.tenant_id)
    return await hooks.list_page(tx, tenant_id=principal.tenant_id, after=after, limit=min(limit, MAX_PAGE))


async def get(tx: Tx, principal: Principal, hook_id: UUID) -> Hook:
    """A hook."""
    principal.require(Permission.READ_TRIGGERS, principal.tenant_id)
    return await _get(tx, hook_id, principal.tenant_id)


async def find(tx: Tx, principal: Principal, name: str) -> Hook:
    """A hook by its name or id; refuses a name of several tenants' hooks."""
    principal.require(Permission.READ_TRIGGERS, principal.tenant_id)
    try:
        return await _get(tx, UUID(name), principal.tenant_id)
    except ValueError:
        found = await hooks.list_named(tx, name, tenant_id=principal.tenant_id)
    if not found:
        raise _unknown_hook(name)
    if len(found) > 1:
        raise HookInvalid(
            f"Several tenants have a hook {name!r}: name the tenant.", [Fault("tenant", "is required")]
        )
    return found[0]


async def list_events(tx: Tx, principal: Principal, hook_id: UUID, *, limit: int) -> list[HookEvent]:
    """The newest events that a hook's deliveries became."""
    principal.require(Permission.READ_EVENTS, principal.tenant_id)
    hook = await get(tx, principal, hook_id)
    return await hooks.list_events(tx, hook.id, limit=min(limit, MAX_PAGE))


async def change(tx: Tx, principal: Principal, hook_id: UUID, changes: Mapping[str, Any]) -> Hook:
    """Change the given fields of a hook: event_name, unique_by, tolerance_seconds, is_enabled."""
    old = await _get_managed(tx, principal, hook_id)
    new = {
        name: changes[name] for name in CHANGEABLE if name in changes and changes[name] != getattr(old, name)
    }
    if not new:
        return old
    values = {name: new.get(name, getattr(old, name)) for name in CHANGEABLE}
    check_hook(name=old.name, event_name=values["event_name"], tolerance_seconds=values["tolerance_seconds"])
    await hooks.change(tx, old.id, **values)
    tx.notify(HOOKS_CHANGED)
    await _audit(tx, principal, "hook_changed", old, new)
    return await _get(tx, old.id, principal.tenant_id)


async def rotate_secret(
    tx: Tx,
    principal: Principal,
    hook_id: UUID,
    *,
    secret: str | None = None,
    keep_seconds: int = DEFAULT_KEEP_SECONDS,
) -> HookSecret:
    """Give a hook a new secret; the old one stays valid for `keep_seconds` (0: it is invalid at once)."""
    hook = await _get_managed(tx, principal, hook_id)
    if not 0 <= keep_seconds <= LONGEST_KEEP_SECONDS:
        raise HookInvalid(
            f"Invalid hook: keep_seconds must be 0 to {LONGEST_KEEP_SECONDS}.",
            [Fault("keep_seconds", f"must be 0 to {LONGEST_KEEP_SECONDS}")],
        )
    generated = None if secret is not None else generate_secret(hook.scheme)
    valid = check_secret(hook.scheme, generated or secret or "")
    await hooks.set_secret(tx, hook.id, tenant_id=hook.tenant_id, secret=valid, keep_seconds=keep_seconds)
    tx.notify(HOOKS_CHANGED)
    await _audit(tx, principal, "hook_secret_rotated", hook, {"keep_seconds": keep_seconds})
    return HookSecret(await _get(tx, hook.id, principal.tenant_id), generated)


async def remove(tx: Tx, principal: Principal, hook_id: UUID) -> Hook:
    """Remove a hook. Its events stay."""
    hook = await _get_managed(tx, principal, hook_id)
    await hooks.remove(tx, hook.id)
    tx.notify(HOOKS_CHANGED)
    await _audit(tx, principal, "hook_removed", hook)
    return hook


async def _get_managed(tx: Tx, principal: Principal, hook_id: UUID) -> Hook:
    principal.require(Permission.MANAGE_TRIGGERS, principal.tenant_id)
    return await _get(tx, hook_id, principal.tenant_id)


async def _get(tx: Tx, hook_id: UUID, tenant_id: UUID | None) -> Hook:
    hook = await hooks.get(tx, hook_id, tenant_id=tenant_id)
    if hook is None:
        raise _unknown_hook(str(hook_id))
    return hook


def _unknown_hook(name: str) -> HookUnknown:
    return HookUnknown(f"There is no hook {name[:80]!r}.", [Fault("id", "unknown")])


async def _audit(
    tx: Tx, principal: Principal, action: str, hook: Hook, details: Mapping[str, Any] | None = None
) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="hook",
        resource_id=hook.id,
        tenant_id=hook.tenant_id,
        details={"name": hook.name, **(details or {})},
    )
