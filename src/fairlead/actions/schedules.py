"""Schedules and triggers that an application's code declares: created, changed and removed to match the code."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from fairlead.actions import jobs, quotas
from fairlead.actions import triggers as rules
from fairlead.db.tx import Tx
from fairlead.errors import Fault, RegistrationUnknown, SignatureInvalid, TenantUnknown
from fairlead.model.access import Permission, Principal
from fairlead.model.definition import Definition
from fairlead.model.request import unknown_definition, unknown_tenant
from fairlead.model.reserved_key import build_trigger_key
from fairlead.model.template.spec import compile_template, find_template_faults
from fairlead.model.trigger import Trigger, TriggerSpec, TriggerType
from fairlead.model.trigger_kinds import KINDS, find_type
from fairlead.model.trigger_spec import build_spec, parse_request
from fairlead.store import bulk, definitions, sealed_triggers, tenants, triggers

# Fields that the operator controls, unless the code sets them.
_OPERATED = ("is_enabled", "dedupe_window_seconds")
# The names of the types in code.
WORDS = {name: kind.noun for name, kind in KINDS.items()}


class DeclaredTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule or event trigger that code declares: its owner, its name in the code, and its fields."""

    owner: str
    name: str
    tenant: str
    says: Mapping[str, Any]

    @property
    def trigger_type(self) -> TriggerType:
        return find_type(self.says)


def check_declared(kept: DeclaredTrigger, arg_schema: Any) -> None:
    """Refuse, where the code declares it, a trigger that is invalid or would never create a job."""
    now = datetime.now(UTC)  # the time does not matter for the checks
    no_id = UUID(int=0)
    asked = parse_request(_document_of(kept, None, now))
    spec = build_spec(asked, trigger_id=no_id, definition_id=no_id, zone="UTC", now=now)
    template = compile_template(spec.payload_template, KINDS[kept.trigger_type].roots)
    faults = find_template_faults(template, arg_schema)
    if faults:
        raise SignatureInvalid(
            f"The {WORDS[kept.trigger_type]} {kept.name!r} cannot call its function: {faults[0].path or 'the payload'} "
            f"{faults[0].message}. Give it a payload= that fits.",
            faults,
        )


async def keep_trigger(
    tx: Tx, principal: Principal, kept: DeclaredTrigger, *, at_once: bool = False, within_quota: bool = False
) -> Trigger:
    """Create or change a trigger to match the code; writes nothing if it matches.

    With `at_once`, a new or restarted schedule that began in the past runs now. With `within_quota`, a new trigger is
    refused if the tenant is at its quota of triggers.
    """
    principal.require(Permission.MANAGE_TRIGGERS, principal.tenant_id)
    tenant = await tenants.get(tx, kept.tenant)
    if tenant is None:
        raise TenantUnknown(
            f"There is no tenant {kept.tenant[:80]!r} to have the {WORDS[kept.trigger_type]} {kept.name!r}. "
            "Add it first, with fl.add_tenant or: fairlead tenants add SLUG",
            [Fault("tenant", "unknown")],
        )
    key = kept.says["definition_key"]
    definition = (await definitions.get_by_keys(tx, [key])).get(key)
    if definition is None:
        raise unknown_definition(key)
    now, new_id = await triggers.read_clock(tx), uuid7()

    def spec(old: Trigger | None) -> TriggerSpec:
        return build_spec(
            parse_request(_document_of(kept, old, now)),
            trigger_id=new_id if old is None else old.id,
            definition_id=definition.id,
            zone=tenant.timezone,
            now=now,
            unless_changed_from=old,
            at_once=at_once,
        )

    old = await triggers.lock_named(tx, tenant_id=tenant.id, owner=kept.owner, name=kept.name)
    if old is None:
        if within_quota:
            await quotas.require_trigger(tx, tenant.id)
        made = await triggers.add(
            tx,
            await rules.seal_spec(tx, spec(None), definition, trigger_id=new_id, tenant_id=tenant.id),
            trigger_id=new_id,
            tenant_id=tenant.id,
            created_by=principal.actor,
            owner=kept.owner,
            name=kept.name,
        )
        if made is not None:
            return (await rules.report_saved(tx, principal, "trigger_created", made, definition)).trigger
        # another instance created it first
        old = await triggers.lock_named(tx, tenant_id=tenant.id, owner=kept.owner, name=kept.name)
    if old is None:
        raise RegistrationUnknown("Another instance removed this trigger at the same moment; try again.")
    return await _apply_change(tx, principal, old, spec(old), definition, now=now)


def _document_of(kept: DeclaredTrigger, old: Trigger | None, now: datetime) -> dict[str, Any]:
    fields = {"label": kept.name, **kept.says, "trigger_type": kept.trigger_type}
    if fields.get("every_seconds") is not None and fields.get("start_at") is None:
        # it keeps the start of its first registration
        fields["start_at"] = _start_before(fields.get("end_at"), None if old is None else old.start_at, now)
    if old is None:
        return fields
    return fields | {name: getattr(old, name) for name in _OPERATED if fields.get(name) is None}


def _start_before(end_at: datetime | None, start_at: datetime | None, now: datetime) -> datetime | None:
    """A start that its end allows: code whose schedule is over must still start."""
    if end_at is None or (start_at or now) < end_at:
        return start_at
    return end_at - timedelta(seconds=1)


async def _apply_change(
    tx: Tx, principal: Principal, old: Trigger, spec: TriggerSpec, definition: Definition, *, now: datetime
) -> Trigger:
    opened = await sealed_triggers.open_trigger(tx, old)
    if all(getattr(opened, name) == getattr(spec, name) for name in TriggerSpec.__struct_fields__):
        return rules.mask_trigger(tx, old)
    spec = await rules.seal_spec(tx, spec, definition, trigger_id=old.id, tenant_id=old.tenant_id)
    await rules.apply_spec(tx, old, spec, now=now)
    return (await rules.report_saved(tx, principal, "trigger_changed", old.id, definition)).trigger


async def keep_triggers(
    tx: Tx, principal: Principal, owners: Sequence[str], kept: Sequence[DeclaredTrigger]
) -> tuple[list[Trigger], list[Trigger]]:
    """Make the triggers match these code bases, and remove those that the code no longer declares. The kept and the removed.

    They count as triggers of their tenants, but none is refused: otherwise a tenant at its quota would prevent the
    processes that run this code, and serve every tenant, from starting.
    """
    there = await triggers.lock_of_owners(tx, sorted(owners))
    # in one order, so that instances that start together cannot deadlock
    in_order = sorted(kept, key=lambda one: (one.tenant, one.owner, one.name))
    held = [await keep_trigger(tx, principal, one) for one in in_order]
    wanted = {one.id for one in held}
    gone = [one for one in there if one.id not in wanted]
    for dropped in gone:
        await _remove(tx, principal, dropped)
    return held, gone


async def drop_trigger(tx: Tx, principal: Principal, *, owner: str, name: str, tenant_id: UUID) -> None:
    """Remove a trigger that code declared, and cancel its waiting job; does nothing if it is gone."""
    old = await triggers.lock_named(tx, tenant_id=tenant_id, owner=owner, name=name)
    if old is not None:
        await _remove(tx, principal, old)


async def _remove(tx: Tx, principal: Principal, old: Trigger) -> None:
    await rules.remove(tx, principal, old.id)
    holder = await bulk.find_key_holder(tx, bulk.key_of(old.tenant_id, build_trigger_key(old.id)))
    if holder is not None:
        await jobs.cancel_waiting(tx, principal, holder)


async def update_zone(tx: Tx, tenant: str, *, was: str) -> None:
    """Recompute the next firings of schedules that use the tenant's time zone, after it changed."""
    found = await tenants.get(tx, tenant)
    if found is None:
        raise unknown_tenant(tenant)
    now = await triggers.read_clock(tx)
    for one in await triggers.lock_in_tenants_zone(tx, found.id):
        asked = parse_request(rules.build_document(one))
        spec = build_spec(
            asked, trigger_id=one.id, definition_id=one.definition_id, zone=found.timezone, now=now
        )
        await rules.apply_spec(tx, replace(one, tenant_timezone=was), spec, now=now)
    await bulk.notify(tx, "schedule")
