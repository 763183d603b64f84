"""Preview what a trigger would do at its next runs or with an event. It writes and enqueues nothing."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace
from uuid_utils.compat import uuid7

from fairlead.actions import events
from fairlead.actions import triggers as rules
from fairlead.actions.catalog import Catalog
from fairlead.actions.enqueue import inactive_error
from fairlead.actions.firing import render_payload, window_of
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput, Refused
from fairlead.model.access import Permission, Principal, Tenant
from fairlead.model.definition import Definition, check_payload
from fairlead.model.event import Event
from fairlead.model.payload import encode
from fairlead.model.request import unknown_definition
from fairlead.model.schedule.due import decide_due
from fairlead.model.schedule.spec import ScheduledRun, in_words, preview_runs
from fairlead.model.secrets.redact import MASK, Mask, find_secrets, mask_paths, rewrite_at_paths
from fairlead.model.template.filter import parse_filter
from fairlead.model.trigger import Trigger, TriggerType
from fairlead.model.trigger_kinds.event import build_event_context
from fairlead.model.trigger_kinds.schedule import build_schedule_context, schedule_of_trigger
from fairlead.model.trigger_spec import build_spec, parse_request
from fairlead.store import definitions, firings, triggers

# The id of a trigger that does not exist yet.
_NEW_TRIGGER_ID = UUID(int=0)


class PreviewResult(StrEnum):
    """The result of a previewed firing."""

    ENQUEUE = "enqueue"
    DEDUPLICATE = "deduplicate"
    NOTHING = "nothing"
    FAIL = "fail"


class PreviewRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The trigger to preview, with a past event, with sample data, or for `count` runs.

    It is a stored trigger, with or without the changes of a document; or a tenant's new trigger from a document.
    """

    trigger_id: UUID | None = None
    tenant: str | None = None
    document: Mapping[str, Any] = msgspec.field(default_factory=dict)
    event_id: UUID | None = None
    sample: Any = None
    count: int = 5


class TriggerPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger would do. `payload`, `valid` and `errors` are for the event, or for the first run."""

    trigger_type: TriggerType
    would: PreviewResult
    payload: Any = None
    valid: bool | None = None
    errors: Sequence[Fault] = ()
    job_id: Annotated[
        UUID | None, Meta(description="The existing job, if the new one would be deduplicated.")
    ] = None
    matches: Annotated[bool | None, Meta(description="Whether the event matches the trigger.")] = None
    in_words: str | None = None
    runs: Sequence[ScheduledRun] = ()


class PreviewSubject(msgspec.Struct, frozen=True):
    """A trigger, as stored or as it would be, and its definition."""

    trigger: Trigger
    definition: Definition


async def preview_trigger(
    tx: Tx, principal: Principal, catalog: Catalog, wanted: PreviewRequest
) -> TriggerPreview:
    """Preview a trigger: a schedule at its next runs, an event trigger with a past event or a sample."""
    subject = await _find_subject(tx, principal, wanted)
    return await _PREVIEWS[subject.trigger.trigger_type](tx, principal, catalog, subject, wanted)


async def read_clock(tx: Tx) -> datetime:
    """The time of the database, from which a preview counts."""
    return await triggers.read_clock(tx)


# The trigger


async def _find_subject(tx: Tx, principal: Principal, wanted: PreviewRequest) -> PreviewSubject:
    """Find or build the trigger to preview; refuses an invalid one."""
    if wanted.document or wanted.event_id is not None or wanted.sample is not None:
        # a filter of the caller's choice reveals the masked data of an event, one comparison at a time
        principal.require(Permission.MANAGE_TRIGGERS, principal.tenant_id)
    if wanted.trigger_id is None:
        whose = await rules.find_tenant(tx, principal, str(wanted.tenant))
        return await _build_new(tx, principal, whose, wanted.document)
    old = await rules.get_unmasked(tx, principal, wanted.trigger_id)
    if wanted.document:
        return await _build_changed(tx, old, wanted.document)
    definition = (await definitions.get_by_keys(tx, [old.definition_key])).get(old.definition_key)
    if definition is None or not definition.is_for(old.tenant_id):
        raise unknown_definition(old.definition_key)
    return PreviewSubject(old, definition)


async def _build_new(
    tx: Tx, principal: Principal, whose: Tenant, document: Mapping[str, Any]
) -> PreviewSubject:
    rules.refuse_sealed(document)
    asked = parse_request(document)
    definition = await rules.get_active_definition(tx, asked.definition_key, whose.id)
    now = await triggers.read_clock(tx)
    spec = build_spec(
        asked, trigger_id=_NEW_TRIGGER_ID, definition_id=definition.id, zone=whose.timezone, now=now
    )
    trigger = Trigger(
        id=_NEW_TRIGGER_ID,
        tenant_id=whose.id,
        tenant=whose.slug,
        tenant_name=whose.name,
        tenant_timezone=whose.timezone,
        secret_paths=definition.secret_paths,
        owner=None,
        name=None,
        last_fired_at=None,
        created_by=principal.actor,
        created_at=now,
        updated_at=now,
        **asdict(spec),
    )
    return PreviewSubject(trigger, definition)


async def _build_changed(tx: Tx, old: Trigger, document: Mapping[str, Any]) -> PreviewSubject:
    asked = await rules.merge_changes(tx, old, document)
    definition = await rules.get_active_definition(tx, asked.definition_key, old.tenant_id)
    spec = build_spec(
        asked,
        trigger_id=old.id,
        definition_id=definition.id,
        zone=old.tenant_timezone,
        now=await triggers.read_clock(tx),
        unless_changed_from=old,
    )
    return PreviewSubject(replace(old, secret_paths=definition.secret_paths, **asdict(spec)), definition)


# At times


async def _preview_schedule(
    tx: Tx, _: Principal, catalog: Catalog, subject: PreviewSubject, wanted: PreviewRequest
) -> TriggerPreview:
    given = {"event_id": wanted.event_id, "sample": wanted.sample}
    if foreign := [name for name, value in given.items() if value is not None]:
        raise InvalidInput(
            f"A schedule takes no {foreign[0]}: leave it out.",
            [Fault(name, "not with a schedule") for name in foreign],
        )
    trigger = subject.trigger
    schedule = schedule_of_trigger(trigger)
    now = await triggers.read_clock(tx)
    seed = None if trigger.id == _NEW_TRIGGER_ID else trigger.id
    first = trigger.next_instant or schedule.next_after(now)
    if first is not None:
        grace = timedelta(seconds=tx.settings.schedule_grace_seconds)
        due = decide_due(schedule, first, now, trigger.catch_up, grace, seed=trigger.id)
        first = due.fire[0] if due.fire else due.next_instant
    after = now if first is None else first - timedelta.resolution
    runs = preview_runs(schedule, after, wanted.count, zone=trigger.zone, seed=seed)
    result = TriggerPreview(
        trigger_type=trigger.trigger_type,
        would=PreviewResult.NOTHING,
        in_words=in_words(schedule),
        runs=runs,
    )
    if not runs:
        return result
    made = _render(tx, catalog, subject, build_schedule_context(trigger, runs[0].at), ())
    return replace(result, **made.told, would=PreviewResult.ENQUEUE if made.valid else PreviewResult.FAIL)


# With an event


async def _preview_event(
    tx: Tx, principal: Principal, catalog: Catalog, subject: PreviewSubject, wanted: PreviewRequest
) -> TriggerPreview:
    trigger = subject.trigger
    event = await _find_event(tx, principal, catalog, trigger, wanted)
    result = TriggerPreview(trigger_type=trigger.trigger_type, would=PreviewResult.NOTHING, matches=False)
    if event.name != trigger.event_name or not parse_filter(trigger.filter).matches(event.data):
        return result
    secrets = find_secrets(event.data, await events.get_secret_paths(tx, event))
    made = _render(tx, catalog, subject, build_event_context(trigger, event), secrets)
    result = replace(result, would=PreviewResult.FAIL, matches=True, **made.told)
    if not made.valid:
        return result
    holder = None
    if trigger.dedupe_window_seconds:
        holder = await firings.find_window_holder(tx, window_of(trigger, made.payload))
    return replace(
        result, would=PreviewResult.DEDUPLICATE if holder else PreviewResult.ENQUEUE, job_id=holder
    )


async def _find_event(
    tx: Tx, principal: Principal, catalog: Catalog, trigger: Trigger, wanted: PreviewRequest
) -> Event:
    if (wanted.event_id is None) == (wanted.sample is None):
        raise InvalidInput(
            "Give either the event_id of a past event, or sample with an event's data.",
            [Fault("event_id", "one of these two"), Fault("sample", "one of these two")],
        )
    if wanted.event_id is not None:
        return await events.get_unmasked(tx, principal, wanted.event_id, tenant_id=trigger.tenant_id)
    data, _ = encode(wanted.sample, max_bytes=catalog.max_bytes, max_depth=catalog.max_depth)
    now = await triggers.read_clock(tx)
    return Event(
        id=uuid7(),
        tenant_id=trigger.tenant_id,
        tenant=trigger.tenant,
        name=str(trigger.event_name),
        data=data,
        correlation_id=None,
        occurred_at=now,
        recorded_at=now,
        dispatched_at=None,
        replay_of=None,
        only_trigger_id=None,
        created_by=None,
    )


# How each kind previews.
_PREVIEWS = {TriggerType.EVENT: _preview_event, TriggerType.SCHEDULE: _preview_schedule}


# The payload


class _RenderedPayload(msgspec.Struct, frozen=True):
    """A payload, and the masked fields of its preview."""

    payload: Any
    told: dict[str, Any]

    @property
    def valid(self) -> bool:
        return bool(self.told["valid"])


def _render(
    tx: Tx, catalog: Catalog, subject: PreviewSubject, context: Mapping[str, Any], secrets: Iterable[Any]
) -> _RenderedPayload:
    """The payload that would be enqueued, checked like an enqueue."""
    definition = subject.definition
    payload, errors = None, list[Fault]()
    try:
        payload = render_payload(subject.trigger, context, max_bytes=catalog.max_bytes)
        _check(catalog, definition, payload)
    except Refused as refusal:
        errors = list(refusal.faults) or [Fault("", refusal.message)]
    own = find_secrets(payload, definition.secret_paths)
    mask = Mask([*own, *secrets], tx.redact_patterns)
    # event data that another trigger copies into a secret is masked here, too; the trigger's own secrets by their paths
    fed = Mask(secrets, tx.redact_patterns)
    told = {
        "payload": fed.value(_mask_payload(payload, definition.secret_paths, fits=not errors), names=False),
        "valid": not errors,
        "errors": [Fault(mask.text(fault.path), mask.text(fault.message)) for fault in errors],
    }
    return _RenderedPayload(payload, told)


def _mask_payload(payload: Any, secret_paths: Sequence[str], *, fits: bool) -> Any:
    if fits:
        return mask_paths(payload, secret_paths)
    # a text in place of an object that has a secret may be that secret
    return rewrite_at_paths(
        payload, secret_paths, lambda _: MASK, lambda value, _: MASK if isinstance(value, str) else value
    )


def _check(catalog: Catalog, definition: Definition, payload: Any) -> None:
    encode(payload, max_bytes=catalog.max_bytes, max_depth=catalog.max_depth)
    known = catalog.learn(
        definition.key, definition.version, definition.arg_schema, definition.resource_pointer
    )
    check_payload(known.compiled, definition.key, payload)
    if not definition.is_active:
        raise inactive_error(definition.key)
