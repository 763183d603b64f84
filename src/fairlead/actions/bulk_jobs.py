"""Cancel or retry many jobs by filter: with a preview, a limit, and one entry in the audit log."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from fairlead.actions import bulk_cancel, quotas
from fairlead.actions.jobs import JobFilter, check_filter
from fairlead.actions.workflow_progress import settle_jobs
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import GRANTS, Permission, Principal
from fairlead.model.field import Internal
from fairlead.model.job import Job, JobStatus
from fairlead.model.request import unknown_tenant
from fairlead.model.secrets.redact import MASK
from fairlead.model.workflow.spec import ENGINE_RUN
from fairlead.store import audit, bulk, bulk_jobs, tenants

MOST = 10_000
BATCH = 1000

CANCELABLE = (JobStatus.QUEUED, JobStatus.RUNNING)
RETRYABLE = (JobStatus.FAILED, JobStatus.DEAD_LETTER, JobStatus.CANCELED)

# Filters on values that may contain secrets of a payload.
_MAY_HOLD_SECRETS = {"dedupe_key", "correlation_id", "q", "payload"}


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
        return BulkResult.of(
            self.count + other.count, self.more or other.more, reasons, [*self.canceled, *other.canceled]
        )


async def cancel(
    tx: Tx, principal: Principal, wanted: JobFilter, *, limit: int = MOST, dry_run: bool = False
) -> BulkResult:
    """Cancel up to `limit` matching jobs: waiting jobs at once, running jobs by a cancel request."""
    filters = await _build_filters(tx, principal, wanted, CANCELABLE, limit)
    found, passed = await _find_cancelable(tx, filters, limit + 1, _forbidden_definition(principal))
    ids, more = found[:limit], len(found) > limit
    if dry_run or not ids:
        return BulkResult.of(len(ids), more, {Skip.PERMISSION: passed})
    canceled, asked = list[UUID](), 0
    for part in _batches(ids):
        ended, requested = await bulk_cancel.cancel_jobs(tx, part)
        await settle_jobs(tx, dict.fromkeys(ended, JobStatus.CANCELED))
        canceled += ended
        asked += requested
    if asked:
        await bulk.notify(tx, "cancel")
    moved = len(canceled) + asked
    did = BulkResult.of(moved, more, {Skip.PERMISSION: passed, Skip.BUSY: len(ids) - moved}, canceled)
    return await _audit_result(tx, principal, "JOBS_CANCELED", filters, did)


async def _find_cancelable(
    tx: Tx, filters: Mapping[str, Any], most: int, forbidden: str | None
) -> tuple[list[UUID], int]:
    """Up to `most` waiting or running jobs, and the number (up to `most`) of those that the principal may not cancel."""
    if not filters["status"]:
        return [], 0
    found = await bulk_jobs.list_cancelable(tx, filters, limit=most, forbidden=forbidden)
    if forbidden is None or filters["definition_key"] not in (None, forbidden):
        return found, 0
    return found, len(
        await bulk_jobs.list_cancelable(tx, {**filters, "definition_key": forbidden}, limit=most)
    )


async def retry(
    tx: Tx, principal: Principal, wanted: JobFilter, *, limit: int = MOST, dry_run: bool = False
) -> BulkResult:
    """Requeue up to `limit` matching jobs that failed, were dead-lettered or canceled, with fresh retry budgets."""
    filters = await _build_filters(tx, principal, wanted, RETRYABLE, limit)
    ids, passed = (
        ([], Counter[str]())
        if not filters["status"]
        else await _find_retryable(tx, filters, limit + 1, _forbidden_definition(principal))
    )
    ids, more = ids[:limit], len(ids) > limit
    if dry_run or not ids:
        return BulkResult.of(len(ids), more, passed)
    count, left = await _requeue(tx, ids)
    return await _audit_result(
        tx, principal, "JOBS_RETRIED", filters, BulkResult.of(count, more, passed + left)
    )


async def _find_retryable(
    tx: Tx, filters: Mapping[str, Any], most: int, forbidden: str | None
) -> tuple[list[UUID], Counter[str]]:
    """Up to `most` jobs that can be active together, and the number of skipped jobs that cannot, by reason.

    It reads on past skipped jobs: otherwise every call would find the same ones and never reach the others.
    """
    ids: list[UUID] = []
    keys: set[tuple[UUID, bytes | None]] = set()
    passed = Counter[str]()
    async with bulk_jobs.open_retryable(tx, filters, forbidden=forbidden) as found:
        async for one in found:
            key = one.tenant_id, one.key_hash
            if one.stuck or key in keys:
                passed[one.stuck or Skip.DEDUPE_KEY] += 1
                continue
            ids.append(one.id)
            if len(ids) == most:
                break
            if one.key_hash is not None:
                keys.add(key)
    return ids, passed


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
    return None if Permission.RUN_WORKFLOWS in GRANTS[principal.role] else ENGINE_RUN


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
