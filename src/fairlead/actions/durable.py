"""Durable functions: their waits for events and children, and signals to them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead.actions import bulk_cancel, jobs
from fairlead.actions.workflow_progress import settle_or_leave
from fairlead.db.tx import JsonText, Tx
from fairlead.errors import Fault, FilterInvalid, InvalidInput, JobNotSignalable, SignalInvalid
from fairlead.model.access import Principal
from fairlead.model.durable import (
    MAX_NAME,
    MOST_SIGNALS,
    JobStep,
    NewWait,
    Place,
    StepRecord,
    StepStatus,
    parse_place,
)
from fairlead.model.durable_history import JobHistory, build_history
from fairlead.model.event import Event
from fairlead.model.event_match import list_match_keys
from fairlead.model.job import JobStatus, Lease
from fairlead.model.page import Page, invalid_cursor
from fairlead.model.payload import encode, find_storage_flaw
from fairlead.model.template.filter import Filter, parse_filter
from fairlead.store import audit, bulk, bulk_jobs, durable
from fairlead.store.durable import CompletedWait, EventScope, EventWait, Orphan, StoredEvent
from fairlead.turns.loop_pauses import LoopPauses

# How many of the newest events of its name a wait looks through: for one that came before it, and for one that was not
# dispatched before its time was over.
MOST_EARLIER = 10_000
# How many waits one dispatch ends: other events must not wait for one that very many functions wait for.
MOST_WOKEN = 2000
# How many waits one dispatch compares with its events, for the same reason.
MOST_COMPARED = 2000
MAX_PAGE = 1000


async def begin_event_wait(
    tx: Tx, lease: Lease, tenant_id: UUID, wait: NewWait, *, lookback: float | None
) -> StepRecord | None:
    """Record a wait for an event; complete if a matching event came before. None if the lease is lost.

    The first matching event counts that was stored since the job was enqueued (or within `lookback` seconds), and that no
    earlier wait of the job has received; of the newest `MOST_EARLIER` of its name. For a step of a run: since the run
    started, and that no other step of the run has received.
    """
    await durable.lock_event_name(tx, tenant_id, wait.name)
    found = await durable.begin_wait(tx, lease, wait)
    if found is None or found.status is not StepStatus.WAITING:
        return found
    scope = await _build_scope(tx, lease.job_id, tenant_id, wait.place, wait.name, lookback=lookback)
    event = await _find_earlier(tx, scope, parse_filter((wait.request or {}).get("where") or {}))
    if event is None:
        return found
    await durable.complete_waits(tx, [_complete(lease.job_id, wait.place.branch, wait.place.position, event)])
    return await durable.begin_wait(tx, lease, wait)


async def give_up_event_wait(
    tx: Tx, lease: Lease, tenant_id: UUID, place: Place, name: str, *, lookback: float | None
) -> StepRecord | None:
    """End a wait for an event whose time is over; complete if a matching event was stored in time. None if the lease is lost.

    The event may not have been dispatched yet, without a scheduler for instance. When it is, the job does not receive it again.
    Of the newest `MOST_EARLIER` events of the name, as for `begin_event_wait`.
    """
    if (wait := await durable.lock_event_wait(tx, lease, place)) is not None:
        scope = await _build_scope(tx, lease.job_id, tenant_id, place, name, lookback=lookback)
        if (event := await _find_undispatched(tx, scope, wait)) is not None:
            await durable.complete_waits(tx, [_complete(lease.job_id, place.branch, place.position, event)])
    return await durable.give_up_wait(tx, lease, place)


async def _build_scope(
    tx: Tx, job_id: UUID, tenant_id: UUID, place: Place, name: str, *, lookback: float | None
) -> EventScope:
    return EventScope(
        tenant_id=tenant_id,
        name=name,
        job_id=job_id,
        branch=place.branch,
        position=place.position,
        jobs=await durable.list_receivers(tx, job_id, name),
        lookback=lookback,
    )


async def _find_earlier(tx: Tx, scope: EventScope, condition: Filter) -> StoredEvent | None:
    """The first event that matches, of the newest ones."""
    first: StoredEvent | None = None
    before: UUID | None = None
    for _ in range(MOST_EARLIER // durable.PAGE):
        page = await durable.list_earlier_events(tx, scope, before=before)
        for event in page:
            if condition.matches(event.data):
                first = event
        if len(page) < durable.PAGE:
            break
        before = page[-1].id
    return first


async def _find_undispatched(tx: Tx, scope: EventScope, wait: EventWait) -> StoredEvent | None:
    """The first event that matches, of the newest ones."""
    await tx.prefer_indexes()
    after: UUID | None = None
    for _ in range(MOST_EARLIER // durable.PAGE):
        page = await durable.list_undispatched_events(tx, scope, after=after, newest=MOST_EARLIER)
        for event in page:
            if _matches(wait, event.data):
                return event
        if len(page) < durable.PAGE:
            break
        after = page[-1].id
    return None


class WaitProgress(msgspec.Struct, frozen=True, array_like=True):
    """The last wait that an event was compared with: of those with its match keys, or of those without a key."""

    has_key: bool
    job_id: UUID
    branch: str
    position: int


# Before the first wait without a match key.
_WITHOUT_KEY = WaitProgress(False, UUID(int=0), "", -1)


async def complete_event_waits(
    tx: Tx, found: Sequence[tuple[Event, WaitProgress | None]]
) -> dict[UUID, WaitProgress | None]:
    """End the waits for these events, which are being dispatched, each after its progress so far.

    The events that are not done, and their progress: more functions wait for them than one transaction may wake, or
    compare with them.
    """
    news = [(event, progress) for event, progress in found if event.only_trigger_id is None]
    if not news:
        return {}
    awaited = await durable.lock_event_names(tx, {(event.tenant_id, event.name) for event, _ in news})
    room, left = _WaitRoom(), dict[UUID, WaitProgress | None]()
    turns, ranked = Counter[UUID](), list[tuple[int, bool, Event, WaitProgress | None]]()
    for event, progress in news:
        if (event.tenant_id, event.name) not in awaited:
            continue
        ranked.append((turns[event.tenant_id], progress is not None, event, progress))
        turns[event.tenant_id] += 1
    # the first event of each tenant, then the second; those that have had a turn behind the others
    for _, _, event, progress in sorted(ranked, key=lambda one: one[:2]):
        try:
            await _complete_for(tx, event, progress, room)
        except _RoomUsed as used:
            left[event.id] = used.progress
    return left


class _RoomUsed(Exception):
    """As many waits have ended, or were compared, as one transaction may."""

    def __init__(self, progress: WaitProgress | None) -> None:
        super().__init__()
        self.progress = progress


class _WaitRoom:
    """How many waits may still end, and be compared, in this transaction."""

    def __init__(self) -> None:
        self.woken = MOST_WOKEN
        self.compared = MOST_COMPARED
        self.pauses = LoopPauses()

    @property
    def is_used(self) -> bool:
        return self.woken <= 0 or self.compared <= 0


async def _complete_for(tx: Tx, event: Event, progress: WaitProgress | None, room: _WaitRoom) -> None:
    """End the waits for an event; _RoomUsed if there may be more."""
    keys = list_match_keys(event.data)
    if progress is None or progress.has_key:
        await _complete_matching(tx, event, keys, progress, room)
        progress = _WITHOUT_KEY
    if keys is not None:
        await _complete_matching(tx, event, [], progress, room)


async def _complete_matching(
    tx: Tx, event: Event, keys: Sequence[UUID] | None, progress: WaitProgress | None, room: _WaitRoom
) -> None:
    """End the waits with these keys; with an empty list, those without a key."""
    has_key = keys is None or bool(keys)
    while True:
        if room.is_used:
            raise _RoomUsed(progress)
        page = await durable.list_event_waits(tx, event, keys=keys, after=progress)
        ended = list[CompletedWait]()
        for wait in page:
            if _matches(wait, event.data):
                ended.append(_complete(wait.job_id, wait.branch, wait.position, event))
            await room.pauses.pause_if_due()
        if ended:
            await durable.complete_waits(tx, ended)
        room.woken -= len(ended)
        room.compared -= len(page)
        if len(page) < durable.PAGE:
            return
        progress = WaitProgress(has_key, page[-1].job_id, page[-1].branch, page[-1].position)


def _matches(wait: EventWait, data: Any) -> bool:
    try:
        return parse_filter(wait.filter or {}).matches(data)
    except FilterInvalid:
        # it was valid when the wait began: an earlier version of Fairlead knew another operator
        return False


def _complete(job_id: UUID, branch: str, position: int, event: Event | StoredEvent) -> CompletedWait:
    return CompletedWait(
        job_id,
        branch,
        position,
        result={"id": event.id, "name": event.name, "data": event.data, "occurred_at": event.occurred_at},
    )


# Before the first step.
_BEGINNING = Place("", -1)


async def list_steps(
    tx: Tx, principal: Principal, job_id: UUID, *, after: str | None = None, limit: int = MAX_PAGE
) -> Page[JobStep]:
    """The recorded steps and waits of a durable function by their branches and numbers, after a place."""
    job = await jobs.get_visible(tx, principal, job_id)
    place = _BEGINNING if after is None else parse_place(after)
    if place is None:
        raise invalid_cursor()
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(
            f"limit must be between 1 and {MAX_PAGE}.", [Fault("limit", f"use 1 to {MAX_PAGE}")]
        )
    return await durable.list_steps(tx, job.id, after=place, limit=limit)


async def get_history(tx: Tx, principal: Principal, job_id: UUID) -> JobHistory:
    """A job of a durable function with all that it has recorded, to compare new code with. Secrets are masked."""
    job = await jobs.get_visible(tx, principal, job_id)
    steps: list[JobStep] = []
    after = _BEGINNING
    while True:
        page = await durable.list_steps(tx, job.id, after=after, limit=MAX_PAGE)
        steps += page
        if page.last is None:
            return build_history(job, steps, replay_of=await durable.get_seed(tx, job.id))
        after = Place(page.last.branch, page.last.number - 1)


async def send_signal(tx: Tx, principal: Principal, job_id: UUID, name: str, data: Any = None) -> UUID:
    """Send a signal to a durable function: it ends the first wait for its name, or is kept for the next one. Its id."""
    job = await jobs.get_changeable(tx, principal, job_id)
    if not 0 < len(name) <= MAX_NAME or find_storage_flaw(name):
        raise SignalInvalid(
            f"The name of a signal has 1 to {MAX_NAME} characters, without control characters that the database cannot store.",
            [Fault("name", f"must have 1 to {MAX_NAME} characters")],
        )
    encoded = encode(data, max_bytes=tx.settings.max_payload_bytes)[1]
    locked = await durable.lock_signaled_job(tx, job_id)
    if locked is None or JobStatus(locked.status) not in (JobStatus.QUEUED, JobStatus.RUNNING):
        raise JobNotSignalable(
            f"Job {job_id} has ended with the status {job.status}: a signal has no effect. Retry the job first if it should go on."
        )
    signal_id = uuid7()
    if not await durable.add_signal(
        tx,
        locked,
        signal_id=signal_id,
        name=name,
        data=JsonText(encoded),
        actor=principal.actor,
        most=MOST_SIGNALS,
    ):
        raise SignalInvalid(
            f"Job {job_id} has {MOST_SIGNALS} signals for which its function has not waited. Is it a durable function, and does "
            "it wait for signals of this name?"
        )
    await jobs.audit_change(tx, principal, "JOB_SIGNALED", job, {"signal": name, "signal_id": str(signal_id)})
    return signal_id


async def settle_children(tx: Tx, *, limit: int) -> int:
    """Tell functions about children that have ended, and cancel the children of canceled functions. The number of ended jobs."""
    ended = await durable.take_ended_children(tx, limit=limit)
    if not ended:
        return 0
    if waits := await durable.list_waits_for_children(tx, ended):
        await durable.complete_waits(tx, waits)
    if orphans := await durable.list_orphans(tx, ended):
        await _cancel_orphans(tx, orphans)
    return len(ended)


async def _cancel_orphans(tx: Tx, orphans: Sequence[Orphan]) -> None:
    children = {one.id: one for one in orphans}
    canceled, asked = await bulk_cancel.cancel_jobs(tx, children.keys())
    # rows that others have locked for long: the next round cancels them
    busy = set(await bulk_jobs.filter_cancelable(tx, [one for one in children if one not in canceled]))
    await durable.drop_calls(tx, [one for one in orphans if one.id not in busy])
    if busy:
        await durable.note_again(tx, [children[job_id].parent_id for job_id in busy])
    for action, ids in (("JOB_CANCELED", canceled), ("JOB_CANCEL_REQUESTED", asked)):
        for job_id in ids:
            await _audit_orphan(tx, action, children[job_id])
    await settle_or_leave(tx, dict.fromkeys(canceled, JobStatus.CANCELED))
    if asked:
        await bulk.notify(tx, "cancel")


async def _audit_orphan(tx: Tx, action: str, child: Orphan) -> None:
    await audit.write(
        tx,
        actor="system",
        action=action,
        resource_type="job",
        resource_id=child.id,
        tenant_id=child.tenant_id,
        details={
            "definition_key": child.definition_key,
            "reason": "parent_canceled",
            "parent_id": str(child.parent_id),
        },
    )
