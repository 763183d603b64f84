"""Error groups: list, show, retry, discard and mute them; and add new failures to them."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions import bulk_jobs
from fairlead.actions.bulk_jobs import Skip
from fairlead.db.tx import Tx, TypedQuery
from fairlead.errors import ErrorGroupUnknown, Fault, InvalidInput, QueueFull, QuotaExceeded
from fairlead.model.access import Permission, Principal
from fairlead.model.error_groups import (
    LONGEST_NOTE,
    OTHER_ERRORS,
    ErrorGroup,
    ErrorHour,
    GroupedJob,
    GroupOrder,
    GroupState,
    NewFailure,
)
from fairlead.model.job import Job, JobStatus
from fairlead.model.page import Page
from fairlead.store import audit, error_groups
from fairlead.store.error_groups import GroupKey, JobPlace

__all__ = ["JobPlace"]

MAX_PAGE = 200
# Failures that are added in one transaction.
FOLD = 500
# A definition of a tenant has at most this many groups; further errors share one.
MOST_GROUPS = 200
# Batches that one call reads past jobs that cannot be retried.
MOST_BATCHES = 20
TREND = timedelta(days=7)
STATUSES = (JobStatus.FAILED, JobStatus.DEAD_LETTER)
LONGEST_MUTE = timedelta(days=365)


class GroupFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The groups to list. None means any."""

    definition_key: str | None = None
    # groups with jobs of this status
    status: JobStatus | None = None
    # groups that failed after this time
    since: datetime | None = None
    state: GroupState = GroupState.OPEN
    # a part of the error
    q: str | None = None


class JobChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a group: those that failed since a time, and that have a status."""

    since: datetime | None = None
    status: JobStatus | None = None


class GroupChange(msgspec.Struct, frozen=True):
    """How many jobs of a group were changed, how many were skipped and why, and whether others are left to try."""

    count: int
    more: bool
    skipped: int = 0
    reasons: dict[str, int] = {}


async def list_groups(
    tx: Tx,
    principal: Principal,
    wanted: GroupFilter,
    *,
    order: GroupOrder = GroupOrder.LAST_SEEN,
    limit: int = 50,
    offset: int = 0,
) -> Page[ErrorGroup]:
    """The groups of the principal's tenant, or of all: those among the newest that match."""
    principal.require(Permission.READ_JOBS, principal.tenant_id)
    _check_status(wanted.status)
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(
            f"limit must be between 1 and {MAX_PAGE}.", [Fault("limit", f"use 1 to {MAX_PAGE}")]
        )
    return await error_groups.list_groups(
        tx, _build_filters(principal, wanted), order=order, limit=limit, offset=offset
    )


def new_groups(principal: Principal, since: datetime, *, limit: int = 20) -> TypedQuery[ErrorGroup]:
    """The groups that were first seen since a time, have failed jobs and are not muted; those with the most jobs first."""
    principal.require(Permission.READ_JOBS, principal.tenant_id)
    filters = {**_build_filters(principal, GroupFilter(since=since)), "new_since": since}
    return error_groups.groups(filters, order=GroupOrder.JOBS, limit=limit)


def _build_filters(principal: Principal, wanted: GroupFilter) -> dict[str, Any]:
    return {
        "tenant_id": principal.tenant_id,
        "definition_key": wanted.definition_key,
        "status": None if wanted.status is None else wanted.status.value,
        "since": wanted.since,
        "state": wanted.state.value,
        "q": wanted.q,
        "new_since": None,
    }


async def get(
    tx: Tx, principal: Principal, group_id: UUID, permission: Permission = Permission.READ_JOBS
) -> ErrorGroup:
    """A group that the principal may see."""
    found = await error_groups.get(tx, group_id, tenant_id=principal.tenant_id)
    if found is None:
        raise ErrorGroupUnknown(f"There is no error group {group_id}.", [Fault("id", "unknown")])
    principal.require(permission, found.tenant_id)
    return found


async def find_group_of_job(tx: Tx, principal: Principal, job: Job) -> UUID | None:
    """The group that a job is in now."""
    principal.require(Permission.READ_JOBS, job.tenant_id)
    return await error_groups.find_group_of_job(tx, job.id)


async def get_sample(tx: Tx, principal: Principal, group: ErrorGroup) -> str:
    """The newest error of a group in full, with secrets masked."""
    principal.require(Permission.READ_JOBS, group.tenant_id)
    return await error_groups.get_sample(tx, group.id)


async def list_hours(
    tx: Tx, principal: Principal, groups: Sequence[ErrorGroup], *, since: datetime | None = None
) -> dict[UUID, list[ErrorHour]]:
    """The failures of each group by hour since a time (default: for a week); hours without failures are left out."""
    for one in groups:
        principal.require(Permission.READ_JOBS, one.tenant_id)
    ids = [one.id for one in groups]
    return await error_groups.list_hours(tx, ids, since=since or datetime.now(UTC) - TREND)


async def list_jobs(
    tx: Tx,
    principal: Principal,
    group: ErrorGroup,
    chosen: JobChoice,
    *,
    place: JobPlace | None = None,
    limit: int = 50,
) -> Page[GroupedJob]:
    """The jobs that are in a group now, the newest first."""
    principal.require(Permission.READ_JOBS, group.tenant_id)
    _check_status(chosen.status)
    return await error_groups.list_jobs(
        tx, group.id, since=chosen.since, status=chosen.status, place=place, limit=min(limit, MAX_PAGE)
    )


async def count_jobs(tx: Tx, principal: Principal, group: ErrorGroup, chosen: JobChoice) -> int:
    """How many jobs of a group are chosen: exact for all of them, else counted up to the most of a bulk action."""
    principal.require(Permission.READ_JOBS, group.tenant_id)
    _check_status(chosen.status)
    if chosen.since is None:
        return group.count_jobs(chosen.status)
    return await error_groups.count_jobs(
        tx, group.id, since=chosen.since, status=chosen.status, most=bulk_jobs.MOST + 1
    )


async def retry(
    tx: Tx, principal: Principal, group_id: UUID, chosen: JobChoice, *, limit: int = bulk_jobs.MOST
) -> GroupChange:
    """Requeue up to `limit` of a group's jobs, the oldest failures first, with fresh retry budgets."""
    group = await get(tx, principal, group_id, Permission.WRITE_JOBS)
    _check_choice(chosen, limit)
    told = _describe(group, chosen) | {"tenant_id": group.tenant_id}
    count, reasons, place, more = 0, Counter[str](), None, True
    for _ in range(MOST_BATCHES):
        ids, place = await _next_jobs(tx, group, chosen, place, limit=limit - count)
        more = place is not None
        try:
            did = await bulk_jobs.retry_chosen(
                tx, principal, ids, told=told, resource=("error_group", group.id)
            )
        except (QueueFull, QuotaExceeded):
            if not count:
                raise
            reasons[Skip.QUOTA] += len(ids)
            break
        count += did.count
        reasons.update(did.reasons)
        if not more or count >= limit:
            break
    return GroupChange(count, more, reasons.total(), dict(reasons))


async def discard(
    tx: Tx, principal: Principal, group_id: UUID, chosen: JobChoice, *, limit: int = bulk_jobs.MOST
) -> GroupChange:
    """Take up to `limit` jobs out of a group, the oldest failures first.

    The jobs stay as they are: an ended job changes only by a retry. A new failure with this error opens the group again.
    """
    group = await get(tx, principal, group_id, Permission.WRITE_JOBS)
    _check_choice(chosen, limit)
    count, place, more = 0, None, True
    for _ in range(MOST_BATCHES):
        ids, place = await _next_jobs(tx, group, chosen, place, limit=limit - count)
        count += await error_groups.remove_jobs(tx, group.id, ids)
        more = place is not None
        if not more or count >= limit:
            break
    if count:
        await error_groups.mark_discarded(tx, group.id, actor=principal.actor)
        details = {**_describe(group, chosen), "count": count}
        await _audit(tx, principal, "ERROR_GROUP_DISCARDED", group, details)
    return GroupChange(count, more)


async def mute(
    tx: Tx,
    principal: Principal,
    group_id: UUID,
    *,
    until: datetime | None = None,
    until_change: bool = False,
    note: str | None = None,
) -> ErrorGroup:
    """Mute a group: until a time, until its definition has another version, or (neither) until it is unmuted."""
    group = await get(tx, principal, group_id, Permission.WRITE_JOBS)
    _check_mute(until, note, until_change=until_change)
    await error_groups.mute(
        tx, group.id, actor=principal.actor, until=until, until_change=until_change, note=note or None
    )
    details = _describe(group, JobChoice()) | {"until": until, "until_change": until_change, "note": note}
    await _audit(tx, principal, "ERROR_GROUP_MUTED", group, details)
    return await get(tx, principal, group_id)


async def unmute(tx: Tx, principal: Principal, group_id: UUID) -> ErrorGroup:
    """End the muting of a group."""
    group = await get(tx, principal, group_id, Permission.WRITE_JOBS)
    if group.muted_at is not None:
        await error_groups.unmute(tx, group.id)
        await _audit(tx, principal, "ERROR_GROUP_UNMUTED", group, _describe(group, JobChoice()))
    return await get(tx, principal, group_id)


async def fold_failures(tx: Tx, *, limit: int = FOLD) -> bool:
    """Add the failures that wait to their groups; whether more are waiting."""
    if not await error_groups.has_waiting(tx):
        return False
    found, more = await error_groups.take_failures(tx, limit=limit)
    if found:
        await error_groups.add_failures(tx, await _limit_groups(tx, found))
    return await error_groups.fold_changes(tx, limit=limit) or more


async def _limit_groups(tx: Tx, found: Sequence[NewFailure]) -> list[NewFailure]:
    """The failures, with those beyond the most groups of a definition in the group of other errors."""
    keys = {GroupKey(one.tenant_id, one.definition_id, one.fingerprint): one for one in found}
    known = await error_groups.find_known(tx, list(keys), most=MOST_GROUPS)
    room = {key[:2]: MOST_GROUPS - groups for key, (_, groups) in known.items()}
    others = set()
    for key, (exists, _) in known.items():
        if exists:
            continue
        if room[key[:2]] <= 0:
            others.add(key)
        room[key[:2]] -= 1
    return [
        replace(one, pattern=OTHER_ERRORS)
        if GroupKey(one.tenant_id, one.definition_id, one.fingerprint) in others
        else one
        for one in found
    ]


async def _next_jobs(
    tx: Tx, group: ErrorGroup, chosen: JobChoice, place: JobPlace | None, *, limit: int
) -> tuple[list[UUID], JobPlace | None]:
    """A batch of a group's chosen jobs after a place, and its last place if others follow: jobs that stay are passed."""
    most = min(limit, bulk_jobs.BATCH)
    found = await error_groups.list_job_places(
        tx, group.id, since=chosen.since, status=chosen.status, place=place, limit=most + 1
    )
    return [one.job_id for one in found[:most]], found[most - 1] if len(found) > most else None


def _describe(group: ErrorGroup, chosen: JobChoice) -> dict[str, Any]:
    """A group and a choice of its jobs, for the audit log."""
    about = {"definition_key": group.definition_key, "error": group.pattern, "error_group": group.id}
    choice = {"since": chosen.since, "status": None if chosen.status is None else [chosen.status]}
    return about | {name: value for name, value in choice.items() if value is not None}


def _check_status(status: JobStatus | None) -> None:
    if status is not None and status not in STATUSES:
        raise InvalidInput(
            f"Jobs in error groups are failed or dead_letter, not {status}.", [Fault("status", "unknown")]
        )


def _check_choice(chosen: JobChoice, limit: int) -> None:
    _check_status(chosen.status)
    if not 1 <= limit <= bulk_jobs.MOST:
        raise InvalidInput(
            f"limit must be between 1 and {bulk_jobs.MOST}.", [Fault("limit", f"use 1 to {bulk_jobs.MOST}")]
        )


def _check_mute(until: datetime | None, note: str | None, *, until_change: bool) -> None:
    if until is not None and until_change:
        raise InvalidInput(
            "Mute until a time or until the definition changes, not both.",
            [Fault("until", "not with until_change")],
        )
    now = datetime.now(UTC)
    if until is not None and not now < until <= now + LONGEST_MUTE:
        raise InvalidInput(
            "until must be in the future, at most a year.", [Fault("until", "use a time within a year")]
        )
    if note is not None and len(note) > LONGEST_NOTE:
        raise InvalidInput(
            f"note must be at most {LONGEST_NOTE} characters.",
            [Fault("note", f"at most {LONGEST_NOTE} characters")],
        )


async def _audit(
    tx: Tx, principal: Principal, action: str, group: ErrorGroup, details: dict[str, Any]
) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="error_group",
        resource_id=group.id,
        tenant_id=group.tenant_id,
        details=details,
    )
