"""Fire due schedules. Done by the system, not by a principal."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import structlog
from msgspec.structs import replace

from fairlead.actions.catalog import Catalog
from fairlead.actions.firing import TriggerShot, failed_record, fire_all, skipped_record
from fairlead.db.database_errors import translate_error
from fairlead.db.tx import Tx
from fairlead.errors import (
    KEY_ERRORS,
    DefinitionUnsettled,
    FairleadError,
    InternalError,
    Refused,
    TenantMoved,
    TenantMoving,
)
from fairlead.model.job import Source
from fairlead.model.schedule.due import CHANGED, TOO_MANY, UnrecordedInstants, decide_due
from fairlead.model.schedule.spec import find_fire_time
from fairlead.model.trigger import CatchUp, FiringOutcome, Trigger, TriggerSpec
from fairlead.model.trigger_kinds.schedule import build_schedule_context, schedule_of_trigger
from fairlead.store import firings, triggers
from fairlead.store.firings import NewFiring
from fairlead.store.queue import UNREADABLE_SECONDS
from fairlead.store.triggers import NextFiring

log = structlog.get_logger(__name__)

# About the most instants in one transaction: the next round takes the rest, so that other schedules need not wait.
MOST_AT_ONCE = 1000


class TriggerPlan(msgspec.Struct, frozen=True):
    """The due instants of a trigger: shots to fire, records of skipped instants, and the next instant and its firing."""

    trigger: Trigger
    shots: list[TriggerShot] = msgspec.field(default_factory=list)
    told: list[NewFiring] = msgspec.field(default_factory=list)
    next_instant: datetime | None = None
    next_fire_at: datetime | None = None

    @property
    def slots(self) -> list[tuple[UUID, str]]:
        slots = [one.slot for one in self.told] + [one.slot for one in self.shots]
        return [(self.trigger.id, slot) for slot in slots]

    def without(self, known: set[tuple[UUID, str]]) -> "TriggerPlan":
        """The plan without recorded slots: an instant can come up again after a schedule was changed."""
        left = {slot for trigger_id, slot in self.slots if (trigger_id, slot) not in known}
        return replace(
            self,
            shots=[one for one in self.shots if one.slot in left],
            told=[one for one in self.told if one.slot in left],
        )


async def fire_due(
    tx: Tx, catalog: Catalog, *, limit: int, grace_seconds: float, careful: bool = False
) -> int:
    """Fire due schedules and store their next firings. The number of due schedules.

    With `careful`, an unexpected error of one schedule is recorded as a failure, and does not stop the others. A schedule
    whose key cannot be had is left for later.
    """
    await tx.prefer_indexes()
    found = await triggers.lock_due(tx, limit=limit)
    if not found:
        return 0
    now = await triggers.read_clock(tx)
    plans = _build_plans(found, now, timedelta(seconds=grace_seconds), careful=careful)
    known = await firings.filter_recorded(tx, [slot for plan in plans for slot in plan.slots])
    plans = [plan.without(known) for plan in plans]
    if careful:
        plans, records = await _fire_one_by_one(tx, catalog, plans, now)
    else:
        records = await fire_all(tx, catalog, [shot for plan in plans for shot in plan.shots])
    records += [record for plan in plans for record in plan.told]
    await firings.add(tx, records)
    await triggers.store_firings(tx, [_next_firing(plan) for plan in plans])
    return len(found)


def _build_plans(
    found: Iterable[Trigger], now: datetime, grace: timedelta, *, careful: bool
) -> list[TriggerPlan]:
    plans: list[TriggerPlan] = []
    instants = 0
    for trigger in found:
        plans.append(_build_plan(trigger, now, grace, careful=careful))
        instants += len(plans[-1].slots)
        if instants >= MOST_AT_ONCE:
            break
    return plans


def _build_plan(trigger: Trigger, now: datetime, grace: timedelta, *, careful: bool) -> TriggerPlan:
    first = trigger.next_instant or now
    try:
        schedule = schedule_of_trigger(trigger)
        verdict = decide_due(schedule, first, now, trigger.catch_up, grace, seed=trigger.id)
        shots = [build_instant_shot(trigger, at) for at in verdict.fire]
        after = verdict.next_instant
        fires_at = None if after is None else find_fire_time(schedule, trigger.id, after)
    except Refused as refusal:
        # for example an unknown time zone: the schedule stops, and its record says why
        return TriggerPlan(trigger, told=[failed_record(_bare_shot(trigger, first), refusal)])
    except Exception as error:
        if not careful:
            raise
        return TriggerPlan(
            trigger, told=[failed_record(_bare_shot(trigger, first), _internal_error(trigger.id, error))]
        )
    told = [] if verdict.passed is None else [_passed_record(trigger, verdict.passed)]
    told += [skipped_record(_bare_shot(trigger, at), why) for at, why in verdict.skip]
    return TriggerPlan(trigger, shots, told, after, fires_at)


async def record_dropped(tx: Tx, old: Trigger, spec: TriggerSpec, *, now: datetime) -> None:
    """Record the due instants of a locked trigger that a change drops. A disabled trigger has none."""
    first = old.next_instant
    if first is None or first > now or not spec.is_enabled or spec.next_instant == first:
        return
    told = [
        one
        for one in _build_dropped(old, first, now)
        if not (one.scheduled_at and spec.next_instant and one.scheduled_at >= spec.next_instant)
    ]
    known = await firings.filter_recorded(tx, [(one.trigger_id, one.slot) for one in told])
    await firings.add(tx, [one for one in told if (one.trigger_id, one.slot) not in known])


def _build_dropped(trigger: Trigger, first: datetime, now: datetime) -> list[NewFiring]:
    try:
        # also an instant whose jitter is not over is dropped
        schedule = replace(schedule_of_trigger(trigger), jitter_seconds=0)
        verdict = decide_due(schedule, first, now, CatchUp.ALL, timedelta())
    except Refused as refusal:  # the change may fix it
        return [failed_record(_bare_shot(trigger, first), refusal)]
    told = [] if verdict.passed is None else [_passed_record(trigger, verdict.passed)]
    return told + [skipped_record(_bare_shot(trigger, at), CHANGED) for at in verdict.fire]


def _passed_record(trigger: Trigger, passed: UnrecordedInstants) -> NewFiring:
    return NewFiring(
        trigger_id=trigger.id,
        tenant_id=trigger.tenant_id,
        slot=slot_of(passed.first),
        outcome=FiringOutcome.SKIPPED,
        scheduled_at=passed.first,
        reason=TOO_MANY,
        covers=passed.count,
        covers_until=passed.until,
    )


def _next_firing(plan: TriggerPlan) -> NextFiring:
    fired_at = plan.shots[-1].scheduled_at if plan.shots else None
    return NextFiring(plan.trigger.id, plan.next_fire_at, plan.next_instant, fired_at)


async def _fire_one_by_one(
    tx: Tx, catalog: Catalog, plans: Iterable[TriggerPlan], now: datetime
) -> tuple[list[TriggerPlan], list[NewFiring]]:
    """The plans as they are carried out, and the records of their shots."""
    done, records = list[TriggerPlan](), list[NewFiring]()
    for plan in plans:
        try:
            records += await _fire_carefully(tx, catalog, plan.shots)
            done.append(plan)
        except KEY_ERRORS as error:
            log.warning("schedule_put_off", trigger_id=str(plan.trigger.id), why=error.message)
            done.append(_put_off(plan.trigger, now))
    return done, records


def _put_off(trigger: Trigger, now: datetime) -> TriggerPlan:
    """The plan of a schedule whose instants are decided again later, when its key may be there."""
    later = now + timedelta(seconds=UNREADABLE_SECONDS)
    return TriggerPlan(trigger, next_instant=trigger.next_instant or now, next_fire_at=later)


async def _fire_carefully(tx: Tx, catalog: Catalog, shots: Sequence[TriggerShot]) -> list[NewFiring]:
    """Fire the shots of one trigger; after an error, roll them back and return failure records."""
    try:
        async with tx.connection.transaction():
            return await fire_all(tx, catalog, shots)
    except (DefinitionUnsettled, TenantMoving, TenantMoved):
        raise
    except Refused as refusal:
        return [failed_record(shot, refusal) for shot in shots]
    except FairleadError:
        raise
    except Exception as error:
        if translate_error(error, "") is not None:
            raise  # the database failed, not the trigger
        internal = _internal_error(shots[0].trigger.id, error)
        return [failed_record(shot, internal) for shot in shots]


def _internal_error(trigger_id: UUID, error: Exception) -> InternalError:
    log.error("trigger_failed", trigger_id=str(trigger_id), why=repr(error), exc_info=error)
    return InternalError("An unexpected error occurred; the scheduler's log has the details.")


def build_instant_shot(trigger: Trigger, instant: datetime) -> TriggerShot:
    """The shot of a schedule at an instant."""
    return replace(_bare_shot(trigger, instant), context=build_schedule_context(trigger, instant))


def _bare_shot(trigger: Trigger, instant: datetime) -> TriggerShot:
    """The shot without a context, for records."""
    return TriggerShot(
        trigger=trigger,
        slot=slot_of(instant),
        context={},
        source=Source.SCHEDULE,
        source_ref=str(trigger.id),
        scheduled_at=instant,
    )


def slot_of(instant: datetime) -> str:
    """The slot of an instant: the same text in every time zone."""
    return instant.astimezone(UTC).isoformat()
