"""The subject of a preview: a stored trigger, a stored trigger with changes, or a trigger that does not exist yet."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions import triggers as rules
from fairlead.actions.trigger_spec import build_spec, parse_request
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal, Tenant
from fairlead.model.definition import Definition
from fairlead.model.request import unknown_definition
from fairlead.model.trigger import Trigger
from fairlead.store import definitions, triggers
from fairlead.store.triggers import TriggerSpec

# The id of a trigger that does not exist yet.
NEW_TRIGGER_ID = UUID(int=0)


class TriggerChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A stored trigger, with or without the changes of a document; or a tenant's new trigger from a document."""

    id: UUID | None = None
    tenant: str | None = None
    document: Mapping[str, Any] = msgspec.field(default_factory=dict)


class PreviewSubject(msgspec.Struct, frozen=True):
    """A trigger, as stored or as it would be, and its definition."""

    trigger: Trigger
    definition: Definition


async def find_subject(tx: Tx, principal: Principal, wanted: TriggerChoice) -> PreviewSubject:
    """Find or build the trigger to preview; refuses an invalid one."""
    if wanted.id is None:
        whose = await rules.find_tenant(tx, principal, str(wanted.tenant), Permission.READ_TRIGGERS)
        return await _build_new(tx, principal, whose, wanted.document)
    old = await rules.get_unmasked(tx, principal, wanted.id)
    if wanted.document:
        return await _build_changed(tx, old, wanted.document)
    definition = (await definitions.get_by_keys(tx, [old.definition_key])).get(old.definition_key)
    if definition is None or not definition.is_for(old.tenant_id):
        raise unknown_definition(old.definition_key)
    return PreviewSubject(old, definition)


async def _build_new(
    tx: Tx, principal: Principal, whose: Tenant, document: Mapping[str, Any]
) -> PreviewSubject:
    asked = parse_request(document)
    definition = await rules.get_active_definition(tx, asked.definition_key, whose.id)
    now = await triggers.read_clock(tx)
    spec = build_spec(asked, definition_id=definition.id, zone=whose.timezone, now=now)
    trigger = Trigger(
        id=NEW_TRIGGER_ID,
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
    return PreviewSubject(trigger, definition)


async def _build_changed(tx: Tx, old: Trigger, document: Mapping[str, Any]) -> PreviewSubject:
    asked = rules.merge_changes(tx, old, document)
    definition = await rules.get_active_definition(tx, asked.definition_key, old.tenant_id)
    spec = build_spec(
        asked,
        definition_id=definition.id,
        zone=old.tenant_timezone,
        now=await triggers.read_clock(tx),
        unless_changed_from=old,
    )
    new = replace(old, definition_key=definition.key, secret_paths=definition.secret_paths, **_fields(spec))
    return PreviewSubject(new, definition)


def _fields(spec: TriggerSpec) -> dict[str, Any]:
    fields = {name: getattr(spec, name) for name in TriggerSpec.__struct_fields__}
    return fields | {"filter": spec.filter or {}}
