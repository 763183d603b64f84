"""Fire triggers: create the job, or record why there is none."""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions import enqueue
from fairlead.actions.catalog import Catalog
from fairlead.db.session import idle_seconds
from fairlead.db.tx import Tx
from fairlead.errors import (
    DefinitionUnsettled,
    FairleadError,
    Refused,
    SealBroken,
    TenantMoved,
    TenantMoving,
)
from fairlead.model.access import Principal, trusted_principal
from fairlead.model.dedupe import canonical_json
from fairlead.model.job import NewJob, Source
from fairlead.model.reserved_key import build_trigger_key
from fairlead.model.secrets.redact import Mask, find_secret_places, shorten
from fairlead.model.template.rendering import EncodedValues
from fairlead.model.template.spec import Template, compile_template
from fairlead.model.trigger import FiringOutcome, Overlap, Trigger
from fairlead.model.trigger_kinds import kind_of
from fairlead.model.trigger_options import render_options
from fairlead.store import bulk, firings, jobs, sealed_triggers, sealing, triggers
from fairlead.store.firings import NewFiring, Window, WindowClaim
from fairlead.turns.loop_pauses import LoopPauses

OVERLAP = "overlap"
LONGEST_DETAIL = 500
# The longest time that other processes wait for a process that stopped in the middle of a round.
PATIENCE_SECONDS = 5.0
# The longest time without a statement: PostgreSQL ends a transaction that is idle for too long.
SILENCE_SECONDS = 0.1


class TriggerShot(msgspec.Struct, frozen=True, kw_only=True):
    """One firing of a trigger: by an event, at an instant, or by hand."""

    trigger: Trigger
    slot: str
    context: Mapping[str, Any]
    source: Source
    source_ref: str
    scheduled_at: datetime | None = None
    event_id: UUID | None = None
    correlation_id: str | None = None
    # whether the trigger's dedupe window applies; it does not to firings by hand
    windowed: bool = True
    # masks the secrets of the event, if it has any
    mask: Mask | None = None


class PlannedJob(msgspec.Struct, frozen=True):
    """A job to create, unless another job holds its dedupe window."""

    shot: TriggerShot
    new: NewJob
    window: Window | None


Holders = dict[Window, UUID]


def patience_of(tx: Tx) -> float:
    """How long this transaction may be idle in a round: at most as long as any other, so less than a lease."""
    return min(PATIENCE_SECONDS, idle_seconds(tx.settings))


def render_payload(trigger: Trigger, context: Mapping[str, Any], *, max_bytes: int) -> Any:
    """Render a trigger's payload from the context of its event or instant."""
    return _compile_template(trigger).render(context, max_bytes=max_bytes)


async def fire(tx: Tx, principal: Principal, catalog: Catalog, shot: TriggerShot) -> NewFiring:
    """Create the job, unless it is refused or deduplicated. The record to write in this transaction."""
    [load] = await _plan_jobs(tx, catalog, [shot])
    return load if isinstance(load, NewFiring) else await _fire_planned(tx, principal, catalog, load, {})


async def fire_all(tx: Tx, catalog: Catalog, shots: Sequence[TriggerShot]) -> list[NewFiring]:
    """Fire many shots with their triggers as actors, in this order.

    It takes all their windows first and at once, so that two processes cannot deadlock.
    """
    loads = await _plan_jobs(tx, catalog, shots)
    wanted: dict[Window, WindowClaim] = {}
    for load in loads:
        if isinstance(load, PlannedJob) and load.window is not None:
            wanted.setdefault(load.window, _window_claim(load))
    holders = await firings.take_windows(tx, wanted)
    records = {}
    for place in await _sort_loads(tx, loads):
        load = loads[place]
        if isinstance(load, PlannedJob):
            actor = trusted_principal(f"trigger:{load.shot.trigger.id}")
            records[place] = await _fire_planned(tx, actor, catalog, load, holders)
        else:
            records[place] = load
    return [records[place] for place in range(len(loads))]


async def _sort_loads(tx: Tx, loads: Sequence[PlannedJob | NewFiring]) -> list[int]:
    """Their places, in the order in which all processes lock keys: two of them cannot deadlock."""
    planned = {place: load for place, load in enumerate(loads) if isinstance(load, PlannedJob)}
    values = {
        place: value
        for place, load in planned.items()
        if (
            value := enqueue.encode_limited_value(load.new, load.shot.trigger.limit_pointer, load.new.payload)
        )
    }
    limit_keys = dict(zip(values, await bulk.find_limit_keys(tx, list(values.values())), strict=True))
    order = {
        place: enqueue.lock_order(load.new, load.shot.trigger, limit_keys.get(place))
        for place, load in planned.items()
    }
    return sorted(range(len(loads)), key=lambda place: (order.get(place, ()), place))


async def _plan_jobs(tx: Tx, catalog: Catalog, shots: Sequence[TriggerShot]) -> list[PlannedJob | NewFiring]:
    """Render the payloads; a statement now and then keeps the transaction from being idle and yields to the event loop."""
    template, loads, spoken = _cached_templates(), list[PlannedJob | NewFiring](), time.monotonic()
    pauses, encoded = LoopPauses(), EncodedValues()
    opened: dict[UUID, Trigger | SealBroken] = {}
    found = {shot.trigger.id: shot.trigger for shot in shots}.values()
    await sealing.fetch_keys(tx, [[one.payload_template, one.filter] for one in found])
    for shot in shots:
        if shot.trigger.id not in opened:
            opened[shot.trigger.id] = await _open_trigger(tx, shot.trigger)
        trigger = opened[shot.trigger.id]
        if isinstance(trigger, SealBroken):
            loads.append(failed_record(shot, trigger))
            continue
        loads.append(_plan_job(catalog, replace(shot, trigger=trigger), template, encoded))
        if time.monotonic() - spoken > SILENCE_SECONDS:
            await triggers.read_clock(tx)
            spoken = time.monotonic()
        await pauses.pause_if_due()
    return loads


async def _open_trigger(tx: Tx, trigger: Trigger) -> Trigger | SealBroken:
    """The trigger with its secrets; or why it cannot be opened, which must not stop other triggers."""
    try:
        return await sealed_triggers.open_trigger(tx, trigger)
    except SealBroken as error:
        return error


def _compile_template(trigger: Trigger) -> Template:
    return compile_template(trigger.payload_template, kind_of(trigger).roots)


def _cached_templates() -> Callable[[Trigger], Template]:
    """A function that compiles the template of each trigger once."""
    known: dict[UUID, Template] = {}

    def template(trigger: Trigger) -> Template:
        if trigger.id not in known:
            known[trigger.id] = _compile_template(trigger)
        return known[trigger.id]

    return template


def _plan_job(
    catalog: Catalog, shot: TriggerShot, template: Callable[[Trigger], Template], encoded: EncodedValues
) -> PlannedJob | NewFiring:
    """The job to create, or the record of a failure."""
    trigger = shot.trigger
    try:
        payload = template(trigger).render(shot.context, max_bytes=catalog.max_bytes, encoded=encoded)
        options = render_options(trigger, shot.context, max_bytes=catalog.max_bytes)
        windowed = shot.windowed and trigger.dedupe_window_seconds and "debounce" not in options
        window = window_of(trigger, payload) if windowed else None
    except Refused as refusal:
        return failed_record(shot, refusal)
    new = NewJob(
        definition=trigger.definition_key,
        tenant=str(trigger.tenant_id),
        payload=payload,
        source=shot.source,
        source_ref=shot.source_ref,
        correlation_id=shot.correlation_id,
        scheduled_for=shot.scheduled_at,
        dedupe_key=build_trigger_key(trigger.id) if trigger.overlap is Overlap.SKIP else None,
        **options,
    )
    return PlannedJob(shot, new, window)


async def _fire_planned(
    tx: Tx, principal: Principal, catalog: Catalog, load: PlannedJob, holders: Holders
) -> NewFiring:
    if load.window is not None:
        if load.window not in holders:
            holders |= await firings.take_windows(tx, {load.window: _window_claim(load)})
        if (holder := holders[load.window]) != load.new.id:
            return _build_record(load.shot, FiringOutcome.DEDUPLICATED, job_id=holder)
    try:
        answer = await enqueue.enqueue(tx, principal, catalog, load.new, own_key=True)
    except (DefinitionUnsettled, TenantMoving, TenantMoved):
        raise  # the only refusals for which a retry helps
    except Refused as refusal:
        await _free_window(tx, load, holders)
        return failed_record(load.shot, refusal)
    is_debounced = load.new.debounce is not None
    if is_debounced or not answer.deduplicated:
        if load.shot.mask is not None and (found := find_secret_places(load.new.payload, load.shot.mask)):
            await jobs.add_secret_paths(tx, answer.id, found)
        outcome = FiringOutcome.DEDUPLICATED if answer.deduplicated else FiringOutcome.ENQUEUED
        return _build_record(load.shot, outcome, job_id=answer.id)
    await _free_window(tx, load, holders)
    why = "the previous job has not ended"
    return _build_record(load.shot, FiringOutcome.SKIPPED, job_id=answer.id, reason=OVERLAP, detail=why)


def _window_claim(load: PlannedJob) -> WindowClaim:
    return WindowClaim(load.new.id, load.shot.trigger.dedupe_window_seconds)


async def _free_window(tx: Tx, load: PlannedJob, holders: Holders) -> None:
    """Free the window, since this job was not created."""
    if load.window is not None:
        await firings.free_window(tx, load.window, job_id=load.new.id)
        del holders[load.window]


def failed_record(shot: TriggerShot, refusal: FairleadError) -> NewFiring:
    """The record of a firing that could not create its job."""
    others = "; ".join(f"{fault.path or '/'}: {fault.message}" for fault in refusal.faults[1:])
    detail = f"{refusal.message} Also: {others}" if others else refusal.message
    return _build_record(
        shot, FiringOutcome.FAILED, reason=refusal.code, detail=shorten(detail, LONGEST_DETAIL, shot.mask)
    )


def skipped_record(shot: TriggerShot, reason: str) -> NewFiring:
    """The record of an instant that creates no job."""
    return _build_record(shot, FiringOutcome.SKIPPED, reason=reason)


def _build_record(shot: TriggerShot, outcome: FiringOutcome, **rest: Any) -> NewFiring:
    return NewFiring(
        trigger_id=shot.trigger.id,
        tenant_id=shot.trigger.tenant_id,
        slot=shot.slot,
        outcome=outcome,
        scheduled_at=shot.scheduled_at,
        event_id=shot.event_id,
        **rest,
    )


def window_of(trigger: Trigger, payload: Any) -> Window:
    """The dedupe window of a trigger and a payload."""
    return Window(trigger.tenant_id, hashlib.sha256(trigger.id.bytes + canonical_json(payload)).digest())
