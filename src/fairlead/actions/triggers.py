"""Create, change, remove, list and fire triggers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from fairlead.actions import quotas
from fairlead.actions.catalog import Catalog
from fairlead.actions.enqueue import inactive_error
from fairlead.actions.firing import TriggerShot, fire
from fairlead.actions.schedule_firing import record_dropped
from fairlead.db.tx import Tx
from fairlead.errors import Fault, TriggerInvalid, TriggerUnknown
from fairlead.model.access import Permission, Principal, Tenant
from fairlead.model.definition import Definition
from fairlead.model.job import Source
from fairlead.model.page import Page
from fairlead.model.request import unknown_definition, unknown_tenant
from fairlead.model.secrets.destination import WHY, sends_secrets_anywhere
from fairlead.model.secrets.redact import mask_payload
from fairlead.model.secrets.restoration import restore_secrets
from fairlead.model.template.sealed import refuse_sealed_literals
from fairlead.model.template.secrets import find_secret_fields, mask_filter, mask_template
from fairlead.model.template.spec import compile_template, find_template_faults
from fairlead.model.trigger import (
    CatchUp,
    Firing,
    FiringOutcome,
    Overlap,
    Trigger,
    TriggerRequest,
    TriggerSpec,
)
from fairlead.model.trigger_kinds import kind_of
from fairlead.model.trigger_spec import REQUEST_FIELDS, build_spec, parse_request
from fairlead.model.workflow.spec import ENGINE_KEYS, ENGINE_RUN
from fairlead.store import (
    audit,
    bulk,
    definitions,
    firings,
    sealed_triggers,
    tenants,
    triggers,
    workflows,
)

MAX_PAGE = 1000


class SavedTrigger(msgspec.Struct, frozen=True):
    """A stored trigger, and warnings about problems with it."""

    trigger: Trigger
    warnings: list[Fault]


async def create(tx: Tx, principal: Principal, tenant: str, document: Mapping[str, Any]) -> SavedTrigger:
    """Create a trigger of a tenant from a document."""
    whose = await find_tenant(tx, principal, tenant)
    await quotas.require_trigger(tx, whose.id)
    refuse_sealed(document)
    asked = parse_request(document)
    definition = await get_active_definition(tx, asked.definition_key, whose.id)
    require_right(principal, definition, asked)
    now = await triggers.read_clock(tx)
    trigger_id = uuid7()
    spec = build_spec(asked, trigger_id=trigger_id, definition_id=definition.id, zone=whose.timezone, now=now)
    spec = await seal_spec(tx, spec, definition, trigger_id=trigger_id, tenant_id=whose.id)
    await triggers.add(tx, spec, trigger_id=trigger_id, tenant_id=whose.id, created_by=principal.actor)
    return await report_saved(tx, principal, "trigger_created", trigger_id, definition)


async def change(tx: Tx, principal: Principal, trigger_id: UUID, document: Mapping[str, Any]) -> SavedTrigger:
    """Change the given fields of a trigger; recomputes its next run if needed."""
    old = await lock_trigger(tx, principal, trigger_id)
    asked = await merge_changes(tx, old, document)
    definition = await get_active_definition(tx, asked.definition_key, old.tenant_id)
    if not {"definition_key", "payload_template"}.isdisjoint(document):
        require_right(principal, definition, asked)
    now = await triggers.read_clock(tx)
    spec = build_spec(
        asked,
        trigger_id=old.id,
        definition_id=definition.id,
        zone=old.tenant_timezone,
        now=now,
        unless_changed_from=old,
    )
    spec = await seal_spec(tx, spec, definition, trigger_id=old.id, tenant_id=old.tenant_id)
    await apply_spec(tx, old, spec, now=now)
    return await report_saved(tx, principal, "trigger_changed", old.id, definition, fields=sorted(document))


async def seal_spec(
    tx: Tx, spec: TriggerSpec, definition: Definition, *, trigger_id: UUID, tenant_id: UUID
) -> TriggerSpec:
    """The trigger as it is stored: with sealed literals where its jobs have secrets, if the database encrypts."""
    return await sealed_triggers.seal_spec(
        tx, spec, trigger_id=trigger_id, tenant_id=tenant_id, secret_paths=definition.secret_paths
    )


def refuse_sealed(document: Mapping[str, Any]) -> None:
    """Refuse a document with sealed values: only Fairlead seals."""
    for field in ("payload_template", "filter"):
        refuse_sealed_literals(document.get(field), field)


async def apply_spec(tx: Tx, old: Trigger, spec: TriggerSpec, *, now: datetime) -> None:
    """Change a locked trigger to a spec whose secrets are sealed, and record its due instants that the change drops."""
    await record_dropped(tx, old, spec, now=now)
    await triggers.change(tx, old.id, spec)


async def remove(tx: Tx, principal: Principal, trigger_id: UUID) -> Trigger:
    """Delete a trigger; its firings and jobs stay."""
    trigger = await lock_trigger(tx, principal, trigger_id)
    await triggers.remove(tx, trigger.id)
    await audit_trigger(tx, principal, "trigger_deleted", trigger)
    return mask_trigger(tx, replace(trigger, next_fire_at=None, next_instant=None))


async def get(tx: Tx, principal: Principal, trigger_id: UUID) -> Trigger:
    """A trigger."""
    return mask_trigger(tx, await _get_stored(tx, principal, trigger_id))


async def get_unmasked(tx: Tx, principal: Principal, trigger_id: UUID) -> Trigger:
    """A trigger with its unmasked secrets: never shown to users."""
    return await sealed_triggers.open_trigger(tx, await _get_stored(tx, principal, trigger_id))


async def _get_stored(tx: Tx, principal: Principal, trigger_id: UUID) -> Trigger:
    principal.require(Permission.READ_TRIGGERS, principal.tenant_id)
    return _require_found(await triggers.get(tx, trigger_id, tenant_id=principal.tenant_id), trigger_id)


async def list_triggers(
    tx: Tx,
    principal: Principal,
    *,
    tenant: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
    **filters: Any,
) -> Page[Trigger]:
    """Triggers, newest first: of a type, an event name, a definition, enabled or not."""
    principal.require(Permission.READ_TRIGGERS, principal.tenant_id)
    tenant_id = principal.tenant_id
    if tenant is not None:
        tenant_id = (await find_tenant(tx, principal, tenant, Permission.READ_TRIGGERS)).id
    page = await triggers.list_page(
        tx, filters, tenant_id=tenant_id, before=before, limit=min(limit, MAX_PAGE)
    )
    return page.map(lambda one: mask_trigger(tx, one))


async def list_all(
    tx: Tx, principal: Principal, *, tenant: str | None = None, **filters: Any
) -> list[Trigger]:
    """All matching triggers, without a limit: for an application's own tenants, not for answers to untrusted callers."""
    found = page = await list_triggers(tx, principal, tenant=tenant, limit=MAX_PAGE, **filters)
    while page.last is not None:
        page = await list_triggers(
            tx, principal, tenant=tenant, before=page.last.id, limit=MAX_PAGE, **filters
        )
        found = Page([*found, *page])
    return found


async def list_firings(
    tx: Tx,
    principal: Principal,
    trigger_id: UUID,
    *,
    outcome: FiringOutcome | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> Page[Firing]:
    """A trigger's firings, newest first."""
    await get(tx, principal, trigger_id)
    return await firings.list_page(tx, trigger_id, outcome=outcome, before=before, limit=min(limit, MAX_PAGE))


async def read_clock(tx: Tx) -> datetime:
    """The time of the database."""
    return await triggers.read_clock(tx)


async def list_latest_firings(tx: Tx, principal: Principal, found: Sequence[Trigger]) -> dict[UUID, Firing]:
    """The last firing of each of these triggers, which the principal may read; without triggers that never fired."""
    recent = await list_recent_firings(tx, principal, found, each=1)
    return {trigger_id: newest for trigger_id, fired in recent.items() for newest in fired}


async def list_recent_firings(
    tx: Tx, principal: Principal, found: Sequence[Trigger], *, each: int
) -> dict[UUID, list[Firing]]:
    """The last few firings of each of these triggers, which the principal may read; newest first."""
    principal.require(Permission.READ_TRIGGERS, principal.tenant_id)
    by_trigger: dict[UUID, list[Firing]] = {trigger.id: [] for trigger in found}
    for firing in await firings.list_recent(tx, list(by_trigger), each=each):
        by_trigger[firing.trigger_id].append(firing)
    return by_trigger


async def fire_now(tx: Tx, principal: Principal, catalog: Catalog, trigger_id: UUID) -> Firing:
    """Fire a schedule by hand, enabled or not, as if its instant were now. For an event trigger, replay an event instead."""
    trigger = await lock_trigger(tx, principal, trigger_id)
    context = kind_of(trigger).build_manual_context(trigger, await triggers.read_clock(tx))
    await quotas.require_room_for(tx, principal)
    shot = TriggerShot(
        trigger=trigger,
        slot=f"manual:{uuid7()}",
        context=context,
        source=Source.MANUAL,
        source_ref=str(trigger.id),
        windowed=False,
    )
    record = await fire(tx, replace(principal, tenant_id=trigger.tenant_id), catalog, shot)
    await firings.add(tx, [record])
    await triggers.mark_fired(tx, [trigger.id])
    details = {"outcome": record.outcome, "job_id": None if record.job_id is None else str(record.job_id)}
    await audit_trigger(tx, principal, "trigger_fired", trigger, details)
    return await firings.get_at_slot(tx, trigger.id, record.slot)


async def merge_changes(tx: Tx, old: Trigger, document: Mapping[str, Any]) -> TriggerRequest:
    """The request for a trigger with these changes."""
    refuse_sealed(document)
    given = dict(document)
    seen = mask_trigger(tx, old)
    old = await sealed_triggers.open_trigger(tx, old)
    for field in ("payload_template", "filter"):
        if given.get(field) is not None:
            # a reader has seen masked secrets: unchanged masks keep the stored values
            given[field] = restore_secrets(given[field], getattr(old, field), getattr(seen, field))
    _refuse_kept_secrets(old, seen, given, document)
    return parse_request({**build_document(old), **given})


def _refuse_kept_secrets(
    old: Trigger, seen: Trigger, given: Mapping[str, Any], document: Mapping[str, Any]
) -> None:
    """Refuse a change after which masked values that are kept may be no secrets any more."""

    def changes(field: str) -> bool:
        return bool(given.get(field, getattr(old, field)) != getattr(old, field))

    def keeps(field: str) -> bool:
        stored = getattr(old, field)
        return bool(given.get(field, stored) != document.get(field, getattr(seen, field)))

    if changes("definition_key") and keeps("payload_template"):
        raise TriggerInvalid(
            "The template holds secrets of its old definition: send the whole payload_template again.",
            [Fault("payload_template", "is required, with its secrets")],
        )
    if (changes("definition_key") or changes("payload_template")) and keeps("filter"):
        raise TriggerInvalid(
            "The filter compares events with secrets of the old payload_template: send the whole filter again.",
            [Fault("filter", "is required, with its secrets")],
        )


def mask_trigger(tx: Tx, trigger: Trigger) -> Trigger:
    """The trigger as users may see it: literal values of secret fields are masked, references are not."""
    template = mask_template(trigger.payload_template, trigger.secret_paths)
    filtered = trigger.filter and mask_filter(trigger.filter, list_secret_event_paths(trigger))
    return replace(
        trigger,
        payload_template=mask_payload(template, (), tx.redact_patterns),
        filter=mask_payload(filtered, (), tx.redact_patterns),
    )


def list_secret_event_paths(trigger: Trigger) -> list[str]:
    """The paths in its events' data that become secrets of its jobs."""
    return find_secret_fields(trigger.payload_template, trigger.secret_paths, kind_of(trigger).roots)


async def report_saved(
    tx: Tx, principal: Principal, action: str, trigger_id: UUID | None, definition: Definition, **details: Any
) -> SavedTrigger:
    """Audit a stored trigger, notify the schedulers, and collect warnings."""
    trigger = _require_found(None if trigger_id is None else await triggers.get(tx, trigger_id), trigger_id)
    await audit_trigger(tx, principal, action, trigger, details)
    await bulk.notify(tx, "schedule")
    opened = await sealed_triggers.open_trigger(tx, trigger)
    template = compile_template(opened.payload_template, kind_of(trigger).roots)
    warnings = find_template_faults(template, definition.arg_schema) + await _warn_of_missing_workflow(
        tx, trigger
    )
    warnings += _warn_of_overlap(trigger) + _warn_of_end(trigger)
    return SavedTrigger(mask_trigger(tx, trigger), warnings)


def _warn_of_overlap(trigger: Trigger) -> list[Fault]:
    """A warning for catch_up `all` with overlap `skip`: the missed runs come at once, so all but one are skipped."""
    if trigger.catch_up is not CatchUp.ALL or trigger.overlap is not Overlap.SKIP:
        return []
    return [Fault("catch_up", "creates one job for all missed runs, unless overlap is allow")]


def _warn_of_end(trigger: Trigger) -> list[Fault]:
    """A warning for a schedule that has no instant left before its end."""
    if trigger.end_at is None or not trigger.is_over:
        return []
    return [Fault("end_at", "leaves no further run")]


async def _warn_of_missing_workflow(tx: Tx, trigger: Trigger) -> list[Fault]:
    """A warning for a trigger that runs a workflow which does not exist yet."""
    template = trigger.payload_template
    named = template.get("workflow") if isinstance(template, dict) else None
    if trigger.definition_key != ENGINE_RUN or not isinstance(named, str) or "{{" in named:
        return []
    if await workflows.find_newest(tx, tenant_id=trigger.tenant_id, key=named):
        return []
    return [Fault("/workflow", f"there is no workflow {named!r} yet")]


async def lock_trigger(tx: Tx, principal: Principal, trigger_id: UUID) -> Trigger:
    """A trigger that the principal may manage, locked against changes and firings."""
    principal.require(Permission.MANAGE_TRIGGERS, principal.tenant_id)
    return _require_found(
        await triggers.get(tx, trigger_id, tenant_id=principal.tenant_id, hold=True), trigger_id
    )


def _require_found(found: Trigger | None, trigger_id: UUID | None) -> Trigger:
    if found is None:
        raise TriggerUnknown(f"There is no trigger {trigger_id}.", [Fault("id", "unknown")])
    return found


async def find_tenant(
    tx: Tx, principal: Principal, tenant: str, permission: Permission = Permission.MANAGE_TRIGGERS
) -> Tenant:
    """The tenant, if the principal has the permission there."""
    principal.require(permission, principal.tenant_id)
    found = await tenants.get(tx, tenant)
    if found is None or (principal.tenant_id is not None and principal.tenant_id != found.id):
        raise unknown_tenant(tenant)
    return found


async def get_active_definition(tx: Tx, key: str, tenant_id: UUID) -> Definition:
    """An active definition that a trigger of this tenant may use."""
    found = (await definitions.get_by_keys(tx, [key])).get(key)
    if found is None or not found.is_for(tenant_id):
        raise unknown_definition(key)
    if not found.is_active:
        raise inactive_error(key)
    return found


def require_right(principal: Principal, definition: Definition, asked: TriggerRequest) -> None:
    """Refuse a trigger that starts workflows without the right to, or sends its secrets to a host from an event."""
    if definition.key in ENGINE_KEYS:
        principal.require(Permission.START_WORKFLOWS, principal.tenant_id)
    if sends_secrets_anywhere(definition.key, asked.payload_template, definition.secret_paths):
        raise TriggerInvalid(
            f"The trigger is not valid: /payload_template/url {WHY}.", [Fault("/payload_template/url", WHY)]
        )


def build_document(trigger: Trigger) -> dict[str, Any]:
    """The document that requests this trigger."""
    return {name: getattr(trigger, name) for name in REQUEST_FIELDS}


async def audit_trigger(
    tx: Tx, principal: Principal, action: str, trigger: Trigger, details: Mapping[str, Any] | None = None
) -> None:
    """Write an entry about a trigger."""
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="trigger",
        resource_id=trigger.id,
        tenant_id=trigger.tenant_id,
        details={"label": trigger.label, "definition_key": trigger.definition_key, **(details or {})},
    )
