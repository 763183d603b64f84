"""Backfill a schedule: fire its instants of a past range now, each once. All of them or none."""

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from fairlead.actions import enqueue
from fairlead.actions import triggers as rules
from fairlead.actions.catalog import Catalog
from fairlead.actions.schedule_firing import slot_of
from fairlead.db.tx import Tx
from fairlead.errors import Refused
from fairlead.model.access import Principal
from fairlead.model.job import EnqueueResult, NewJob, Source
from fairlead.model.schedule.backfill import (
    Backfill,
    BackfillInstant,
    BackfillPreview,
    BackfillRange,
    check_range,
    require_size,
    take_instants,
)
from fairlead.model.template.spec import compile_template
from fairlead.model.trigger import FiringOutcome, Trigger
from fairlead.model.trigger_kinds import kind_of
from fairlead.model.trigger_options import render_options
from fairlead.store import firings, sealed_triggers, triggers
from fairlead.store.firings import NewFiring

MOST_SHOWN = 1000
# After this number of payloads a statement yields to the event loop, and keeps the transaction from being idle.
RENDERED_AT_ONCE = 500
# The outcomes of an instant that has its job.
_DONE = (FiringOutcome.ENQUEUED, FiringOutcome.DEDUPLICATED)


class _BackfillPlan(msgspec.Struct, frozen=True):
    """The instants of a range, the jobs that some of them have, and the slots that are taken."""

    asked: BackfillRange
    instants: list[datetime]
    jobs: dict[datetime, UUID]
    slots: set[str]

    @property
    def missing(self) -> list[datetime]:
        """The instants without a job."""
        return [at for at in self.instants if at not in self.jobs]

    def free_slot(self, at: datetime) -> str:
        """The slot of an instant: its own, so that the scheduler does not fire it, too; or that of its only backfill."""
        return slot_of(at) if slot_of(at) not in self.slots else _backfill_slot(at)


async def preview_backfill(
    tx: Tx,
    principal: Principal,
    trigger_id: UUID,
    *,
    since: datetime,
    until: datetime | None = None,
    count: int = 100,
) -> BackfillPreview:
    """Count and list the instants of a range, with the jobs that they have already. It writes nothing."""
    trigger = await rules.get_unmasked(tx, principal, trigger_id)
    limit = tx.settings.max_backfill
    asked = check_range(since, until, await triggers.read_clock(tx))
    plan = await _plan(tx, trigger, asked)
    shown = plan.instants[:limit]
    fired = [plan.jobs[at] for at in shown if at in plan.jobs]
    return BackfillPreview(
        trigger_id=trigger.id,
        since=asked.since,
        until=asked.until,
        count=len(shown),
        limit=limit,
        is_too_large=len(plan.instants) > limit,
        fired=len(fired),
        jobs=await firings.count_jobs(tx, fired),
        instants=[BackfillInstant(at, plan.jobs.get(at)) for at in shown[: min(count, MOST_SHOWN)]],
    )


async def backfill(
    tx: Tx,
    principal: Principal,
    catalog: Catalog,
    trigger_id: UUID,
    *,
    since: datetime,
    until: datetime | None = None,
    priority: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Backfill:
    """Enqueue a job for each instant of a range that has none, whether the schedule is enabled or not.

    Overlap and the dedupe window do not apply: each instant gets its own job. The same range again enqueues nothing.
    """
    trigger = await rules.lock_trigger(tx, principal, trigger_id)
    asked = check_range(since, until, await triggers.read_clock(tx))
    plan = await _plan(tx, trigger, asked)
    require_size(plan.instants, limit=tx.settings.max_backfill)
    correlation_id = f"backfill:{uuid7()}"
    requests = await _build_jobs(
        tx, catalog, trigger, plan.missing, correlation_id=correlation_id, priority=priority
    )
    made: Sequence[EnqueueResult] = ()
    if requests:
        whose = replace(principal, tenant_id=trigger.tenant_id)
        made = await enqueue.enqueue_many(tx, whose, catalog, requests, progress=progress)
        await firings.add(tx, _build_records(trigger, plan, made))
        await triggers.mark_fired(tx, [trigger.id])
    done = Backfill(
        trigger_id=trigger.id,
        since=asked.since,
        until=asked.until,
        count=len(plan.instants),
        enqueued=sum(not one.deduplicated for one in made),
        fired=len(plan.jobs),
        correlation_id=correlation_id,
    )
    details = {"from": asked.since.isoformat(), "to": asked.until.isoformat()}
    numbers = {"enqueued": done.enqueued, "fired_before": done.fired, "correlation_id": correlation_id}
    await rules.audit_trigger(tx, principal, "trigger_backfilled", trigger, details | numbers)
    return done


async def _plan(tx: Tx, trigger: Trigger, asked: BackfillRange) -> _BackfillPlan:
    instants = take_instants(
        kind_of(trigger).iterate_instants(trigger, asked.since), asked, most=tx.settings.max_backfill + 1
    )
    await tx.prefer_indexes()
    slots = [slot for at in instants for slot in (slot_of(at), _backfill_slot(at))]
    found = await firings.get_outcomes(tx, trigger.id, slots)
    jobs = {
        at: job_id
        for at in instants
        for slot in (slot_of(at), _backfill_slot(at))
        if slot in found and found[slot].outcome in _DONE and (job_id := found[slot].job_id)
    }
    return _BackfillPlan(asked, instants, jobs, set(found))


async def _build_jobs(
    tx: Tx,
    catalog: Catalog,
    trigger: Trigger,
    instants: Sequence[datetime],
    *,
    correlation_id: str,
    priority: int | None,
) -> list[NewJob]:
    kind, made = kind_of(trigger), list[NewJob]()
    opened = await sealed_triggers.open_trigger(tx, trigger)
    template = compile_template(opened.payload_template, kind.roots)
    for at in instants:
        try:
            context = kind.build_manual_context(trigger, at)
            payload = template.render(context, max_bytes=catalog.max_bytes)
            options = render_options(trigger, context, max_bytes=catalog.max_bytes)
        except Refused as refusal:
            raise type(refusal)(
                f"The payload of {at.isoformat()}: {refusal.message} Nothing was enqueued.", refusal.faults
            ) from refusal
        made.append(
            NewJob(
                definition=trigger.definition_key,
                tenant=str(trigger.tenant_id),
                payload=payload,
                scheduled_for=at,
                correlation_id=correlation_id,
                source=Source.SCHEDULE,
                source_ref=str(trigger.id),
                **(options if priority is None else {**options, "priority": priority}),
            )
        )
        if len(made) % RENDERED_AT_ONCE == 0:
            await triggers.read_clock(tx)
    return made


def _build_records(trigger: Trigger, plan: _BackfillPlan, made: Sequence[EnqueueResult]) -> list[NewFiring]:
    return [
        NewFiring(
            trigger_id=trigger.id,
            tenant_id=trigger.tenant_id,
            slot=plan.free_slot(at),
            outcome=FiringOutcome.DEDUPLICATED if one.deduplicated else FiringOutcome.ENQUEUED,
            scheduled_at=at,
            job_id=one.id,
        )
        for at, one in zip(plan.missing, made, strict=True)
    ]


def _backfill_slot(at: datetime) -> str:
    return f"backfill:{slot_of(at)}"
