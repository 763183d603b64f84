"""Cancel or retry many jobs by filter: with a preview, a limit, and one entry in the audit log."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions import bulk_cancel, quotas
from fairlead.actions.jobs import JobFilter, check_filter, read_cursor, refuse_secret_filter
from fairlead.actions.workflow_progress import settle_or_leave
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Principal
from fairlead.model.field import Internal
from fairlead.model.job import Job, JobStatus
from fairlead.model.request import unknown_tenant
from fairlead.model.secrets.redact import MASK
from fairlead.model.workflow.spec import ENGINE_RUN
from fairlead.store import audit, bulk, bulk_jobs, job_search, tenants

MOST = 10_000
BATCH = 1000

CANCELABLE = (JobStatus.QUEUED, JobStatus.RUNNING)
RETRYABLE = (JobStatus.FAILED, JobStatus.DEAD_LETTER, JobStatus.CANCELED)

# Filters on values that may contain secrets of a payload.
_MAY_HOLD_SECRETS = {"dedupe_key", "correlation_id", "q", "payload", "payload_contains", "tags"}
# Filters with which an action searches for a bounded time, and goes on with the next call.
_SEARCHED = ("payload_contains", "tags")
SEARCH_SECONDS = 2.0


def is_retryable(job: Job) -> bool:
    """Whether a job can be retried alone: a step of a workflow is retried with its run."""
    return job.status in RETRYABLE and job.workflow_run_id is None


class Skip(StrEnum):
    """Why a bulk action left a job as it is."""

    DEDUPE_KEY = "dedupe_key_taken"
    HOST = "host_removed"
    PERMISSION = "not_permitted"
    QUOTA = "quota_full"
    # another change of the job was in progress
    BUSY = "busy"
    STEP = "workflow_step"
    INACTIVE = "definition_inactive"
    # a retry is only for jobs that failed, were dead-lettered or canceled
    NOT_FAILED = "not_failed"
    # a cancel is only for jobs that wait or run
    ENDED = "ended"
    NOT_FOUND = "not_found"


SKIP_REASONS = {
    Skip.DEDUPE_KEY: "another active job has the same dedupe key",
    Skip.HOST: "the host was removed",
    Skip.PERMISSION: "they run workflows, which your role may not do",
    Skip.QUOTA: "the tenant's quota is full",
    Skip.BUSY: "another change of the job was in progress",
    Skip.STEP: "steps of workflows: retry them with their run",
    Skip.INACTIVE: "the definition is not active",
    Skip.NOT_FAILED: "not failed, dead-lettered or canceled",
    Skip.ENDED: "already ended or stopping",
    Skip.NOT_FOUND: "no longer stored",
}


def describe_skips(reasons: Mapping[str, int], write_number: Callable[[int], str] = "{:,}".format) -> str:
    """The reasons with their numbers, the most frequent first."""
    ordered = sorted(reasons.items(), key=lambda one: -one[1])
    return ", ".join(f"{write_number(number)} ({SKIP_REASONS[Skip(reason)]})" for reason, number in ordered)


class BulkResult(msgspec.Struct, frozen=True):
    """The number of jobs that were (or, in a preview, would be) changed, and whether more match.

    `skipped` jobs matched and could not be changed; `reasons` has their number by reason.
    """

    count: int
    more: bool
    skipped: int = 0
    reasons: dict[str, int] = {}
    # jobs that were canceled while they waited: a retry undoes that
    canceled: Internal[Sequence[UUID]] = ()
    # of a search that stopped before its end: the next call goes on here
    next_cursor: str | None = None

    @classmethod
    def of(
        cls,
        count: int,
        more: bool,  # noqa: FBT001 - as its fields
        reasons: Mapping[str, int],
        canceled: Sequence[UUID] = (),
    ) -> "BulkResult":
        """The result with the reasons whose number is not 0."""
        found = {str(reason): number for reason, number in reasons.items() if number}
        return cls(count, more, sum(found.values()), found, canceled)

    def plus(self, other: "BulkResult") -> "BulkResult":
        """The result of both changes."""
        reasons = dict.fromkeys((*self.reasons, *other.reasons), 0)
        for name in reasons:
            reasons[name] = self.reasons.get(name, 0) + other.reasons.get(name, 0)
        # the newest of both positions: in the other cell, some jobs are then compared once more
        cursors = [one for one in (self.next_cursor, other.next_cursor) if one is not None]
        return replace(
            BulkResult.of(
                self.count + other.count, self.more or other.more, reasons, [*self.canceled, *other.canceled]
            ),
            next_cursor=max(cursors, default=None),
        )


async def cancel(
    tx: Tx,
    principal: Principal,
    wanted: JobFilter,
    *,
    limit: int = MOST,
    dry_run: bool = False,
    cursor: str | None = None,
) -> BulkResult:
    """Cancel up to `limit` matching jobs: waiting jobs at once, running jobs by a cancel request.

    With a filter that has to compare jobs, it searches for a bounded time, newest first: while the result has a
    `next_cursor`, call it again with that as the `cursor`.
    """
    filters = await _build_filters(tx, principal, wanted, CANCELABLE, limit)
    forbidden = _forbidden_definition(principal)
    if _needs_search(filters, cursor):
        filters["uncanceled"] = True
        found = await _search(
            tx, filters, bulk_jobs.find_not_cancelable, limit=limit, cursor=cursor, forbidden=forbidden
        )
    else:
        found = await _find_cancelable(tx, filters, limit, forbidden)
    ids = found.ids
    if dry_run or not ids:
        return found.result(len(ids))
    canceled, asked = list[UUID](), list[UUID]()
    for part in _batches(ids):
        ended, requested = await bulk_cancel.cancel_jobs(tx, part)
        await settle_or_leave(tx, dict.fromkeys(ended, JobStatus.CANCELED))
        canceled += ended
        asked += requested
    if asked:
        await bulk.notify(tx, "cancel")
    moved = len(canceled) + len(asked)
    did = found.result(moved, {Skip.BUSY: len(ids) - moved}, canceled)
    return await _audit_result(tx, principal, "JOBS_CANCELED", filters, did)


class Candidates(msgspec.Struct, frozen=True):
    """The jobs that an action will change, whether more match, and the skipped jobs by reason."""

    ids: list[UUID]
    more: bool
    passed: Mapping[str, int]
    next_cursor: str | None = None

    def result(
        self, count: int, left: Mapping[str, int] | None = None, canceled: Sequence[UUID] = ()
    ) -> BulkResult:
        """The result of a change of `count` of them; `left` are those that could not be changed."""
        reasons = Counter(self.passed) + Counter(left or {})
        return replace(BulkResult.of(count, self.more, reasons, canceled), next_cursor=self.next_cursor)


def _needs_search(filters: Mapping[str, Any], cursor: str | None) -> bool:
    return cursor is not None or any(filters[name] is not None for name in _SEARCHED)


async def _search(
    tx: Tx,
    filters: Mapping[str, Any],
    find_reasons: Callable[..., Awaitable[Mapping[UUID, str | None]]],
    *,
    limit: int,
    cursor: str | None,
    forbidden: str | None,
) -> Candidates:
    """The newest matching jobs after the cursor, as far as a bounded search finds them."""
    if not filters["status"]:
        return Candidates([], more=False, passed={})
    asked = {**filters, "before": read_cursor(cursor)}
    found = await job_search.find_ids(tx, asked, limit=limit, seconds=SEARCH_SECONDS)
    reasons = await find_reasons(tx, found.ids, tenant_id=filters["tenant_id"], forbidden=forbidden)
    return Candidates(
        [one for one in found.ids if one in reasons and reasons[one] is None],
        found.last is not None,
        Counter(reason for reason in reasons.values() if reason is not None),
        None if found.last is None else str(found.last),
    )


async def _find_cancelable(
    tx: Tx, filters: Mapping[str, Any], limit: int, forbidden: str | None
) -> Candidates:
    """Up to `limit` waiting or running jobs; the number of those that the principal may not cancel is bounded, too."""
    if not filters["status"]:
        return Candidates([], more=False, passed={})
    found = await bulk_jobs.list_cancelable(tx, filters, limit=limit + 1, forbidden=forbidden)
    passed = 0
    if forbidden is not None and filters["definition_key"] in (None, forbidden):
        others = {**filters, "definition_key": forbidden}
        passed = len(await bulk_jobs.list_cancelable(tx, others, limit=limit + 1))
    return Candidates(found[:limit], len(found) > limit, {Skip.PERMISSION: passed})


async def retry(
    tx: Tx,
    principal: Principal,
    wanted: JobFilter,
    *,
    limit: int = MOST,
    dry_run: bool = False,
    cursor: str | None = None,
) -> BulkResult:
    """Requeue up to `limit` matching jobs that failed, were dead-lettered or canceled, with fresh retry budgets.

    Like `cancel`, it may return a `next_cursor`.
    """
    filters = await _build_filters(tx, principal, wanted, RETRYABLE, limit)
    forbidden = _forbidden_definition(principal)
    if _needs_search(filters, cursor):
        found = await _search(
            tx, filters, bulk_jobs.find_stuck, limit=limit, cursor=cursor, forbidden=forbidden
        )
    else:
        found = await _find_retryable(tx, filters, limit, forbidden)
    if dry_run or not found.ids:
        return found.result(len(found.ids))
    count, left = await _requeue(tx, found.ids)
    return await _audit_result(tx, principal, "JOBS_RETRIED", filters, found.result(count, left))


async def _find_retryable(
    tx: Tx, filters: Mapping[str, Any], limit: int, forbidden: str | None
) -> Candidates:
    """Up to `limit` jobs that can be active together, and the number of skipped jobs that cannot, by reason.

    It reads on past skipped jobs: otherwise every call would find the same ones and never reach the others.
    """
    ids: list[UUID] = []
    keys: set[tuple[UUID, bytes | None]] = set()
    passed = Counter[str]()
    if not filters["status"]:
        return Candidates(ids, more=False, passed=passed)
    async with bulk_jobs.open_retryable(tx, filters, forbidden=forbidden) as found:
        async for one in found:
            key = one.tenant_id, one.key_hash
            if one.stuck or key in keys:
                passed[one.stuck or Skip.DEDUPE_KEY] += 1
                continue
            ids.append(one.id)
            if len(ids) > limit:
                break
            if one.key_hash is not None:
                keys.add(key)
    return Candidates(ids[:limit], len(ids) > limit, passed)


async def retry_chosen(
    tx: Tx,
    principal: Principal,
    ids: Sequence[UUID],
    *,
    told: Mapping[str, Any],
    resource: tuple[str, UUID | None] = ("job", None),
) -> BulkResult:
    """Requeue those of at most BATCH jobs that can be retried, with fresh budgets; `told` describes them in the audit log.

    `told` may name the tenant of the entry; `resource` is what the entry is about.
    """
    if len(ids) > BATCH:
        raise InvalidInput(f"Choose at most {BATCH} jobs at a time.", [Fault("ids", f"at most {BATCH}")])
    principal.require(Permission.WRITE_JOBS, principal.tenant_id)
    found = await bulk_jobs.find_stuck(
        tx, ids, tenant_id=principal.tenant_id, forbidden=_forbidden_definition(principal)
    )
    passed = Counter(stuck for stuck in found.values() if stuck)
    passed[Skip.NOT_FOUND] = len(ids) - len(found)
    count, left = await _requeue(tx, [job_id for job_id, stuck in found.items() if not stuck])
    did = BulkResult.of(count, more=False, reasons=passed + left)
    filters = {"tenant_id": principal.tenant_id, **told}
    return await _audit_result(tx, principal, "JOBS_RETRIED", filters, did, resource=resource)


def _forbidden_definition(principal: Principal) -> str | None:
    """The definition whose jobs run workflows, if this principal may neither cancel nor retry them."""
    return None if Permission.RUN_WORKFLOWS in principal.permissions else ENGINE_RUN


def is_forbidden(principal: Principal, job: Job) -> bool:
    """Whether a job runs a workflow and the principal may therefore neither cancel nor retry it."""
    return job.definition_key == _forbidden_definition(principal)


async def explain_left(
    tx: Tx, principal: Principal, ids: Sequence[UUID], *, canceling: bool = False
) -> Counter[str]:
    """Why jobs were skipped, of up to BATCH of them."""
    principal.require(Permission.READ_JOBS, principal.tenant_id)
    find = bulk_jobs.find_not_cancelable if canceling else bulk_jobs.find_stuck
    asked = ids[:BATCH]
    found = await find(tx, asked, tenant_id=principal.tenant_id, forbidden=_forbidden_definition(principal))
    why = Counter(stuck or Skip.BUSY for stuck in found.values())
    return why + Counter({Skip.NOT_FOUND: len(asked) - len(found)})


async def count_never_retryable(tx: Tx, principal: Principal, wanted: JobFilter) -> Counter[str]:
    """The matching jobs that a bulk retry leaves out: steps of workflows, and jobs of inactive definitions."""
    filters = await _build_filters(tx, principal, wanted, RETRYABLE, MOST)
    if not filters["status"]:
        return Counter()
    return Counter(await bulk_jobs.count_never_retryable(tx, filters, most=MOST))


async def _requeue(tx: Tx, ids: Sequence[UUID]) -> tuple[int, Counter[str]]:
    """Requeue the jobs that are not locked, whose tenants have room and whose dedupe keys are free.

    Their number, and the number of the others by reason.
    """
    locked = await bulk_jobs.lock_terminal(tx, ids)
    held = await _keep_with_room(tx, locked)
    free = await _keep_with_keys(tx, held)
    for part in _batches(free):
        await bulk_jobs.requeue(tx, part)
    if free:
        await bulk.notify(tx, "ready")
    left: dict[str, int] = {
        Skip.BUSY: len(ids) - len(locked),
        Skip.QUOTA: len(locked) - len(held),
        Skip.DEDUPE_KEY: len(held) - len(free),
    }
    return len(free), Counter(left)


async def _keep_with_room(tx: Tx, held: Sequence[bulk_jobs.LockedJob]) -> list[bulk_jobs.LockedJob]:
    """The jobs whose tenants have room for all of theirs; raises if no tenant has. A full tenant does not stop the others."""
    full = await quotas.find_full_tenants(tx, Counter(one.tenant_id for one in held)) if held else {}
    fitting = [one for one in held if one.tenant_id not in full]
    if full and not fitting:
        raise next(iter(full.values()))
    return fitting


async def _keep_with_keys(tx: Tx, held: Collection[bulk_jobs.LockedJob]) -> list[UUID]:
    """The jobs without a dedupe key, or that hold theirs now."""
    keys = {bulk.key_of(one.tenant_id, one.dedupe_key): one.id for one in held if one.dedupe_key is not None}
    holders = await bulk.claim_keys(tx, keys) if keys else {}
    holding = {job for key, job in holders.items() if keys[key] == job}
    return [one.id for one in held if one.dedupe_key is None or one.id in holding]


async def _build_filters(
    tx: Tx, principal: Principal, wanted: JobFilter, statuses: Sequence[JobStatus], limit: int
) -> dict[str, Any]:
    """The filters for the store: within the tenant, and with the statuses that the action can change."""
    if not 1 <= limit <= MOST:
        raise InvalidInput(f"limit must be between 1 and {MOST}.", [Fault("limit", f"use 1 to {MOST}")])
    check_filter(wanted)
    given = {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "tenant"}
    if all(value is None for value in given.values()):
        # without any filter it would change all jobs, which is probably a mistake
        raise InvalidInput(
            "Give at least one filter to choose the jobs.", [Fault("filter", "give at least one")]
        )
    given["status"] = [one for one in statuses if wanted.status is None or one in wanted.status]
    given["tenant_id"] = await _tenant_scope(tx, principal, wanted.tenant)
    await refuse_secret_filter(tx, wanted, given["tenant_id"])
    return given


async def _tenant_scope(tx: Tx, principal: Principal, tenant: str | None) -> UUID | None:
    scope = principal.tenant_id
    if tenant is not None:
        found = await tenants.get_ids(tx, [tenant])
        if tenant not in found:
            raise unknown_tenant(tenant)
        scope = found[tenant]
    principal.require(Permission.WRITE_JOBS, scope)
    return scope


async def _audit_result(
    tx: Tx,
    principal: Principal,
    action: str,
    filters: dict[str, Any],
    did: BulkResult,
    *,
    resource: tuple[str, UUID | None] = ("job", None),
) -> BulkResult:
    if did.count:
        shown = {name: value for name, value in filters.items() if value is not None and name != "tenant_id"}
        shown |= dict.fromkeys(shown.keys() & _MAY_HOLD_SECRETS, MASK)
        await audit.write(
            tx,
            actor=principal.actor,
            action=action,
            resource_type=resource[0],
            resource_id=resource[1],
            tenant_id=filters["tenant_id"],
            details={"filter": shown, "count": did.count},
        )
    return did


def _batches(ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]
