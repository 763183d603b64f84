"""Error groups: failures are added by the duty `failures`, and read in bounded pages."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, TypedQuery, json_text
from fairlead.model.error_groups import (
    ErrorGroup,
    ErrorHour,
    GroupedJob,
    GroupOrder,
    NewFailure,
    build_sample,
    pattern,
)
from fairlead.model.job import JobStatus
from fairlead.model.page import Page
from fairlead.model.secrets.redact import Mask, build_mask
from fairlead.store import bounded_page
from fairlead.store.queue import FAILURES

sql = queries_beside(__file__)

# The newest groups to which the filters of a list apply.
LOOK = 2000


def _list_query(scope: str) -> str:
    groups = sql.newest.replace("<scope>", scope)
    return f"{sql.selected} {sql.counted.replace('<groups>', groups)}\n{sql.filtered}"


_OF_TENANT, _OF_ALL = _list_query(sql.of_tenant), _list_query(sql.of_all)
_ONE = f"{sql.selected} {sql.counted.replace('<groups>', 'fairlead.error_groups')}\n{sql.one}"
_ORDERS = {GroupOrder.LAST_SEEN: sql.by_last_seen, GroupOrder.JOBS: sql.by_jobs}


class JobPlace(NamedTuple):
    """The position of a job in its group."""

    failed_at: datetime
    job_id: UUID


class _UnmaskedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A noted failure with its unmasked secrets: never shown to users."""

    spot: str
    job_id: UUID
    tenant_id: UUID
    definition_id: UUID
    version: int
    failed_at: datetime
    status: JobStatus | None
    error: str | None
    details: Any
    secret_paths: tuple[str, ...]
    payload: Any


class _UnmaskedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a group with its unmasked secrets: never shown to users."""

    job_id: UUID
    status: JobStatus
    failed_at: datetime
    attempt_count: int
    error: str | None
    secret_paths: tuple[str, ...]
    payload: Any


class GroupKey(NamedTuple):
    """What identifies a group."""

    tenant_id: UUID
    definition_id: UUID
    fingerprint: bytes


async def has_waiting(tx: Tx) -> bool:
    """Whether failures wait for their groups, or groups for their changes."""
    [(found,)] = await tx.values(sql.has_waiting)
    return bool(found)


async def take_failures(tx: Tx, *, limit: int) -> tuple[list[NewFailure], bool]:
    """Take noted failures, with secrets masked; and whether more may be waiting."""
    await tx.prefer_indexes()
    await tx.run(sql.forget_removed, {"look": limit})
    found = await bounded_page.fetch_page(
        tx,
        _UnmaskedFailure,
        sql.noted,
        {"look": limit},
        limit=limit,
        weighed=("error",),
        weighed_json=("payload", "details"),
    )
    await tx.run(sql.forget_noted, {"spots": [one.spot for one in found]})
    return [_mask_failure(tx, one) for one in found], found.more or len(found) == limit


def _mask_failure(tx: Tx, one: _UnmaskedFailure) -> NewFailure:
    mask = build_mask(one.payload, one.secret_paths, tx.redact_patterns)
    error = _mask_text(mask, one.error)
    return NewFailure(
        job_id=one.job_id,
        tenant_id=one.tenant_id,
        definition_id=one.definition_id,
        version=one.version,
        failed_at=one.failed_at,
        status=one.status,
        pattern=pattern(error),
        sample=build_sample(error, one.details if mask is None else mask.value(one.details)),
    )


def _mask_text(mask: Mask | None, text: str | None) -> str | None:
    return text if mask is None or text is None else mask.text(text)


async def find_known(tx: Tx, keys: Collection[GroupKey], *, most: int) -> dict[GroupKey, tuple[bool, int]]:
    """Of each key: whether its group exists, and how many groups its definition has, counted up to `most`."""
    values = {
        "tenants": [one.tenant_id for one in keys],
        "definitions": [one.definition_id for one in keys],
        "fingerprints": [one.fingerprint for one in keys],
        "most": most,
    }
    found = await tx.values(sql.known, values)
    return {GroupKey(tenant, of, bytes(mark)): (known, groups) for tenant, of, mark, groups, known in found}


async def add_failures(tx: Tx, failures: Iterable[NewFailure]) -> None:
    """Add failures to their groups."""
    documents = [{**msgspec.structs.asdict(one), "fingerprint": one.fingerprint.hex()} for one in failures]
    await tx.run(sql.add, {"failures": json_text(documents)})


async def fold_changes(tx: Tx, *, limit: int) -> bool:
    """Add up to `limit` changes to the numbers of their groups; whether more may be waiting."""
    [(folded,)] = await tx.values(sql.fold_changes, {"look": limit})
    return int(folded) == limit


async def list_groups(
    tx: Tx, filters: Mapping[str, Any], *, order: GroupOrder, limit: int, offset: int = 0
) -> Page[ErrorGroup]:
    """The page of `groups`."""
    await tx.prefer_indexes()
    found = await tx.all(*groups(filters, order=order, limit=limit + 1, offset=offset))
    return Page(found[:limit], more=len(found) > limit)


def groups(
    filters: Mapping[str, Any], *, order: GroupOrder, limit: int, offset: int = 0
) -> TypedQuery[ErrorGroup]:
    """Groups that match every filter that is not None, of a tenant or of all. The transaction must prefer indexes."""
    listed = _OF_ALL if filters["tenant_id"] is None else _OF_TENANT
    query = "\n".join(["select p.* from (", listed, ") p", sql.where_state, _ORDERS[order]])
    values = {**filters, "look": LOOK, "limit": limit, "offset": offset}
    return TypedQuery(ErrorGroup, query, values)


async def get(tx: Tx, group_id: UUID, *, tenant_id: UUID | None) -> ErrorGroup | None:
    """A group of a tenant, or (None) of any."""
    return await tx.first(ErrorGroup, _ONE, {"id": group_id, "tenant_id": tenant_id})


async def find_group_of_job(tx: Tx, job_id: UUID) -> UUID | None:
    """The group that a job is in now."""
    found = await tx.values(sql.group_of_job, {"job_id": job_id})
    return found[0][0] if found else None


async def get_sample(tx: Tx, group_id: UUID) -> str:
    """The newest error of a group in full."""
    [(found,)] = await tx.values(sql.sample, {"id": group_id})
    return str(found)


async def list_hours(tx: Tx, groups: Sequence[UUID], *, since: datetime) -> dict[UUID, list[ErrorHour]]:
    """The hours of these groups that have failures, the oldest first."""
    found: dict[UUID, list[ErrorHour]] = {one: [] for one in groups}
    for group_id, hour, failures in await tx.values(sql.hours, {"groups": list(groups), "since": since}):
        found[group_id].append(ErrorHour(hour, failures))
    return found


async def list_jobs(
    tx: Tx,
    group_id: UUID,
    *,
    since: datetime | None = None,
    status: JobStatus | None = None,
    place: JobPlace | None = None,
    limit: int,
) -> Page[GroupedJob]:
    """The jobs of a group before a place, the newest first, with secrets masked."""
    await tx.prefer_indexes()
    values = _job_filter(group_id, since, status, place)
    found = await bounded_page.fetch_page(
        tx, _UnmaskedJob, sql.jobs, values, limit=limit, weighed=("error",), weighed_json=("payload",)
    )
    return found.map(lambda one: _mask_job(tx, one))


def _mask_job(tx: Tx, one: _UnmaskedJob) -> GroupedJob:
    mask = build_mask(one.payload, one.secret_paths, tx.redact_patterns)
    return GroupedJob(
        job_id=one.job_id,
        status=one.status,
        failed_at=one.failed_at,
        attempt_count=one.attempt_count,
        error=_mask_text(mask, one.error),
    )


async def list_job_places(
    tx: Tx,
    group_id: UUID,
    *,
    since: datetime | None,
    status: JobStatus | None,
    place: JobPlace | None,
    limit: int,
) -> list[JobPlace]:
    """The places of a group's jobs after a place, the oldest first."""
    values = {**_job_filter(group_id, since, status, place), "limit": limit}
    return [JobPlace(*one) for one in await tx.values(sql.job_ids, values)]


async def count_jobs(
    tx: Tx, group_id: UUID, *, since: datetime | None, status: JobStatus | None, most: int
) -> int:
    """How many jobs of a group failed since a time, counted up to `most`."""
    values = {**_job_filter(group_id, since, status, None), "most": most}
    [(found,)] = await tx.values(sql.count_since, values)
    return int(found)


def _job_filter(
    group_id: UUID, since: datetime | None, status: JobStatus | None, place: JobPlace | None
) -> dict[str, Any]:
    at, job_id = place or (None, None)
    statuses = [one.value for one in (FAILURES if status is None else (status,))]
    return {"id": group_id, "since": since, "statuses": statuses, "place_at": at, "place_id": job_id}


async def remove_jobs(tx: Tx, group_id: UUID, ids: Sequence[UUID]) -> int:
    """Remove jobs from a group; the jobs themselves do not change. Their number."""
    return await tx.run(sql.leave, {"id": group_id, "ids": list(ids)})


async def mute(
    tx: Tx, group_id: UUID, *, actor: str, until: datetime | None, until_change: bool, note: str | None
) -> None:
    """Mute a group: until a time, until its definition has another version, or (neither) until it is unmuted."""
    values = {"id": group_id, "actor": actor, "until": until, "until_change": until_change, "note": note}
    await tx.run(sql.mute, values)


async def unmute(tx: Tx, group_id: UUID) -> None:
    """End the muting of a group."""
    await tx.run(sql.unmute, {"id": group_id})


async def mark_discarded(tx: Tx, group_id: UUID, *, actor: str) -> None:
    """Record who discarded a group's jobs, and when."""
    await tx.run(sql.discard, {"id": group_id, "actor": actor})


async def remove_old(tx: Tx, *, days: int, limit: int) -> int:
    """Remove groups without jobs that were last seen more than `days` ago. Their number."""
    [(gone,)] = await tx.values(sql.remove_old, {"days": days, "limit": limit})
    return int(gone)


async def remove_hours(tx: Tx, *, days: int, limit: int) -> int:
    """Remove the numbers of hours that are more than `days` ago. Their number."""
    return await tx.run(sql.remove_hours, {"days": days, "limit": limit})
