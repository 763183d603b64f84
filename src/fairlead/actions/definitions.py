"""Definitions: listed, and made to say what somebody wants them to say."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.tx import Tx
from fairlead.errors import DefinitionExists, DefinitionInvalid, Fault
from fairlead.model.access import Permission, Principal
from fairlead.model.definition import Definition, DefinitionSpec
from fairlead.model.payload import unreadable
from fairlead.store import audit, definitions

_FIELDS = frozenset(field.name for field in fields(DefinitionSpec))


async def every(tx: Tx, principal: Principal) -> list[Definition]:
    """All definitions, by key."""
    principal.require(Permission.READ_DEFINITIONS, principal.tenant_id)
    return await definitions.every(tx)


async def page(tx: Tx, principal: Principal, *, after: str, limit: int) -> list[Definition]:
    """Definitions by key, after this one."""
    principal.require(Permission.READ_DEFINITIONS, principal.tenant_id)
    return await definitions.page(tx, after=after, limit=limit)


async def find(tx: Tx, principal: Principal, name: str) -> Definition | None:
    """A definition by key or id, if it is there."""
    principal.require(Permission.READ_DEFINITIONS, principal.tenant_id)
    return None if unreadable(name) else await definitions.get(tx, name)


async def by_keys(tx: Tx, principal: Principal, keys: Sequence[str]) -> dict[str, Definition]:
    """Those of the keys that exist."""
    principal.require(Permission.READ_DEFINITIONS, principal.tenant_id)
    return await definitions.by_keys(tx, keys)


async def put(tx: Tx, principal: Principal, spec: DefinitionSpec) -> Definition:
    """Create the definition or change it to this; a call that changes nothing leaves no trace."""
    principal.require(Permission.MANAGE_DEFINITIONS)
    changed = await definitions.put(tx, spec)
    if changed is None:
        return (await definitions.by_keys(tx, [spec.key]))[spec.key]
    await audit.write(
        tx,
        actor=principal.actor,
        action="definition_created" if changed.version == 1 else "definition_changed",
        resource_type="definition",
        resource_id=changed.id,
        details={"key": changed.key, "version": changed.version},
    )
    return changed


async def create(tx: Tx, principal: Principal, values: Mapping[str, Any]) -> Definition:
    """A new definition; one that is there already is not touched."""
    principal.require(Permission.MANAGE_DEFINITIONS)
    spec = read(values)
    if spec.key in await definitions.by_keys(tx, [spec.key]):
        raise _exists(spec.key)
    made = await put(tx, principal, spec)
    if made.version > 1:  # somebody else made it at the same moment
        raise _exists(spec.key)
    return made


def _exists(key: str) -> DefinitionExists:
    return DefinitionExists(
        f"There is a definition {key!r} already. Change it, or use another key.", [Fault("key", "taken")]
    )


async def patch(tx: Tx, principal: Principal, key: str, changes: Mapping[str, Any]) -> Definition:
    """Change only what is given; what is not there yet starts from the defaults."""
    principal.require(Permission.MANAGE_DEFINITIONS)
    current = (await definitions.by_keys(tx, [key])).get(key)
    given = {} if current is None else {name: getattr(current, name) for name in _FIELDS}
    return await put(tx, principal, read({**given, **changes, "key": key}))


async def register(
    tx: Tx, principal: Principal, key: str, changes: Mapping[str, Any], *, tenant_id: UUID
) -> Definition:
    """The definition of a function that is registered for a tenant: visible to it, and to whoever else registers the same.

    One that is there for everybody stays so.
    """
    known = (await definitions.by_keys(tx, [key])).get(key)
    made = await patch(tx, principal, key, changes)
    if known is None or known.only_tenants is not None:
        await definitions.share(tx, key, tenant_id=tenant_id)
    return made


async def unregister(tx: Tx, principal: Principal, key: str) -> None:
    """Deactivate the definition of a registered function that is registered for no tenant any more."""
    principal.require(Permission.MANAGE_DEFINITIONS)
    await definitions.retire(tx, key)


def read(values: Mapping[str, Any]) -> DefinitionSpec:
    """A definition from plain values, with unknown fields and wrong types refused by name."""
    if unknown := sorted(set(values) - _FIELDS):
        raise DefinitionInvalid(
            f"A definition has no field {unknown[0]!r}. Fields: {', '.join(sorted(_FIELDS))}.",
            [Fault(name, "unknown field") for name in unknown],
        )
    try:
        return msgspec.convert(msgspec.to_builtins(dict(values)), DefinitionSpec)
    except msgspec.ValidationError as error:
        raise DefinitionInvalid(f"The definition is not valid: {error}", [Fault("", str(error))]) from error
