"""Read the logs of a job's attempts from the start or from the end, also while they run."""

from collections.abc import Collection
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput, JobUnknown
from fairlead.model.access import Permission, Principal
from fairlead.model.job import Job
from fairlead.model.log import LAST_SEQ, Chunk
from fairlead.model.log_search import ChunkMatches, LineSearch
from fairlead.model.page import invalid_cursor
from fairlead.model.secrets.redact import Mask
from fairlead.store import jobs, logs
from fairlead.store.logs import LogPosition

MAX_PAGE = 1000
# How many pages of about 1 MiB one search reads.
SEARCH_PAGES = 8


class LogPage(msgspec.Struct, frozen=True):
    """A part of a log, in order. `complete`: nothing follows, now or later. Else continue from the cursor."""

    items: list[Chunk]
    next_cursor: str | None
    complete: bool


async def read(
    tx: Tx,
    principal: Principal,
    job_id: UUID,
    *,
    attempt_no: int | None = None,
    after_seq: int | None = None,
    cursor: str | None = None,
    limit: int = MAX_PAGE,
) -> LogPage:
    """The log of a job's attempts, or of one, after the cursor of the previous page or after `after_seq`."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(
            f"limit must be between 1 and {MAX_PAGE}.", [Fault("limit", f"use 1 to {MAX_PAGE}")]
        )
    after = _start_position(attempt_no, after_seq, cursor)
    job = await _get_visible(tx, principal, job_id)
    # checked before the chunks are read: an ended attempt has all its chunks
    over = job.status.terminal or (attempt_no is not None and await logs.is_over(tx, job_id, attempt_no))
    found = await logs.read(tx, job_id, after=after, attempt_no=attempt_no, limit=limit + 1)
    mask = await jobs.mask_of(tx, job_id)
    shown = _mask_chunks(mask, found[:limit])
    at_end = len(found) <= limit and not await _has_more(tx, job_id, found, attempt_no)
    complete = over and at_end
    last = LogPosition(found[:limit][-1].attempt_no, found[:limit][-1].seq) if found else after
    return LogPage(shown, None if complete else _encode_cursor(last), complete)


class BackPage(msgspec.Struct, frozen=True):
    """The end of the log before a position, in order; `earlier` is the cursor of the part before it, if any."""

    items: list[Chunk]
    earlier: str | None
    # the cursor from which to read on, or to follow
    later: str


async def read_back(
    tx: Tx,
    principal: Principal,
    job_id: UUID,
    *,
    attempt_no: int | None = None,
    before: str | None = None,
    limit: int = MAX_PAGE,
    page_bytes: int = logs.PAGE_BYTES,
) -> BackPage:
    """The end of the log of a job's attempts, or of one, or the part before a cursor."""
    await _get_visible(tx, principal, job_id)
    mask = await jobs.mask_of(tx, job_id)
    place = logs.END if before is None else _read_cursor(before)
    found = await logs.read_back(
        tx, job_id, before=place, attempt_no=attempt_no, limit=limit, page_bytes=page_bytes
    )
    if not found:
        return BackPage([], None, _encode_cursor(logs.BEGINNING))
    first, last = (LogPosition(one.attempt_no, one.seq) for one in (found[0], found[-1]))
    more = await logs.read_back(tx, job_id, before=first, attempt_no=attempt_no, limit=1)
    return BackPage(_mask_chunks(mask, found), _encode_cursor(first) if more else None, _encode_cursor(last))


class LogPart(msgspec.Struct, frozen=True):
    """The log around a chunk, in order; `earlier`: the cursor of the part before it, `more`: whether later chunks are stored."""

    items: list[Chunk]
    earlier: str | None
    later: str
    more: bool


async def read_around(
    tx: Tx,
    principal: Principal,
    job_id: UUID,
    *,
    around: str,
    attempt_no: int | None = None,
    limit: int = MAX_PAGE,
    page_bytes: int = logs.PAGE_BYTES,
) -> LogPart:
    """The log of a job's attempts, or of one, around the chunk of a cursor."""
    place = _read_cursor(around)
    last = place.seq == LAST_SEQ
    after = LogPosition(place.attempt_no + last, -1 if last else place.seq + 1)
    part = await read_back(
        tx,
        principal,
        job_id,
        attempt_no=attempt_no,
        before=_encode_cursor(after),
        limit=limit,
        page_bytes=page_bytes,
    )
    rest = await logs.read(tx, job_id, after=place, attempt_no=attempt_no, limit=limit, page_bytes=page_bytes)
    mask = await jobs.mask_of(tx, job_id)
    items = part.items + _mask_chunks(mask, rest)
    later = LogPosition(items[-1].attempt_no, items[-1].seq) if items else logs.BEGINNING
    more = await logs.read(tx, job_id, after=later, attempt_no=attempt_no, limit=1)
    return LogPart(items, part.earlier, _encode_cursor(later), bool(more))


class LogSearch(msgspec.Struct, frozen=True):
    """Chunks with matches, in order. If `next_cursor` is not null, the log goes on: continue the search from there."""

    items: list[ChunkMatches]
    next_cursor: str | None


async def search(
    tx: Tx,
    principal: Principal,
    job_id: UUID,
    wanted: str,
    *,
    streams: Collection[str],
    attempt_no: int | None = None,
    cursor: str | None = None,
) -> LogSearch:
    """Search the lines of a log, from a cursor on: a few MiB at once.

    Not in the database: only the masked text may match, or a search would tell whether a log has a certain secret.
    """
    found = LineSearch(wanted, streams)
    for _ in range(SEARCH_PAGES):
        page = await read(tx, principal, job_id, attempt_no=attempt_no, cursor=cursor)
        found.add(page.items)
        if page.complete or not page.items:
            return LogSearch(found.matches(), None)
        cursor = page.next_cursor
    return LogSearch(found.matches(), cursor)


async def _get_visible(tx: Tx, principal: Principal, job_id: UUID) -> Job:
    job = await jobs.get(tx, job_id, tenant_id=principal.tenant_id)
    if job is None:
        raise JobUnknown(f"There is no job {job_id}.", [Fault("id", "unknown")])
    principal.require(Permission.READ_JOBS, job.tenant_id)
    return job


def _mask_chunks(mask: Mask | None, chunks: list[Chunk]) -> list[Chunk]:
    return chunks if mask is None else [replace(one, text=mask.text(one.text)) for one in chunks]


def cursor_after(attempt_no: int, seq: int) -> str:
    """The cursor of what follows a chunk."""
    return _encode_cursor(LogPosition(attempt_no, seq))


def _encode_cursor(place: LogPosition) -> str:
    return f"{place.attempt_no}.{place.seq}"


async def _has_more(tx: Tx, job_id: UUID, found: list[Chunk], attempt_no: int | None) -> bool:
    """Whether the page ended at its limit of bytes."""
    if not found:
        return False
    last = LogPosition(found[-1].attempt_no, found[-1].seq)
    return bool(await logs.read(tx, job_id, after=last, attempt_no=attempt_no, limit=1))


def _start_position(attempt_no: int | None, after_seq: int | None, cursor: str | None) -> LogPosition:
    if cursor is not None:
        if after_seq is not None:
            raise InvalidInput("Give cursor or after_seq, not both.", [Fault("after_seq", "not with cursor")])
        return _read_cursor(cursor)
    if after_seq is None:
        return logs.BEGINNING
    if attempt_no is None:
        raise InvalidInput(
            "after_seq is a position in one attempt: give attempt_no with it.",
            [Fault("attempt_no", "is required")],
        )
    return LogPosition(attempt_no, after_seq)


def _read_cursor(cursor: str) -> LogPosition:
    parts = cursor.split(".")
    if len(parts) == 2 and all(_is_number(part) for part in parts):
        return LogPosition(int(parts[0]), int(parts[1]))
    raise invalid_cursor()


def _is_number(part: str) -> bool:
    return part == "-1" or (part.isascii() and part.isdigit() and len(part) <= 10 and int(part) <= LAST_SEQ)
