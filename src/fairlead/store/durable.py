"""The steps, waits and signals of durable functions."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Protocol
from uuid import UUID

import msgspec
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from fairlead.db.arrays import TextArray, UuidArray
from fairlead.db.sql import queries_beside
from fairlead.db.tx import ExactJson, JsonText, Tx, json_text
from fairlead.errors import KEY_ERRORS, SealBroken
from fairlead.model.durable import JobStep, NewWait, Place, StepEnd, StepError, StepRecord
from fairlead.model.event import Event
from fairlead.model.job import Lease
from fairlead.model.page import Page
from fairlead.model.secrets.redact import Mask, find_secrets
from fairlead.model.secrets.sealed_payload import list_key_ids
from fairlead.store import bounded_page, jobs, sealed_steps

sql = queries_beside(__file__)

ZERO = UUID(int=0)
_SECRET_OF = attrgetter("secret_of")
PAGE = 500


async def load_steps(tx: Tx, lease: Lease) -> list[StepRecord] | None:
    """All recorded steps of the lease's job; None if the lease is not here."""
    found = await tx.all(StepRecord, sql.steps, msgspec.structs.asdict(lease))
    steps = [one for one in found if one.position != -1]
    if len(steps) == len(found):
        return None
    return (
        [await _open_step(tx, lease.job_id, one) for one in steps] if any(map(_SECRET_OF, steps)) else steps
    )


async def _open_step(tx: Tx, job_id: UUID, step: StepRecord) -> StepRecord:
    if step.secret_of is None or step.result is None:
        return step
    plain = await sealed_steps.open_result(tx, step.secret_of, job_id, step.place, step.result)
    return replace(step, result=plain)


async def list_steps(tx: Tx, job_id: UUID, *, after: Place, limit: int) -> Page[JobStep]:
    """A page of the steps of a job by their branches and numbers, with masked secrets."""
    values = {"job_id": job_id, "branch": after.branch, "position": after.position}
    found = await bounded_page.fetch_page(
        tx,
        JobStep,
        sql.list_steps,
        values,
        limit=limit,
        weighed=("result",),
        weighed_json=("request", "error"),
    )
    mask = await build_mask(tx, job_id) if found else None
    return found if mask is None else found.map(lambda step: _mask_step(step, mask))


async def forget_steps(tx: Tx, job_id: UUID, tenant_id: UUID, places: Sequence[Place]) -> None:
    """Forget steps of an ended job, which is locked: they run again."""
    values = {
        "job_id": job_id,
        "tenant_id": tenant_id,
        "branches": [place.branch for place in places],
        "positions": [place.position for place in places],
    }
    await tx.values(sql.forget, values)


async def lock_ended(tx: Tx, job_id: UUID) -> bool:
    """Keep an ended job from being retried until the transaction ends; False if it has not ended."""
    return bool(await tx.values(sql.lock_ended, {"job_id": job_id}))


async def copy_steps(tx: Tx, job_id: UUID, places: Sequence[Place], *, new_id: UUID) -> None:
    """Give a new job the records of an ended one, which is locked, at these places, and the signals that they did not receive."""
    values = {
        "job_id": job_id,
        "new_id": new_id,
        "branches": [place.branch for place in places],
        "positions": [place.position for place in places],
    }
    await tx.run(sql.copy, values)
    await sealed_steps.copy_results(tx, job_id, new_id=new_id)
    signals = [one for (one,) in await tx.values(sql.signals_to_copy, values)]
    if signals:
        # waits receive signals in the order of their ids
        values |= {"ids": UuidArray(signals), "new_ids": UuidArray([uuid7() for _ in signals])}
        await tx.run(sql.copy_signals, values)


async def get_seed(tx: Tx, job_id: UUID) -> str | None:
    """The id of the first job that a replay repeats; None if the job is no replay."""
    return next((name for (name,) in await tx.values(sql.seed, {"job_id": job_id})), None)


async def build_mask(tx: Tx, job_id: UUID) -> Mask | None:
    """The mask for the secrets of the job's payload and of the results of its secret steps.

    Without the keys to open these it masks everything: what cannot be read cannot be searched for.
    """
    payload, paths = await jobs.get_secrets(tx, job_id)
    try:
        if list_key_ids(payload):
            payload = await jobs.get_payload(tx, job_id)
        secrets = await sealed_steps.list_results(tx, job_id)
    except (*KEY_ERRORS, SealBroken):
        return Mask((), hides_all=True)
    secrets += find_secrets(payload, paths)
    return Mask(secrets, tx.redact_patterns) if secrets or tx.redact_patterns else None


def _mask_step(step: JobStep, mask: Mask) -> JobStep:
    return replace(
        step,
        name=mask.text(step.name),
        request=mask.value(step.request),
        result=mask.value(step.result),
        error=mask_error(step.error, mask),
    )


def mask_error(error: StepError | None, mask: Mask) -> StepError | None:
    """The failure of a step without secrets."""
    return error and replace(error, type=mask.text(error.type), message=mask.text(error.message))


def encode_step(step: StepEnd) -> bytes:
    """A step as `record_steps` takes it."""
    return msgspec.json.encode(step)


async def record_steps(tx: Tx, documents: Sequence[bytes]) -> set[tuple[UUID, str, int]]:
    """Record encoded steps. The job, branch and position of those whose attempts still own their jobs."""
    steps = ExactJson(b"[%b]" % b",".join(documents))
    return {(job, branch, at) for job, branch, at in await tx.run_quick(sql.record, {"steps": steps})}


async def begin_wait(tx: Tx, lease: Lease, wait: NewWait) -> StepRecord | None:
    """Record a wait, complete if what it waits for has come before; None if the lease is lost."""
    values = {
        **msgspec.structs.asdict(lease),
        "branch": wait.place.branch,
        "position": wait.place.position,
        "kind": wait.kind,
        "name": wait.name,
        "seconds": wait.seconds,
        "due": wait.due,
        "request": None if wait.request is None else json_text(wait.request),
        "child": wait.child_id,
        "tries": wait.tries,
        "match_key": wait.match_key,
    }
    step = await tx.first(StepRecord, sql.begin_wait, values)
    return step and await _open_step(tx, lease.job_id, step)


async def give_up_wait(tx: Tx, lease: Lease, place: Place) -> StepRecord | None:
    """End a wait whose time is over; the record as it is now. None if the lease is lost."""
    values = {**msgspec.structs.asdict(lease), **msgspec.structs.asdict(place)}
    step = await tx.first(StepRecord, sql.give_up, values)
    return step and await _open_step(tx, lease.job_id, step)


class CompletedWait(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a wait."""

    job_id: UUID
    branch: str
    position: int
    status: str = "succeeded"
    result: Any = None
    error: Any = None


async def complete_waits(tx: Tx, waits: Sequence[CompletedWait | Mapping[str, Any]]) -> int:
    """Complete waits and wake their functions. How many functions woke."""
    # `status` is a default that the function needs
    documents = [one if isinstance(one, Mapping) else msgspec.structs.asdict(one) for one in waits]
    [(woken,)] = await tx.values(sql.complete, {"waits": json_text(documents)})
    if woken:
        tx.notify("ready")
    return int(woken)


async def lock_waits(tx: Tx, waits: Sequence[tuple[UUID, Place]]) -> None:
    """Keep these waits from being completed until the transaction has ended."""
    await tx.values(sql.lock_waits, {"waits": _encode_places(waits)})


async def wake_completed(tx: Tx, waits: Sequence[tuple[UUID, Place]]) -> None:
    """Wake functions that have gone to sleep in this transaction, and whose waits were completed before."""
    if any(woken for (woken,) in await tx.values(sql.wake_completed, {"waits": _encode_places(waits)})):
        tx.notify("ready")


def _encode_places(waits: Sequence[tuple[UUID, Place]]) -> JsonText:
    return json_text([{"job_id": job_id, **msgspec.structs.asdict(place)} for job_id, place in waits])


async def take_ended_children(tx: Tx, *, limit: int) -> list[UUID]:
    """Take children that have ended, to tell their parents in this transaction."""
    return [job_id for (job_id,) in await tx.values(sql.take_ended_children, {"limit": limit})]


async def list_waits_for_children(tx: Tx, children: Sequence[UUID]) -> list[CompletedWait]:
    """The waits for these children, with their results."""
    return await tx.all(CompletedWait, sql.waits_for_children, {"children": UuidArray(children)})


class Orphan(msgspec.Struct, frozen=True):
    """A child of a function that was canceled."""

    id: UUID
    parent_id: UUID
    tenant_id: UUID
    definition_key: str


async def list_orphans(tx: Tx, jobs: Sequence[UUID]) -> list[Orphan]:
    """The active children for which only functions of these wait that were canceled; the functions stay locked."""
    return await tx.all(Orphan, sql.orphans, {"jobs": UuidArray(jobs)})


async def drop_calls(tx: Tx, orphans: Sequence[Orphan]) -> None:
    """End the waits for these children: if their functions are retried, they call new ones."""
    values = {
        "jobs": UuidArray([one.parent_id for one in orphans]),
        "children": UuidArray([one.id for one in orphans]),
    }
    await tx.run(sql.drop_calls, values)


async def note_again(tx: Tx, jobs: Sequence[UUID]) -> None:
    """Let the children of these canceled functions be canceled later."""
    await tx.run(sql.note_again, {"jobs": UuidArray(jobs)})


# Events


class EventWait(msgspec.Struct, frozen=True):
    """A wait for an event, with its filter."""

    job_id: UUID
    branch: str
    position: int
    filter: Any


async def lock_event_names(tx: Tx, names: Collection[tuple[UUID, str]]) -> set[tuple[UUID, str]]:
    """Keep waits for events of these tenants and names from beginning until this transaction has ended.

    Those of them for which functions wait already.
    """
    values = {
        "tenants": UuidArray([one for one, _ in names]),
        "names": TextArray([name.encode() for _, name in names]),
    }
    await tx.values(sql.lock_event_names, values)
    # a statement of its own, which sees the waits that began before the lock was had
    return {(tenant_id, name) for tenant_id, name in await tx.values(sql.awaited_names, values)}


async def lock_event_name(tx: Tx, tenant_id: UUID, name: str) -> None:
    """Keep events of this name from being dispatched until this transaction has ended."""
    await tx.values(sql.lock_event_name, {"tenant_id": str(tenant_id), "name": name})


class WaitPlace(Protocol):
    """Where a list of waits goes on."""

    @property
    def job_id(self) -> UUID: ...

    @property
    def branch(self) -> str: ...

    @property
    def position(self) -> int: ...


async def list_event_waits(
    tx: Tx, event: Event, *, keys: Sequence[UUID] | None, after: WaitPlace | None
) -> list[EventWait]:
    """A page of the waits for an event with these match keys; None: all of them. With an empty list: those without a key."""
    values = {
        "tenant_id": event.tenant_id,
        "name": event.name,
        "event_id": str(event.id),
        "recorded_at": event.recorded_at,
        "after_job": ZERO if after is None else after.job_id,
        "after_branch": "" if after is None else after.branch,
        "after_position": -1 if after is None else after.position,
        "limit": PAGE,
    }
    if keys is not None and not keys:
        query = sql.waits_for_any_event
    else:
        query = sql.waits_for_event
        values["keys"] = None if keys is None else UuidArray(keys)
    return await tx.all(EventWait, query.replace("<received>", sql.received), values)


async def lock_event_wait(tx: Tx, lease: Lease, place: Place) -> EventWait | None:
    """A wait for an event, whose lease stays until the transaction ends; None if the wait is over, or the lease is lost."""
    values = {**msgspec.structs.asdict(lease), **msgspec.structs.asdict(place)}
    return await tx.first(EventWait, sql.event_wait, values)


class StoredEvent(msgspec.Struct, frozen=True):
    """An event that was stored before the wait for it began, or before it was over."""

    id: UUID
    name: str
    data: Any
    occurred_at: datetime


async def list_receivers(tx: Tx, job_id: UUID, name: str) -> UuidArray:
    """The job, and the jobs of the other steps of its run that have received an event of this name."""
    return UuidArray(one for (one,) in await tx.values(sql.receivers, {"job_id": job_id, "name": name}))


class EventScope(msgspec.Struct, frozen=True, kw_only=True):
    """The wait for which stored events count, and since when."""

    tenant_id: UUID
    name: str
    job_id: UUID
    branch: str
    position: int
    # who has received events of this name, which then count no more: see `list_receivers`
    jobs: UuidArray
    lookback: float | None


async def list_earlier_events(tx: Tx, scope: EventScope, *, before: UUID | None) -> list[StoredEvent]:
    """A page of the events that count for a wait that has just begun, the newest first."""
    return await _list_stored_events(tx, sql.earlier_events, scope, before)


async def list_undispatched_events(
    tx: Tx, scope: EventScope, *, after: UUID | None, newest: int
) -> list[StoredEvent]:
    """A page of the events that count for a wait and were stored in time, but not dispatched, the oldest first.

    Of the `newest` events of the name after that place.
    """
    return await _list_stored_events(tx, sql.undispatched_events, scope, after, newest=newest)


async def _list_stored_events(
    tx: Tx, query: str, scope: EventScope, place: UUID | None, **more: int
) -> list[StoredEvent]:
    values = {**msgspec.structs.asdict(scope), "place": place, "limit": PAGE, **more}
    return await tx.all(StoredEvent, query.replace("<counts>", sql.counts), values)


# Signals


class SignaledJob(msgspec.Struct, frozen=True):
    """A job that gets a signal."""

    id: UUID
    tenant_id: UUID
    status: str
    definition_key: str


async def lock_signaled_job(tx: Tx, job_id: UUID) -> SignaledJob | None:
    """A job that gets a signal. Its waits for signals begin before this transaction, or after its end."""
    await tx.values(sql.lock_signals, {"job_id": str(job_id)})
    return await tx.first(SignaledJob, sql.find_job, {"job_id": job_id})


async def add_signal(
    tx: Tx, job: SignaledJob, *, signal_id: UUID, name: str, data: JsonText | None, actor: str, most: int
) -> bool:
    """Store a signal, and give it to the first wait for it; False if the job has too many signals that no wait has taken."""
    values = {
        "id": signal_id,
        "job_id": job.id,
        "tenant_id": job.tenant_id,
        "name": name,
        "data": data,
        "actor": actor,
        "most": most,
    }
    if not await tx.values(sql.add_signal, values):
        return False
    if any(woken for (woken,) in await tx.values(sql.deliver_signal, values)):
        tx.notify("ready")
    return True
