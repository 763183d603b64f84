"""What attempts say, as it comes: chunks of text, bounded for each attempt."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.job import Lease

sql = queries_beside(__file__)

MAX_BYTES = 1_048_576
MAX_CHUNKS = 10_000
# Where the mark stands that says that the rest was not kept: behind everything.
LAST_SEQ = 2_147_483_647
PAGE_BYTES = 1_048_576


class NewChunk(NamedTuple):
    """Something that an attempt said: its place among all it says, and where it said it."""

    seq: int
    stream: str
    text: str


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk as it is kept."""

    attempt_no: int
    seq: int
    stream: str
    at: datetime
    text: str


class Appended(msgspec.Struct, frozen=True):
    """How many chunks were kept, and whether the attempt has said more than is."""

    kept: int
    truncated: bool


class Place(NamedTuple):
    """A place in a job's log: behind this chunk of this attempt."""

    attempt_no: int = 0
    seq: int = -1


BEGINNING = Place()
END = Place(LAST_SEQ, LAST_SEQ)


async def append(
    tx: Tx, lease: Lease, tenant_id: UUID, chunks: Sequence[NewChunk], *, max_bytes: int = MAX_BYTES
) -> Appended | None:
    """Keep what an attempt says, up to its bounds: one statement. None if its lease is over, and nothing was kept."""
    values = {
        "job_id": lease.job_id,
        "attempt_no": lease.attempt_no,
        "token": lease.token,
        "tenant_id": tenant_id,
        "chunks": json_text([chunk._asdict() for chunk in chunks]),
        "max_bytes": max_bytes,
        "max_chunks": MAX_CHUNKS,
        "last_seq": LAST_SEQ,
        "mark": f"… this attempt has said more than {max_bytes} bytes: the rest was not kept …\n",
    }
    [(kept, truncated)] = await tx.values(sql.append, values)
    return None if kept is None else Appended(kept, truncated)


async def read(
    tx: Tx, job_id: UUID, *, after: Place = BEGINNING, attempt_no: int | None = None, limit: int
) -> list[Chunk]:
    """What a job's attempts (or the one) said, in order, behind a place: at most `limit` chunks, and about 1 MiB."""
    values = {
        "job_id": job_id,
        "after_attempt": after.attempt_no,
        "after_seq": after.seq,
        "attempt_no": attempt_no,
        "limit": limit,
        "page_bytes": PAGE_BYTES,
    }
    return await tx.all(Chunk, sql.read, values)


async def read_back(
    tx: Tx,
    job_id: UUID,
    *,
    before: Place = END,
    attempt_no: int | None = None,
    limit: int,
    page_bytes: int = PAGE_BYTES,
) -> list[Chunk]:
    """The last of what was said before a place, in order: at most `limit` chunks, and about so many bytes."""
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
