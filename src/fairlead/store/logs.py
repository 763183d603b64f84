"""Live logs of attempts: chunks of text, with a limit for each attempt."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.job import Lease
from fairlead.model.log import LAST_SEQ, Chunk, NewChunk

sql = queries_beside(__file__)

MAX_BYTES = 1_048_576
MAX_CHUNKS = 10_000
PAGE_BYTES = 1_048_576


class AppendResult(msgspec.Struct, frozen=True):
    """The number of stored chunks, and whether the log was cut off."""

    kept: int
    truncated: bool


class NewChunks(NamedTuple):
    """Chunks of one attempt's log, and the most bytes that its log may have."""

    lease: Lease
    tenant_id: UUID
    chunks: Sequence[NewChunk]
    max_bytes: int = MAX_BYTES


class AppendResults(NamedTuple):
    """The result for each lease that is not over; `busy`: another transaction had locked it, and nothing was stored."""

    results: dict[Lease, AppendResult]
    busy: set[Lease]


class LogPosition(NamedTuple):
    """A position in a job's log: after this chunk of this attempt."""

    attempt_no: int = 0
    seq: int = -1


BEGINNING = LogPosition()
END = LogPosition(LAST_SEQ, LAST_SEQ)


async def append(
    tx: Tx, lease: Lease, tenant_id: UUID, chunks: Sequence[NewChunk], *, max_bytes: int = MAX_BYTES
) -> AppendResult | None:
    """Store chunks of an attempt's log up to its limits, in one statement. None if its lease is over: nothing is stored."""
    values = {
        "job_id": lease.job_id,
        "attempt_no": lease.attempt_no,
        "token": lease.token,
        "tenant_id": tenant_id,
        "chunks": json_text([chunk._asdict() for chunk in chunks]),
        "max_bytes": max_bytes,
        "max_chunks": MAX_CHUNKS,
        "last_seq": LAST_SEQ,
        "mark": _mark(max_bytes),
    }
    [(kept, truncated)] = await tx.values(sql.append, values)
    return None if kept is None else AppendResult(kept, truncated)


async def append_all(tx: Tx, news: Sequence[NewChunks]) -> AppendResults:
    """`append` for several attempts, in one statement that waits for no lease."""
    asked = [
        {
            "number": number,
            "job_id": new.lease.job_id,
            "attempt_no": new.lease.attempt_no,
            "token": new.lease.token,
            "tenant_id": new.tenant_id,
            "chunks": [chunk._asdict() for chunk in new.chunks],
            "max_bytes": new.max_bytes,
            "mark": _mark(new.max_bytes),
        }
        for number, new in enumerate(news)
    ]
    values = {"asked": json_text(asked), "max_chunks": MAX_CHUNKS, "last_seq": LAST_SEQ}
    found = await tx.values(sql.append_all, values)
    return AppendResults(
        {
            news[number].lease: AppendResult(kept, truncated)
            for number, kept, truncated in found
            if kept is not None
        },
        {news[number].lease for number, kept, _ in found if kept is None},
    )


def _mark(max_bytes: int) -> str:
    return f"… this attempt has logged more than {max_bytes} bytes: the rest was not stored …\n"


async def read(
    tx: Tx,
    job_id: UUID,
    *,
    after: LogPosition = BEGINNING,
    attempt_no: int | None = None,
    limit: int,
    page_bytes: int = PAGE_BYTES,
) -> list[Chunk]:
    """The log of a job's attempts, or of one, in order, after a position: at most `limit` chunks, and about `page_bytes`."""
    values = {
        "job_id": job_id,
        "after_attempt": after.attempt_no,
        "after_seq": after.seq,
        "attempt_no": attempt_no,
        "limit": limit,
        "page_bytes": page_bytes,
    }
    return await tx.all(Chunk, sql.read, values)


async def read_back(
    tx: Tx,
    job_id: UUID,
    *,
    before: LogPosition = END,
    attempt_no: int | None = None,
    limit: int,
    page_bytes: int = PAGE_BYTES,
) -> list[Chunk]:
    """The end of the log before a position, in order: at most `limit` chunks, and about `page_bytes`."""
    values = {
        "job_id": job_id,
        "before_attempt": before.attempt_no,
        "before_seq": before.seq,
        "attempt_no": attempt_no,
        "limit": limit,
        "page_bytes": page_bytes,
    }
    return await tx.all(Chunk, sql.read_back, values)


async def is_over(tx: Tx, job_id: UUID, attempt_no: int) -> bool:
    """Whether an attempt has ended."""
    return bool(await tx.values(sql.is_over, {"job_id": job_id, "attempt_no": attempt_no}))
