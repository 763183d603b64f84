"""Find jobs by filters, newest first, in a bounded time."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.database_errors import TOO_SLOW
from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.errors import SearchTooSlow
from fairlead.model.job import Job, JobStatus
from fairlead.model.page import Page
from fairlead.store import jobs
from fairlead.store.job_conditions import ACTIVE, TROUBLED, FilterConditions

sql = queries_beside(__file__)

# The jobs of the first piece; while pieces are quick, the next ones are larger, up to the most.
FIRST_LOOK = 500
# The same for filters that read whole payloads or errors, which can be large.
FIRST_LARGE_LOOK = 50
_OF_TEXTS = ("q", "error", "payload", "payload_contains")
# How long one statement of such a search, or of one with an offset, may take.
STATEMENT_SECONDS = 2.0
MOST_LOOK = 50_000
_GROWTH = 4
# Up to this many waiting jobs are found through the queue's own tables.
MOST_WAITING = 20_000
# The filters that the counts know.
_COUNTED = {"tenant_id", "definition_key", "status"}


class FoundJobs(msgspec.Struct, frozen=True):
    """A page of a search."""

    jobs: list[Job]
    # the id after which the next page starts; None if there is nothing more
    last: UUID | None
    # the jobs that were compared with the filters; None if an index had all of them
    searched: int | None = None


async def count_matching(tx: Tx, filters: Mapping[str, Any]) -> int | None:
    """The number of jobs that match, if the counts know it."""
    given = {name for name, value in filters.items() if value is not None}
    if not given <= _COUNTED:
        return None
    named = await _name_definition(tx, filters)
    return 0 if named is None else await _count(tx, named)


async def _count(tx: Tx, filters: Mapping[str, Any]) -> int:
    statuses = filters.get("status")
    values = {
        "tenant_id": filters.get("tenant_id"),
        "definition_id": filters.get("definition_id"),
        "statuses": None if statuses is None else [one.value for one in statuses],
    }
    [(total,)] = await tx.values(sql.total, values)
    return max(0, int(total))


async def _name_definition(tx: Tx, filters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The filters with the definition's id instead of its key; None if there is no such definition."""
    if filters.get("definition_key") is None:
        return filters
    found = await tx.values(sql.definition, {"definition_key": filters["definition_key"]})
    return {**filters, "definition_key": None, "definition_id": found[0][0]} if found else None


class FoundIds(msgspec.Struct, frozen=True):
    """The jobs that a search found, newest first."""

    ids: list[UUID]
    # the id after which the search goes on; None if there is nothing more
    last: UUID | None
    searched: int | None


async def find_ids(tx: Tx, filters: Mapping[str, Any], *, limit: int, seconds: float) -> FoundIds:
    """Up to `limit` jobs that match, newest first, as far as they are found within the seconds."""
    found = await _search(tx, filters, limit=limit, offset=0, seconds=seconds)
    if len(found.ids) > limit:
        return FoundIds(found.ids[:limit], found.ids[limit - 1], found.searched)
    return found


async def find_page(
    tx: Tx, filters: Mapping[str, Any], *, limit: int, offset: int = 0, seconds: float
) -> FoundJobs:
    """Jobs that match, newest first.

    It looks at a piece of the jobs at a time, until it has `limit` or the seconds are over: a page may be short or
    empty without being the last. It ends at MOST_PAGE_BYTES, too.
    """
    found = await _search(tx, filters, limit=limit, offset=offset, seconds=seconds)
    page = await _fetch_found(tx, found.ids[:limit])
    if page.more:
        return FoundJobs(page, page[-1].id, found.searched)
    if len(found.ids) > limit:
        return FoundJobs(page, found.ids[limit - 1], found.searched)
    return FoundJobs(page, found.last, found.searched)


async def _search(tx: Tx, filters: Mapping[str, Any], *, limit: int, offset: int, seconds: float) -> FoundIds:
    """Up to limit + 1 matching jobs; SearchTooSlow if a piece of it takes too long."""
    named = await _name_definition(tx, filters)
    if named is None or (named.get("status") is not None and not await _count(tx, named)):
        return FoundIds([], None, None)
    await tx.prefer_indexes(plan_each=True)
    reads_texts = any(named.get(name) is not None for name in _OF_TEXTS)
    look = (FIRST_LARGE_LOOK if reads_texts else FIRST_LOOK) + offset
    if not (reads_texts or offset):
        return FoundIds(*await _find_ids(tx, named, limit=limit, offset=offset, look=look, seconds=seconds))
    async with _limit_statements(tx):
        return FoundIds(*await _find_ids(tx, named, limit=limit, offset=offset, look=look, seconds=seconds))


@asynccontextmanager
async def _limit_statements(tx: Tx) -> AsyncIterator[None]:
    limit = f"{int(STATEMENT_SECONDS * 1000)}ms"
    [(before, _)] = await tx.values(sql.limit_statements, {"limit": limit})
    try:
        yield
    except TOO_SLOW:
        raise SearchTooSlow(
            f"A part of this search took longer than {STATEMENT_SECONDS:g} s. Use cursor instead of offset, or filters by "
            "status, definition or time, which an index serves."
        ) from None
    await tx.values(sql.limit_statements, {"limit": before})


async def _find_ids(
    tx: Tx, filters: Mapping[str, Any], *, limit: int, offset: int, look: int, seconds: float
) -> tuple[list[UUID], UUID | None, int | None]:
    """Up to limit + 1 matching jobs, the last job that was looked at if there are more, and how many were."""
    found: list[UUID] = []
    began, searched, before = time.monotonic(), 0, filters.get("before")
    while True:
        piece_began = time.monotonic()
        asked = FilterConditions(tx, {**filters, "before": before})
        values = {
            "look": look,
            "limit": limit + 1 - len(found),
            "offset": offset,
            "most_waiting": MOST_WAITING,
        }
        indexed, others, values = await _choose_conditions(tx, asked, values)
        if not others:
            query = [sql.found_by_index, indexed, sql.found_limit]
            return [*found, *await _ids(tx, query, values)], None, None
        # without the definition, an index can have all that the others compare
        join = sql.with_definition if any("d." in one for one in others) else ""
        query = [sql.found, indexed, sql.found_end, join, "where", "\nand ".join(others), sql.found_limit]
        found += await _ids(tx, query, values)
        if len(found) > limit:
            return found, None, searched + look
        last = await _ids(tx, [sql.last_looked_at, indexed, sql.last_looked_at_end], values)
        searched += look
        # an offset counts from the first job: its page is one piece
        now = time.monotonic()
        if not last or offset or len(found) == limit or now - began > seconds:
            return found, last[0] if last else None, searched
        before = last[0]
        # the next piece may take half of the time: payloads can be large
        if (now - piece_began) * _GROWTH < seconds / 2:
            look = min(MOST_LOOK, look * _GROWTH)


async def _choose_conditions(
    tx: Tx, asked: FilterConditions, values: dict[str, Any]
) -> tuple[str, list[str], dict[str, Any]]:
    """The conditions for the index that has the fewest jobs, and the others."""
    values = {**values, "and_running": JobStatus.RUNNING in asked.statuses}
    found, known = [], set()
    if asked.statuses == {JobStatus.RUNNING}:
        known.add("status")
        found.append(asked.running)
    # a piece of these has the newest `look` of them: no other index may leave some of it out
    elif asked.of_tenant and not asked.is_selective and (piece := await _choose_piece(tx, asked, values)):
        found.append(piece)
    of_troubled = not found
    if asked.statuses == TROUBLED and of_troubled:
        known.add("status")
    of_definition = asked.of_tenant and "definition_id" in asked.given and not (found or asked.only_troubled)
    if of_definition:
        known.add("definition_id")
    others = asked.others(of_records=True, known=known)
    own = asked.use_index(of_definition=of_definition, of_troubled=of_troubled)
    indexed = "\nand ".join([*own, *found] or ["true"])
    return indexed, others, {**asked.values, **values}


async def _choose_piece(tx: Tx, asked: FilterConditions, values: dict[str, Any]) -> str | None:
    """The condition that finds the newest jobs of a tag, or of those that wait, if they are few or no other index helps."""
    tagged = None
    if "tags" in asked.given:
        [(values["rarest_tag"], number)] = await tx.values(sql.rarest_tag, {**asked.values, **values})
        tagged = str(sql.where_tagged)
        if number <= MOST_WAITING:
            return tagged
    if asked.given.get("waiting_for") in ("scheduled", "retrying"):
        return str(sql.where_due_later)
    if (
        asked.statuses in ({JobStatus.QUEUED}, ACTIVE)
        and await _count_waiting(tx, asked, values) <= MOST_WAITING
    ):
        return f"{sql.where_waiting}\n{sql.waiting_jobs}\n{sql.where_waiting_end}"
    return tagged


async def _count_waiting(tx: Tx, asked: FilterConditions, values: Mapping[str, Any]) -> int:
    query = f"{sql.waiting}\n{sql.waiting_jobs}\n{sql.waiting_end}"
    [(waiting,)] = await tx.values(query, {**asked.values, **values})
    return int(waiting)


async def _ids(tx: Tx, query: Sequence[str], values: Mapping[str, Any]) -> list[UUID]:
    return [one for (one,) in await tx.values("\n".join(query), values)]


async def _fetch_found(tx: Tx, ids: Sequence[UUID]) -> Page[Job]:
    if not ids:
        return Page((), more=False)
    return await jobs.fetch_jobs(tx, [sql.shown], {"ids": list(ids)}, limit=len(ids))
