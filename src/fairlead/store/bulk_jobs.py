"""Many jobs canceled or retried at once: found by filter, each owned by taking its row of the queue."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.store import events, jobs

sql = queries_beside(__file__)

# By these an index of the record finds few jobs; by the others the queue's own tables do.
_SELECTIVE = {"correlation_id", "dedupe_key"}


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has ended, kept from others who would retry it."""

    id: UUID
    tenant_id: UUID
    dedupe_key: str | None


class Retryable(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has ended and may be retried, unless it is stuck: its dedupe key is held, its host is gone, or it is forbidden."""

    id: UUID
    tenant_id: UUID
    key_hash: bytes | None
    is_stuck: bool


async def cancelable(
    tx: Tx, filters: Mapping[str, Any], *, limit: int, forbidden: str | None = None
) -> list[UUID]:
    """Up to so many jobs that match, wait or run, and have not been asked to stop; none of a forbidden definition."""
    conditions, values = jobs.conditions(tx, filters)
    if forbidden is not None:
        conditions, values = [*conditions, sql.where_allowed], {**values, "forbidden": forbidden}
    selective = bool(values.get("q_id")) or not _SELECTIVE.isdisjoint(values)
    start = sql.cancelable_of_record if selective else sql.cancelable_of_queue
    return await _ids(tx, start, conditions, values, limit)


@asynccontextmanager
async def retryable(
    tx: Tx, filters: Mapping[str, Any], *, forbidden: str | None = None
) -> AsyncIterator[AsyncIterator[Retryable]]:
    """Jobs that match and failed, were dead-lettered or canceled, of definitions that are active; read as they are asked for."""
    await tx.by_index()
    conditions, values = jobs.conditions(tx, filters)
    query = "\nand ".join([sql.retryable, *conditions])
    await tx.run(f"{sql.look_at_retryable}\n{query}", {**values, "forbidden": forbidden})
    yield _read(tx)
    await tx.run(sql.end_of_retryable)  # where something failed, the transaction's end does it


async def _read(tx: Tx) -> AsyncIterator[Retryable]:
    while page := await tx.all(Retryable, sql.next_retryable):
        for one in page:
            yield one


async def retryable_chosen(
    tx: Tx, ids: Sequence[UUID], *, tenant_id: UUID | None, forbidden: str | None = None
) -> list[UUID]:
    """Those of the jobs, of a tenant or (None) of anybody's, that can be retried, of definitions that are active."""
    found = await tx.values(
        sql.retryable_chosen, {"ids": list(ids), "tenant_id": tenant_id, "forbidden": forbidden}
    )
    return [one for (one,) in found]


async def _ids(
    tx: Tx, start: str, conditions: Sequence[str], values: Mapping[str, Any], limit: int
) -> list[UUID]:
    query = "\nand ".join([start, *conditions]) + "\nlimit %(limit)s"
    return [one for (one,) in await tx.values(query, {"tenant_id": None, **values, "limit": limit})]


async def still_cancelable(tx: Tx, ids: Sequence[UUID]) -> list[UUID]:
    """Those of the jobs that still wait or run and have not been asked to stop."""
    return [one for (one,) in await tx.values(sql.still_cancelable, {"ids": list(ids)})]


async def cancel_queued(tx: Tx, ids: Sequence[UUID]) -> list[UUID]:
    """End those of the jobs that wait and that nobody else is moving. Which ones."""
    canceled = [one for (one,) in await tx.values(sql.cancel_queued, {"ids": list(ids)})]
    if canceled:
        await events.tell_ends(tx, canceled)
    return canceled


async def request_cancel(tx: Tx, ids: Sequence[UUID]) -> list[UUID]:
    """Ask the owners of those that run, and that nobody is finishing, to stop. Which ones."""
    return [one for (one,) in await tx.values(sql.request_cancel, {"ids": list(ids)})]


async def hold_terminal(tx: Tx, ids: Sequence[UUID]) -> list[Held]:
    """Those of the jobs that can be retried and that nobody else is retrying, kept so until the transaction ends."""
    return await tx.all(Held, sql.hold_terminal, {"ids": list(ids)})


async def requeue(tx: Tx, ids: Sequence[UUID]) -> int:
    """Put held jobs back, with a fresh budget. How many."""
    [(number,)] = await tx.values(sql.requeue, {"ids": list(ids)})
    return int(number)
