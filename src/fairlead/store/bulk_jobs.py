"""Cancel or retry many jobs at once, found by filter. Deleting a job's row in the queue gives ownership of its transition."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.store import events, job_conditions

sql = queries_beside(__file__)

# For these filters an index of jobs finds few rows; for the others the queue's own tables do.
_SELECTIVE = {"correlation_id", "dedupe_key"}


class LockedJob(msgspec.Struct, frozen=True, kw_only=True):
    """An ended job that this transaction has locked against other retries."""

    id: UUID
    tenant_id: UUID
    dedupe_key: str | None


class RetryCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """An ended job that may be retried, unless it is stuck: then `stuck` is the reason."""

    id: UUID
    tenant_id: UUID
    key_hash: bytes | None
    stuck: str | None


async def list_cancelable(
    tx: Tx, filters: Mapping[str, Any], *, limit: int, forbidden: str | None = None
) -> list[UUID]:
    """Up to `limit` matching jobs that wait or run and have no cancel request; none of a forbidden definition."""
    conditions, values = job_conditions.build_conditions(tx, filters)
    if forbidden is not None:
        conditions, values = [*conditions, sql.where_allowed], {**values, "forbidden": forbidden}
    selective = bool(values.get("q_id")) or not _SELECTIVE.isdisjoint(values)
    start = sql.cancelable_of_record if selective else sql.cancelable_of_queue
    return await _list_ids(tx, start, conditions, values, limit)


@asynccontextmanager
async def open_retryable(
    tx: Tx, filters: Mapping[str, Any], *, forbidden: str | None = None
) -> AsyncIterator[AsyncIterator[RetryCandidate]]:
    """Matching jobs that failed, were dead-lettered or canceled, of active definitions; read on demand."""
    await tx.prefer_indexes()
    conditions, values = job_conditions.build_conditions(tx, filters)
    query = "\nand ".join([sql.retryable, *conditions])
    await tx.run(f"{sql.look_at_retryable}\n{query}", {**values, "forbidden": forbidden})
    yield _read_candidates(tx)
    await tx.run(sql.end_of_retryable)  # after an error, the transaction's end closes the cursor


async def _read_candidates(tx: Tx) -> AsyncIterator[RetryCandidate]:
    while page := await tx.all(RetryCandidate, sql.next_retryable):
        for one in page:
            yield one


async def find_stuck(
    tx: Tx, ids: Sequence[UUID], *, tenant_id: UUID | None, forbidden: str | None = None
) -> dict[UUID, str | None]:
    """Those of the jobs that exist, of a tenant or (None) of all; each with the reason why it cannot be retried."""
    values = {"ids": list(ids), "tenant_id": tenant_id, "forbidden": forbidden}
    return dict(await tx.values(sql.retryable_chosen, values))


async def find_not_cancelable(
    tx: Tx, ids: Sequence[UUID], *, tenant_id: UUID | None, forbidden: str | None = None
) -> dict[UUID, str | None]:
    """Those of the jobs that exist, of a tenant or (None) of all; each with the reason why it cannot be canceled."""
    values = {"ids": list(ids), "tenant_id": tenant_id, "forbidden": forbidden}
    return dict(await tx.values(sql.cancelable_chosen, values))


async def count_never_retryable(tx: Tx, filters: Mapping[str, Any], *, most: int) -> dict[str, int]:
    """By reason: the jobs that `open_retryable` leaves out, among `most` of the matching jobs."""
    await tx.prefer_indexes()
    conditions, values = job_conditions.build_conditions(tx, filters)
    query = "\nand ".join([sql.never_retryable, *conditions])
    end = "\nlimit %(most)s) x where x.reason is not null group by x.reason"
    return dict(await tx.values(query + end, {**values, "most": most}))


async def _list_ids(
    tx: Tx, start: str, conditions: Sequence[str], values: Mapping[str, Any], limit: int
) -> list[UUID]:
    query = "\nand ".join([start, *conditions]) + "\nlimit %(limit)s"
    return [one for (one,) in await tx.values(query, {"tenant_id": None, **values, "limit": limit})]


async def filter_cancelable(tx: Tx, ids: Sequence[UUID]) -> list[UUID]:
    """Those of the jobs that still wait or run and have no cancel request."""
    return [one for (one,) in await tx.values(sql.still_cancelable, {"ids": list(ids)})]


async def cancel_queued(tx: Tx, ids: Sequence[UUID]) -> list[UUID]:
    """Cancel those of the jobs that wait and whose rows are not locked. Their ids."""
    [(canceled, released)] = await tx.values(sql.cancel_queued, {"ids": list(ids)})
    if released:
        tx.notify("ready")
    if canceled:
        await events.emit_ends(tx, canceled)
    return canceled or []


async def request_cancel(tx: Tx, ids: Sequence[UUID]) -> list[UUID]:
    """Request the cancel of those of the jobs that run and whose leases are not locked. Their ids."""
    return [one for (one,) in await tx.values(sql.request_cancel, {"ids": list(ids)})]


async def lock_terminal(tx: Tx, ids: Sequence[UUID]) -> list[LockedJob]:
    """Lock those of the jobs that can be retried and are not locked, until the transaction ends."""
    return await tx.all(LockedJob, sql.hold_terminal, {"ids": list(ids)})


async def requeue(tx: Tx, ids: Sequence[UUID]) -> int:
    """Requeue locked jobs with a fresh retry budget. Their number."""
    [(number,)] = await tx.values(sql.requeue, {"ids": list(ids)})
    return int(number)
