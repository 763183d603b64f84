"""The subject of a preview: a stored trigger, a stored trigger with changes, or a trigger that does not exist yet."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions import triggers as rules
from fairlead.actions.trigger_spec import asked_of, spec_of
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal, Tenant
from fairlead.model.definition import Definition
from fairlead.model.request import unknown_definition
from fairlead.model.trigger import Trigger
from fairlead.store import definitions, triggers
from fairlead.store.triggers import TriggerSpec

# The id of a trigger that does not exist yet.
NOBODY = UUID(int=0)


class WantedTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """A stored trigger, with or without the changes of a document; or a tenant's new trigger from a document."""

    id: UUID | None = None
    tenant: str | None = None
    document: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Subject(msgspec.Struct, frozen=True):
    """A trigger, as stored or as it would be, and its definition."""

    trigger: Trigger
    definition: Definition


async def subject_of(tx: Tx, principal: Principal, wanted: WantedTrigger) -> Subject:
    """Find or build the trigger to preview; refuses an invalid one."""
    if wanted.id is None:
        whose = await rules.tenant_of(tx, principal, str(wanted.tenant), Permission.READ_TRIGGERS)
        return await _thought_of(tx, principal, whose, wanted.document)
    old = await rules.as_kept(tx, principal, wanted.id)
    if wanted.document:
        return await _changed(tx, old, wanted.document)
    definition = (await definitions.by_keys(tx, [old.definition_key])).get(old.definition_key)
    if definition is None or not definition.is_for(old.tenant_id):
        raise unknown_definition(old.definition_key)
    return Subject(old, definition)


async def _thought_of(tx: Tx, principal: Principal, whose: Tenant, document: Mapping[str, Any]) -> Subject:
    asked = asked_of(document)
    definition = await rules.active_definition(tx, asked.definition_key, whose.id)
    now = await triggers.moment(tx)
    spec = spec_of(asked, definition_id=definition.id, zone=whose.timezone, now=now)
    trigger = Trigger(
        id=NOBODY,
        tenant_id=whose.id,
        tenant=whose.slug,
        tenant_name=whose.name,
        tenant_timezone=whose.timezone,
        definition_key=definition.key,
        secret_paths=definition.secret_paths,
        owner=None,
        name=None,
        last_fired_at=None,
        created_by=principal.actor,
        created_at=now,
        updated_at=now,
        **_fields(spec),
    )
    return Subject(trigger, definition)


async def _changed(tx: Tx, old: Trigger, document: Mapping[str, Any]) -> Subject:
    asked = rules.changed(tx, old, document)
    definition = await rules.active_definition(tx, asked.definition_key, old.tenant_id)
    spec = spec_of(
        asked,
        definition_id=definition.id,
        zone=old.tenant_timezone,
        now=await triggers.moment(tx),
        unless_changed_from=old,
    )
    new = replace(old, definition_key=definition.key, secret_paths=definition.secret_paths, **_fields(spec))
    return Subject(new, definition)


def _fields(spec: TriggerSpec) -> dict[str, Any]:
    fields = {name: getattr(spec, name) for name in TriggerSpec.__struct_fields__}
    return fields | {"filter": spec.filter or {}}
