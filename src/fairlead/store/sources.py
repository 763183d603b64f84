"""Sources of events, and the ids of their messages that became events."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx
from fairlead.model.event import NewEvent
from fairlead.model.event_source import SILENT_SECONDS, EventSource
from fairlead.model.page import Page

sql = queries_beside(__file__)


async def report(tx: Tx, *, name: str, driver: str, tenant_id: UUID | None, event: str) -> bool:
    """Record that a process runs this source. Whether it is paused."""
    values = {"name": name, "driver": driver, "tenant_id": tenant_id, "event": event}
    [(paused,)] = await tx.values(sql.seen, values)
    return bool(paused)


async def is_paused(tx: Tx, name: str) -> bool:
    return any(paused for (paused,) in await tx.values(sql.is_paused, {"name": name}))


async def list_page(tx: Tx, *, tenant_id: UUID | None, after: str, limit: int) -> Page[EventSource]:
    """Sources by name; those of one tenant, or (None) of all."""
    values = {"tenant_id": tenant_id, "after": after, "limit": limit + 1, "silent_seconds": SILENT_SECONDS}
    found = await tx.all(EventSource, f"{sql.selected} {sql.page}", values)
    return Page(found[:limit], more=len(found) > limit)


async def find(tx: Tx, name: str) -> EventSource | None:
    values = {"name": name, "silent_seconds": SILENT_SECONDS}
    return await tx.first(EventSource, f"{sql.selected} {sql.by_name}", values)


async def pause(tx: Tx, name: str, *, actor: str, note: str | None) -> None:
    """Pause a source, or replace the note of a paused one."""
    await tx.run(sql.pause, {"name": name, "actor": actor, "note": note})


async def resume(tx: Tx, name: str) -> None:
    await tx.run(sql.resume, {"name": name})


async def record_failure(tx: Tx, name: str, why: str) -> None:
    """Record why a source cannot consume now."""
    await tx.run(sql.fail, {"name": name, "why": why})


async def record_recovery(tx: Tx, name: str) -> None:
    """Record that a source consumes again."""
    await tx.run(sql.recover, {"name": name})


async def add_counts(
    tx: Tx, name: str, *, messages: int, duplicates: int, refused: int, last_refusal: str | None
) -> None:
    """Count the messages of a batch."""
    values = {
        "name": name,
        "messages": messages,
        "duplicates": duplicates,
        "refused": refused,
        "last_refusal": last_refusal,
    }
    await tx.run(sql.count, values)


async def remember_messages(tx: Tx, source: str, ids: Sequence[str], *, days: int) -> set[str]:
    """Remember the ids of messages. Those that were not known yet."""
    values = {"source": source, "ids": list(ids), "days": days}
    return {message_id for (message_id,) in await tx.values(sql.remember, values)}


async def forget_ids(tx: Tx, source: str, ids: Sequence[str]) -> None:
    """Forget the ids of messages that became no events after all."""
    await tx.run(sql.forget_ids, {"source": source, "ids": list(ids)})


async def emit_in_order(tx: Tx, events: Sequence[tuple[NewEvent, bytes]], *, actor: str) -> list[str]:
    """Store checked events, each with its data as JSON, in this order. The outcome of each: `emitted`, or a refusal's code."""
    said = [
        {
            "id": new.id,
            "tenant": new.tenant,
            "name": new.name,
            "data": msgspec.Raw(data),
            "occurred_at": new.occurred_at,
        }
        for new, data in events
    ]
    rows = await tx.values(sql.emit, {"events": JsonText(msgspec.json.encode(said)), "actor": actor})
    tx.notify("event")
    return [outcome for _, outcome in rows]


async def forget_messages(tx: Tx, *, limit: int) -> int:
    """Remove ids that need no longer be remembered. Their number."""
    return await tx.run(sql.forget, {"limit": limit})
