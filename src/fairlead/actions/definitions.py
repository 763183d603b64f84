"""List, create and change definitions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.db.tx import Tx
from fairlead.errors import DefinitionExists, DefinitionInvalid, Fault
from fairlead.model.access import Permission, Principal, Role
from fairlead.model.definition import Definition, DefinitionSpec
from fairlead.model.page import Page
from fairlead.model.payload import find_storage_flaw
from fairlead.model.secrets.pointers import list_secret_pointers, unreadable_error
from fairlead.model.secrets.redact import is_hidden_by, secret_paths
from fairlead.store import audit, bulk, definition_history, definitions, sealing, tenants

# Not part of DefinitionSpec: registrations by code do not change it.
ONLY_TENANTS = "only_tenants"
_FIELDS = frozenset(DefinitionSpec.__struct_fields__)


async def get_ids(tx: Tx) -> dict[str, UUID]:
    """The ids of all definitions by key, for an agent that says which it can run."""
    return await definitions.get_ids(tx, None)


async def list_all(tx: Tx, principal: Principal) -> list[Definition]:
    """All definitions, by key."""
    principal.require(Permission.READ_DEFINITIONS, principal.tenant_id)
    return _filter_visible(principal, await definitions.list_all(tx))


async def list_page(tx: Tx, principal: Principal, *, after: str, limit: int) -> Page[Definition]:
    """Definitions ordered by key, after the given key."""
    principal.require(Permission.READ_DEFINITIONS, principal.tenant_id)
    found = await definitions.list_page(tx, tenant_id=principal.tenant_id, after=after, limit=limit)
    return found.with_rows(_filter_visible(principal, found))


async def find(tx: Tx, principal: Principal, name: str) -> Definition | None:
    """A definition by key or id, if it exists."""
    principal.require(Permission.READ_DEFINITIONS, principal.tenant_id)
    found = None if find_storage_flaw(name) else await definitions.get(tx, name)
    return next(iter(_filter_visible(principal, [] if found is None else [found])), None)


async def get_by_keys(tx: Tx, principal: Principal, keys: Sequence[str]) -> dict[str, Definition]:
    """Those of the keys that exist."""
    principal.require(Permission.READ_DEFINITIONS, principal.tenant_id)
    found = await definitions.get_by_keys(tx, keys)
    return {one.key: one for one in _filter_visible(principal, found.values())}


def _filter_visible(principal: Principal, found: Iterable[Definition]) -> list[Definition]:
    """The definitions that the principal's tenant can use. Only super admins see the other tenants of each."""
    own = [one for one in found if principal.tenant_id is None or one.is_for(principal.tenant_id)]
    if principal.role is Role.SUPER_ADMIN:
        return own
    return [one if one.only_tenants is None else replace(one, only_tenants=None) for one in own]


async def put(tx: Tx, principal: Principal, spec: DefinitionSpec) -> Definition:
    """Create or change the definition; a call that changes nothing writes nothing.

    Where the database encrypts, no limit, cost or resource may be read from a secret field.
    """
    principal.require(Permission.MANAGE_DEFINITIONS)
    if (faults := list_secret_pointers(spec)) and await sealing.hold_state(tx):
        raise unreadable_error(spec.key, faults)
    changed = await definitions.upsert(tx, spec)
    if changed is None:
        return (await definitions.get_by_keys(tx, [spec.key]))[spec.key]
    await definition_history.add(tx, changed, actor=principal.actor)
    await audit.write(
        tx,
        actor=principal.actor,
        action="definition_created" if changed.version == 1 else "definition_changed",
        resource_type="definition",
        resource_id=changed.id,
        details={"key": changed.key, "version": changed.version},
    )
    if changed.version > 1:
        await bulk.notify(tx, "ready")  # workers wait until a former rate allows the next start
    return changed


async def create(tx: Tx, principal: Principal, values: Mapping[str, Any]) -> Definition:
    """Create a definition; refuses an existing key."""
    principal.require(Permission.MANAGE_DEFINITIONS)
    values = dict(values)
    only = values.pop(ONLY_TENANTS, None)
    spec = parse(values)
    if spec.key in await definitions.get_by_keys(tx, [spec.key]):
        raise _exists_error(spec.key)
    made = await put(tx, principal, spec)
    if made.version > 1:  # another transaction created it at the same moment
        raise _exists_error(spec.key)
    return await set_tenants(tx, principal, spec.key, only) if only else made


def _exists_error(key: str) -> DefinitionExists:
    return DefinitionExists(
        f"There is a definition {key!r} already. Change it, or use another key.", [Fault("key", "taken")]
    )


async def patch(tx: Tx, principal: Principal, key: str, changes: Mapping[str, Any]) -> Definition:
    """Change the given fields; a new definition starts from the defaults."""
    principal.require(Permission.MANAGE_DEFINITIONS)
    current = (await definitions.get_by_keys(tx, [key])).get(key)
    given = {} if current is None else {name: getattr(current, name) for name in _FIELDS}
    fields = {name: value for name, value in changes.items() if name != ONLY_TENANTS}
    made = await put(tx, principal, parse({**given, **fields, "key": key}))
    return await set_tenants(tx, principal, key, changes[ONLY_TENANTS]) if ONLY_TENANTS in changes else made


async def publish(tx: Tx, principal: Principal, key: str, changes: Mapping[str, Any]) -> Definition:
    """`patch` with what code says; refuses a schema that no longer hides a field which the stored one marks as secret.

    Payloads are masked as the present definition says, so the secrets of all earlier jobs would be shown, too.
    """
    current = (await definitions.get_by_keys(tx, [key])).get(key)
    if current is not None and "arg_schema" in changes:
        _require_marks(current, changes["arg_schema"])
    return await patch(tx, principal, key, changes)


def _require_marks(current: Definition, schema: Any) -> None:
    hidden = secret_paths(schema)
    shown = [path for path in secret_paths(current.arg_schema) if not is_hidden_by(path, hidden)]
    if shown:
        raise DefinitionInvalid(
            f"The definition {current.key!r} marks {', '.join(shown)} as secret, and the code does not: its values would be "
            "shown, those of earlier jobs, too. Mark it in the code, in Python with Annotated[…, Secret()]. If all may see "
            f"them, change the definition first: fairlead definitions put {current.key} --arg-schema '{{}}'",
            [Fault(path, "is secret in the definition, and not in the code") for path in shown],
        )


async def set_tenants(tx: Tx, principal: Principal, key: str, only: Sequence[str] | None) -> Definition:
    """Let only these tenants, by slug or id, see and use a definition. None or empty: all tenants."""
    principal.require(Permission.MANAGE_DEFINITIONS)
    names = [str(one) for one in only or ()]
    known = await tenants.get_ids(tx, [one for one in names if not find_storage_flaw(one)])
    if faults := [Fault(ONLY_TENANTS, f"unknown: {one[:80]!r}") for one in names if one not in known]:
        raise DefinitionInvalid(
            f"The definition {key!r} is not valid: {ONLY_TENANTS}: {faults[0].message}.", faults
        )
    ids = sorted({known[one] for one in names})
    changed = await definitions.set_tenants(tx, key, ids or None)
    if changed is None:
        return (await definitions.get_by_keys(tx, [key]))[key]
    await audit.write(
        tx,
        actor=principal.actor,
        action="definition_limited",
        resource_type="definition",
        resource_id=changed.id,
        details={"key": key, "version": changed.version, ONLY_TENANTS: [str(one) for one in ids] or None},
    )
    return changed


async def register(
    tx: Tx, principal: Principal, key: str, changes: Mapping[str, Any], *, tenant_id: UUID
) -> Definition:
    """Register a function's definition for a tenant: visible to it, and to other tenants that register the same.

    A definition that all tenants can use stays so.
    """
    known = (await definitions.get_by_keys(tx, [key])).get(key)
    made = await patch(tx, principal, key, changes)
    if known is None or known.only_tenants is not None:
        await definitions.add_tenant(tx, key, tenant_id=tenant_id)
    return made


async def unregister(tx: Tx, principal: Principal, key: str) -> None:
    """Deactivate the definition of a registered function that is registered for no tenant any more."""
    principal.require(Permission.MANAGE_DEFINITIONS)
    await definitions.retire(tx, key)


def parse(values: Mapping[str, Any]) -> DefinitionSpec:
    """A definition from plain values, with unknown fields and wrong types refused by name."""
    if unknown := sorted(set(values) - _FIELDS):
        raise DefinitionInvalid(
            f"A definition has no field {unknown[0]!r}. Fields: {', '.join(sorted(_FIELDS | {ONLY_TENANTS}))}.",
            [Fault(name, "unknown field") for name in unknown],
        )
    try:
        return msgspec.convert(msgspec.to_builtins(dict(values)), DefinitionSpec)
    except msgspec.ValidationError as error:
        raise DefinitionInvalid(f"The definition is not valid: {error}", [Fault("", str(error))]) from error
