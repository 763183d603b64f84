"""Firings: the outcome of each instant and event of a trigger; and the dedupe windows of triggers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx
from fairlead.model.job import JobStatus
from fairlead.model.page import Page
from fairlead.model.trigger import Firing, FiringCount, FiringOutcome
from fairlead.store import bounded_page

sql = queries_beside(__file__)


class NewFiring(msgspec.Struct, frozen=True, kw_only=True):
    """A firing to record."""

    trigger_id: UUID
    tenant_id: UUID
    slot: str
    outcome: FiringOutcome
    scheduled_at: datetime | None = None
    event_id: UUID | None = None
    job_id: UUID | None = None
    reason: str | None = None
    detail: str | None = None
    covers: int | None = 1
    covers_until: datetime | None = None
    # generated here in sequence, so that the firings of one transaction are listed in the order of their instants
    id: UUID = msgspec.field(default_factory=uuid7)


async def add(tx: Tx, firings: Sequence[NewFiring]) -> None:
    """Record firings; a duplicate fails the transaction."""
    if firings:
        await tx.run(sql.add, {"firings": JsonText(msgspec.json.encode(firings))})


async def filter_recorded(tx: Tx, slots: Sequence[tuple[UUID, str]]) -> set[tuple[UUID, str]]:
    """Those of the (trigger, slot) pairs that are recorded."""
    values = {"triggers": [trigger for trigger, _ in slots], "slots": [slot for _, slot in slots]}
    return {(trigger, slot) for trigger, slot in await tx.values(sql.recorded, values)}


class FiringResult(NamedTuple):
    """The outcome of a recorded firing, and its job."""

    outcome: FiringOutcome
    job_id: UUID | None


async def get_outcomes(tx: Tx, trigger_id: UUID, slots: Sequence[str]) -> dict[str, FiringResult]:
    """The recorded outcomes of a trigger at these slots."""
    rows = await tx.values(sql.outcomes, {"trigger_id": trigger_id, "slots": list(slots)})
    return {slot: FiringResult(FiringOutcome(outcome), job_id) for slot, outcome, job_id in rows}


async def count_jobs(tx: Tx, job_ids: Sequence[UUID]) -> dict[JobStatus, int]:
    """How many of these jobs have each status."""
    rows = await tx.values(sql.job_statuses, {"ids": list(job_ids)}) if job_ids else []
    return {JobStatus(status): number for status, number in rows}


async def list_page(
    tx: Tx, trigger_id: UUID, *, outcome: FiringOutcome | None, before: UUID | None, limit: int
) -> Page[Firing]:
    """A trigger's firings, newest first."""
    values = {"trigger_id": trigger_id, "outcome": outcome, "before": before}
    return await _list_page(tx, sql.page, values, limit=limit)


async def get_at_slot(tx: Tx, trigger_id: UUID, slot: str) -> Firing:
    """The recorded firing of a trigger at a slot."""
    [firing] = await tx.all(Firing, f"{sql.selected} {sql.at_slot}", {"trigger_id": trigger_id, "slot": slot})
    return firing


async def list_of_event(
    tx: Tx, event_id: UUID, *, tenant_id: UUID | None = None, after: UUID | None = None, limit: int
) -> Page[Firing]:
    """The firings of an event, the oldest first."""
    values = {"event_id": event_id, "tenant_id": tenant_id, "after": after}
    return await _list_page(tx, sql.of_event, values, limit=limit)


async def find_of_job(tx: Tx, event_id: UUID, job_id: UUID, *, tenant_id: UUID | None) -> Firing | None:
    """The firing by which an event made a job."""
    values = {"event_id": event_id, "job_id": job_id, "tenant_id": tenant_id}
    return await tx.first(Firing, f"{sql.selected} {sql.of_job}", values)


async def _list_page(tx: Tx, which: str, values: Mapping[str, Any], *, limit: int) -> Page[Firing]:
    query = f"{sql.selected} {which}"
    return await bounded_page.fetch_page(tx, Firing, query, values, limit=limit, weighed=("detail", "slot"))


async def list_recent(tx: Tx, trigger_ids: Sequence[UUID], *, each: int) -> list[Firing]:
    """The last few firings of each of these triggers, newest first."""
    values = {"trigger_ids": list(trigger_ids), "each": each}
    return await tx.all(Firing, f"{sql.selected} {sql.recent}", values)


async def count_in_bins(
    tx: Tx, trigger_ids: Sequence[UUID], *, since: datetime, bin_size: timedelta, each: int
) -> list[FiringCount]:
    """The latest firings of each of these triggers since an instant, counted by bin, outcome and reason."""
    milliseconds = int(since.timestamp() * 1000)
    values = {
        "trigger_ids": list(trigger_ids),
        "since": since,
        "bin": bin_size,
        "each": each,
        "first_id": UUID(int=milliseconds << 80),
    }
    return await tx.all(FiringCount, sql.binned, values)


async def count_outcomes(tx: Tx, event_ids: Sequence[UUID]) -> list[tuple[UUID, FiringOutcome, int]]:
    """The number of firings of these events, by outcome."""
    rows = await tx.values(sql.tally, {"event_ids": list(event_ids)})
    return [(event_id, FiringOutcome(outcome), count) for event_id, outcome, count in rows]


class Window(NamedTuple):
    """The dedupe window of one trigger and payload."""

    tenant_id: UUID
    hash: bytes


class WindowClaim(NamedTuple):
    """A job that wants a window, and for how many seconds."""

    job_id: UUID
    seconds: int


async def take_windows(tx: Tx, wanted: Mapping[Window, WindowClaim]) -> dict[Window, UUID]:
    """The job that holds each window: the wanting one, or one that was first.

    Waits for uncommitted holders, in one order, so that two transactions cannot deadlock.
    """
    held: dict[Window, UUID] = {}
    while rest := {window: claim for window, claim in wanted.items() if window not in held}:
        values = _window_columns(rest)
        held |= _read_holders(await tx.values(sql.holders, values))
        if any(window not in held for window in rest):
            values = _window_columns({window: claim for window, claim in rest.items() if window not in held})
            held |= _read_holders(await tx.values(sql.windows, values))
    return held


def _window_columns(wanted: Mapping[Window, WindowClaim]) -> dict[str, Any]:
    return {
        "tenants": [window.tenant_id for window in wanted],
        "hashes": [window.hash for window in wanted],
        "jobs": [claim.job_id for claim in wanted.values()],
        "seconds": [claim.seconds for claim in wanted.values()],
    }


def _read_holders(rows: Iterable[tuple[Any, ...]]) -> dict[Window, UUID]:
    return {Window(tenant_id, bytes(found)): job_id for tenant_id, found, job_id in rows}


async def find_window_holder(tx: Tx, window: Window) -> UUID | None:
    """The job that holds a window now."""
    values = {"tenants": [window.tenant_id], "hashes": [window.hash]}
    return _read_holders(await tx.values(sql.holders, values)).get(window)


async def free_window(tx: Tx, window: Window, *, job_id: UUID) -> None:
    """Free a window, since this job was not created."""
    await tx.run(sql.leave_window, {**window._asdict(), "job_id": job_id})


async def remove_old(tx: Tx, *, days: int, limit: int) -> int:
    """Remove firings older than `days`. Their number."""
    return await tx.run(sql.forget, {"days": days, "limit": limit})


async def remove_ended_windows(tx: Tx, *, limit: int) -> int:
    """Remove windows that have ended. Their number."""
    return await tx.run(sql.forget_windows, {"limit": limit})
