"""Events of the application, stored before they are dispatched."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx, json_text
from fairlead.model.event import Event, NewEvent
from fairlead.model.page import Page
from fairlead.store import bounded_page

sql = queries_beside(__file__)


class EmitResult(NamedTuple):
    """The result of emit_one: an id, or a refusal."""

    event_id: UUID | None
    outcome: str


async def emit(tx: Tx, new: NewEvent, *, data: bytes, actor: str) -> EmitResult:
    """Store a checked event."""
    values = {
        "tenant": new.tenant,
        "name": new.name,
        "data": JsonText(data),
        "correlation_id": new.correlation_id,
        "occurred_at": new.occurred_at,
        "actor": actor,
        "id": new.id,
        "caused_by": new.caused_by,
    }
    [answer] = await tx.values(sql.emit, values)
    emitted = EmitResult(*answer)
    if emitted.event_id is not None:
        tx.notify("event")
    return emitted


async def emit_ends(tx: Tx, jobs: Sequence[UUID]) -> None:
    """Store events for ended jobs, in the transaction that ended them. (`queue.finish` does this itself.)"""
    [(stored,)] = await tx.values(sql.tell_ends, {"jobs": list(jobs)})
    if stored:
        tx.notify("event")


def encode_joined(new: NewEvent, *, data: bytes, actor: str) -> str:
    """The document that emit_joined takes."""
    fields = {
        "tenant": new.tenant,
        "name": new.name,
        "data": msgspec.Raw(data),
        "correlation_id": new.correlation_id,
        "occurred_at": new.occurred_at,
        "actor": actor,
        "id": new.id,
        "caused_by": new.caused_by,
    }
    return msgspec.json.encode(fields).decode()


async def get(tx: Tx, event_id: UUID, *, tenant_id: UUID | None = None) -> Event | None:
    """An event of a tenant, or (None) of any."""
    return await tx.first(Event, f"{sql.selected} {sql.by_id}", {"id": event_id, "tenant_id": tenant_id})


async def list_page(
    tx: Tx,
    *,
    tenant_id: UUID | None,
    name: str | None,
    correlation_id: str | None,
    before: UUID | None,
    limit: int,
) -> Page[Event]:
    """Events, newest first."""
    values = {
        "tenant_id": tenant_id,
        "name": name,
        "correlation_id": correlation_id,
        "before": before,
    }
    which = sql.page_all if tenant_id is None else sql.page_of_tenant
    return await bounded_page.fetch_page(
        tx, Event, f"{sql.selected} {which}", values, limit=limit, weighed_json=("data",)
    )


# the place before all tenants
NO_TURN = UUID(int=0)


class TakenEvent(msgspec.Struct, frozen=True):
    """A waiting event that this transaction has taken, without its data."""

    id: UUID
    tenant_id: UUID
    # how large its data is in memory
    data_bytes: int
    # the last wait that it was compared with, if it is dispatched in parts
    progress: Any
    # the tenant that had the last turn when this event was taken
    last_turn: UUID


async def take_waiting(tx: Tx, *, after: UUID, limit: int, patience_seconds: float) -> list[TakenEvent]:
    """Take waiting events, to dispatch in this transaction; in the order of their ids.

    The oldest of each tenant, from the one after `after` on, and then the oldest of all.
    PostgreSQL ends the transaction if it is idle for `patience_seconds`.
    """
    values = {"limit": limit, "after": after, "patience": f"{int(patience_seconds * 1000)}ms"}
    return sorted(await tx.all(TakenEvent, sql.take, values), key=lambda event: event.id)


class RuleCost(NamedTuple):
    """How many triggers an event is to be compared with, and how large their filters are together."""

    rules: int
    filter_bytes: int


async def measure_rules(tx: Tx, ids: Collection[UUID]) -> dict[UUID, RuleCost]:
    """What it costs to compare these events with triggers."""
    rows = await tx.values(sql.rule_costs, {"ids": list(ids)})
    return {event_id: RuleCost(int(number), int(size)) for event_id, number, size in rows}


async def list_taken(tx: Tx, ids: Collection[UUID]) -> list[Event]:
    """Taken events with their data, in the order of their ids."""
    return await tx.all(Event, f"{sql.selected} {sql.taken}", {"ids": list(ids)})


async def mark_dispatched(tx: Tx, secret_paths: Mapping[UUID, Collection[str]]) -> None:
    """Mark taken events as dispatched, each with the paths at which triggers found secrets."""
    done = [{"id": event_id, "secret_paths": sorted(paths)} for event_id, paths in secret_paths.items()]
    await tx.run(sql.dispatched, {"events": json_text(done)})


async def return_to_waiting(tx: Tx, taken: Sequence[TakenEvent]) -> None:
    """Return taken events to the waiting ones."""
    await tx.run(sql.put_back, {"events": json_text(taken)})


async def postpone(tx: Tx, ids: Sequence[UUID], *, seconds: float | None = None) -> None:
    """Delay these events: dispatching them failed. With `seconds` it was not their fault, and no try is counted."""
    await tx.run(sql.put_off, {"ids": list(ids), "seconds": seconds})


async def seconds_until_due(tx: Tx) -> float | None:
    """Seconds until the next event is to be dispatched; None if none waits."""
    [(seconds,)] = await tx.values(sql.next_due)
    return None if seconds is None else float(seconds)


async def copy_event(
    tx: Tx, event_id: UUID, *, new_id: UUID, only_trigger_id: UUID | None, actor: str
) -> bool:
    """Store a copy of an event under a new id; False if the event does not exist."""
    values = {"id": event_id, "new_id": new_id, "only_trigger_id": only_trigger_id, "actor": actor}
    return bool(await tx.run(sql.replay, values))


async def remove_old(tx: Tx, *, days: int, limit: int) -> int:
    """Remove events that were dispatched more than `days` ago. Their number."""
    return await tx.run(sql.forget, {"days": days, "limit": limit})
