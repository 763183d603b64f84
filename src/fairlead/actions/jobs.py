"""Show, list, cancel and retry jobs."""

from collections.abc import Generator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.actions import quotas
from fairlead.actions.catalog import Catalog
from fairlead.actions.durable_restart import forget_from
from fairlead.actions.enqueue import inactive_error, raise_refusal
from fairlead.actions.workflow_progress import settle_jobs
from fairlead.db.tx import Tx
from fairlead.errors import (
    FairleadError,
    Fault,
    FilterOnSecret,
    InvalidInput,
    JobNotCancelable,
    JobNotRetryable,
    JobUnknown,
    Refused,
)
from fairlead.model.access import Permission, Principal
from fairlead.model.definition import Definition
from fairlead.model.job import Attempt, Job, JobStatus, NewJob, Source, WaitingFor, may_move
from fairlead.model.page import Page as Rows
from fairlead.model.page import invalid_cursor
from fairlead.model.payload import encode
from fairlead.model.request import check_tags, unknown_tenant
from fairlead.model.secrets.redact import Mask, Patterns, find_secrets
from fairlead.model.secrets.restoration import restore_secrets
from fairlead.model.template.path import look_up, parse_pointer
from fairlead.model.workflow.spec import ENGINE_RUN
from fairlead.store import audit, bulk, definitions, hosts, job_search, jobs, sealing, tenants
from fairlead.store.job_conditions import ANY_NAME, name_compared, split_first
from fairlead.store.jobs import JobTarget

MAX_PAGE = 1000
ROUNDS = 5
# The limits of a filter.
MOST_TEXT = 200
MOST_VALUES = 5
MOST_STARS = 3
# Of a duration: some 30 years, as an interval can have.
MOST_SECONDS = 1_000_000_000
MOST_CONTAINED = 2000
DEEPEST_CONTAINED = 8
# How long a page of jobs is searched for.
SEARCH_SECONDS = 0.1


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs to list. None means any."""

    tenant: str | None = None
    status: Sequence[JobStatus] | None = None
    source: Source | None = None
    definition_key: str | None = None
    host_id: UUID | None = None
    dedupe_key: str | None = None
    correlation_id: str | None = None
    workflow_run_id: UUID | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    # why a queued job waits
    waiting_for: WaitingFor | None = None
    # the worker that runs the job or ran it last: its id, or the beginning of it
    worker: str | None = None
    # a part of the last error
    error: str | None = None
    # seconds
    duration_over: float | None = None
    duration_under: float | None = None
    # values by their paths, such as {"customer.id": "42"}; `*` stands for any characters
    payload: dict[str, str] | None = None
    # all of these tags
    tags: Sequence[str] | None = None
    # values that the payload has, wherever else it differs: {"customer": {"id": 42}}
    payload_contains: dict[str, Any] | None = None
    # a job's id or a part of it; a part of a definition's key, of an error or of a payload; or the beginning of a
    # correlation id or dedupe key
    q: str | None = None


def check_filter(wanted: JobFilter) -> None:
    """Refuse filters that would take too long to compare."""
    for name in ("worker", "error", "q"):
        if len(getattr(wanted, name) or "") > MOST_TEXT:
            raise InvalidInput(
                f"{name} may have at most {MOST_TEXT} characters.", [Fault(name, f"use at most {MOST_TEXT}")]
            )
    for name in ("duration_over", "duration_under"):
        if not 0 <= (getattr(wanted, name) or 0) <= MOST_SECONDS:
            raise InvalidInput(
                f"{name} must be 0 to {MOST_SECONDS} seconds.", [Fault(name, f"must be 0 to {MOST_SECONDS}")]
            )
    payload = wanted.payload or {}
    if len(payload) > MOST_VALUES or any(
        len(path) > MOST_TEXT or len(text) > MOST_TEXT or text.count("*") > MOST_STARS
        for path, text in payload.items()
    ):
        raise InvalidInput(
            f"payload may have at most {MOST_VALUES} values; a path and a value may each have at most {MOST_TEXT} "
            f"characters, and a value at most {MOST_STARS} asterisks.",
            [Fault("payload", "too long")],
        )

    if wanted.payload_contains is not None:
        _check_contained(wanted.payload_contains)
    if wanted.tags is not None:
        check_tags(wanted.tags)


def _check_contained(contained: Any) -> None:
    """Refuse a containment that is not a short JSON object with at least one value."""
    name = "payload_contains"
    if not isinstance(contained, dict) or not contained:
        raise InvalidInput(
            f'{name} is a JSON object with at least one value, such as {{"customer": {{"id": 42}}}}.',
            [Fault(name, "not an object with values")],
        )
    try:
        encode(contained, max_bytes=MOST_CONTAINED, max_depth=DEEPEST_CONTAINED)
    except FairleadError as error:
        raise InvalidInput(
            f"{name} may have at most {MOST_CONTAINED} bytes of JSON, nested at most {DEEPEST_CONTAINED} levels.",
            [Fault(name, error.faults[0].message)],
        ) from error


async def refuse_secret_filter(tx: Tx, wanted: JobFilter, tenant_id: UUID | None) -> None:
    """Refuse to compare values that the filter's definition marks as secret.

    Without a definition such jobs do not match.
    """
    if wanted.payload_contains is None or wanted.definition_key is None:
        return
    found = (await definitions.get_by_keys(tx, [wanted.definition_key])).get(wanted.definition_key)
    if found is None or (tenant_id is not None and not found.is_for(tenant_id)):
        return
    compared = {*ANY_NAME, *name_compared(wanted.payload_contains)}
    if faults := [
        Fault("payload_contains", f"{path or '/'} is secret")
        for path in found.secret_paths
        if split_first(path) in compared
    ]:
        raise FilterOnSecret(
            f"The payload of {found.key} has a secret where payload_contains compares: {faults[0].message}. Compare other "
            "values.",
            faults,
        )


class JobPage(msgspec.Struct, frozen=True):
    items: list[Job]
    next_cursor: str | None
    # how many jobs were compared with the filters; None if an index had exactly those that match
    searched: int | None = None


async def show_job(tx: Tx, principal: Principal, job_id: UUID) -> tuple[Job, list[Attempt]]:
    """A job and its newest attempts."""
    job = await get_visible(tx, principal, job_id)
    return job, await jobs.list_last_attempts(tx, job.id)


def show_joined(
    principal: Principal, job_id: UUID, patterns: Patterns
) -> Generator[str, str, tuple[Job, list[Attempt]]]:
    """A job and its newest attempts, inside the caller's transaction: yields the text to send, and is sent the answer."""
    found = jobs.decode_joined_read((yield jobs.encode_joined_read(job_id)), patterns)
    if found is None or principal.tenant_id not in (None, found[0].tenant_id):
        raise _unknown_job(job_id)
    principal.require(Permission.READ_JOBS, found[0].tenant_id)
    return found


async def list_attempts(
    tx: Tx, principal: Principal, job_id: UUID, *, after: int = 0, limit: int = MAX_PAGE
) -> Rows[Attempt]:
    """The attempts of a job after one of them, first to last."""
    job = await get_visible(tx, principal, job_id)
    return await jobs.list_attempts(tx, job.id, after=after, limit=limit)


async def list_children(tx: Tx, principal: Principal, job: Job, *, limit: int = 50) -> Rows[Job]:
    """The newest jobs that a job enqueued while it ran."""
    principal.require(Permission.READ_JOBS, job.tenant_id)
    return await jobs.find(tx, {"parent_id": job.id, "tenant_id": job.tenant_id}, limit=limit)


async def list_jobs(
    tx: Tx,
    principal: Principal,
    wanted: JobFilter,
    *,
    limit: int = 50,
    offset: int = 0,
    cursor: str | None = None,
    seconds: float = SEARCH_SECONDS,
) -> JobPage:
    """A page of jobs, newest first: by offset, or after the cursor of the previous page.

    With filters a page may be short or empty and still have a next_cursor: it searches for a bounded time.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(
            f"limit must be between 1 and {MAX_PAGE}.", [Fault("limit", f"use 1 to {MAX_PAGE}")]
        )
    if offset < 0:
        raise InvalidInput("offset must be 0 or more.", [Fault("offset", "use 0 or more")])
    filters = await _build_filters(tx, principal, wanted)
    filters["before"] = read_cursor(cursor)
    found = await job_search.find_page(tx, filters, limit=limit, offset=offset, seconds=seconds)
    return JobPage(found.jobs, None if found.last is None else str(found.last), found.searched)


async def count_matching(tx: Tx, principal: Principal, wanted: JobFilter) -> int | None:
    """The number of jobs that match; None if it would have to search for them."""
    return await job_search.count_matching(tx, await _build_filters(tx, principal, wanted))


async def _build_filters(tx: Tx, principal: Principal, wanted: JobFilter) -> dict[str, Any]:
    check_filter(wanted)
    filters = {name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "tenant"}
    filters["tenant_id"] = await find_tenant_scope(tx, principal, wanted.tenant)
    await refuse_secret_filter(tx, wanted, filters["tenant_id"])
    return filters


async def cancel(tx: Tx, principal: Principal, job_id: UUID) -> Job:
    """Cancel a job: at once if it waits, at its worker's next heartbeat if it runs."""
    job = await get_changeable(tx, principal, job_id)
    for _ in range(ROUNDS):
        if job.status is JobStatus.CANCELED:
            return job
        if not may_move(job.status, JobStatus.CANCELED):
            raise JobNotCancelable(
                f"Job {job.id} is {job.status}: only queued and running jobs can be canceled."
            )
        waiting = job.status is JobStatus.QUEUED
        if await (jobs.cancel_queued if waiting else jobs.request_cancel)(tx, job.id):
            action = "JOB_CANCELED" if waiting else "JOB_CANCEL_REQUESTED"
            await audit_change(tx, principal, action, job)
            if waiting:
                await settle_jobs(tx, {job.id: JobStatus.CANCELED})
            else:
                await bulk.notify(tx, "cancel")
            return await get_visible(tx, principal, job_id)
        # its status changed between the two statements
        job = await get_visible(tx, principal, job_id)
    raise JobNotCancelable(f"Job {job.id} keeps changing its status; try again.")


async def cancel_waiting(tx: Tx, principal: Principal, job_id: UUID) -> bool:
    """Cancel a job if it waits; a running job continues."""
    job = await get_changeable(tx, principal, job_id)
    canceled = await jobs.cancel_queued(tx, job.id)
    if canceled:
        await audit_change(tx, principal, "JOB_CANCELED", job)
        await settle_jobs(tx, {job.id: JobStatus.CANCELED})
    return canceled


async def retry(
    tx: Tx,
    principal: Principal,
    catalog: Catalog,
    job_id: UUID,
    *,
    payload: Any | None = None,
    from_step: str | int | None = None,
) -> Job:
    """Requeue a failed, dead-lettered or canceled job, with a fresh retry budget and, if given, a new payload.

    A durable function forgets the records from `from_step` on, which is a step's name or place.
    """
    job = await get_changeable(tx, principal, job_id)
    if job.workflow_run_id is not None:
        raise JobNotRetryable(
            f"Job {job.id} is a step of a workflow run. Retry the run, which continues from there: "
            f"fairlead workflows retry {job.workflow_run_id}"
        )
    if not await jobs.lock_terminal(tx, job.id):
        raise JobNotRetryable(
            f"Job {job.id} is {job.status}: only failed, dead_letter and canceled jobs can be retried."
        )
    job = await get_visible(tx, principal, job_id)
    definition = (await definitions.get_by_keys(tx, [job.definition_key]))[job.definition_key]
    if not definition.is_active:
        raise inactive_error(definition.key)
    text, target = None, JobTarget(job.host_id, job.resource_id)
    if payload is not None:
        text, target = await prepare_payload(tx, catalog, job, definition, payload)
    if target.host_id is not None and not await hosts.lock(tx, target.host_id):
        raise JobNotRetryable(
            f"Job {job.id} is for host {target.host_id}, which was removed: enqueue a new job for another host."
        )
    await quotas.require_room(tx, job.tenant_id)
    await reclaim_key(tx, job)
    details: dict[str, Any] = {"was": job.status, "payload_edited": payload is not None}
    if from_step is not None:
        start = await forget_from(tx, job, from_step)
        details["from_step"] = {"place": start.place, "name": start.name}
    await jobs.requeue(tx, job, target, payload=text)
    await bulk.notify(tx, "ready")
    await audit_change(tx, principal, "JOB_RETRIED", job, details)
    return await get_visible(tx, principal, job_id)


async def prepare_payload(
    tx: Tx,
    catalog: Catalog,
    job: Job,
    definition: Definition,
    payload: Any,
    *,
    refusal: type[Refused] = JobNotRetryable,
) -> tuple[bytes, JobTarget]:
    """The new payload of a locked job, encoded, and the host and resource that it is for."""
    catalog.learn(definition.key, definition.version, definition.arg_schema, definition.resource_pointer)
    stored = await jobs.get_payload(tx, job.id)
    payload = restore_secrets(payload, stored, job.payload)
    if payload != stored:
        await _refuse_copied_secrets(tx, job, refusal)
    edited = NewJob(id=job.id, definition=definition.key, tenant=job.tenant, payload=payload)
    text, _ = catalog.prepare(edited, current=[definition.key])
    sealed = await sealing.seal_payload(tx, edited, text, (await jobs.get_secrets(tx, job.id))[1])
    if not _names_another(definition, stored, msgspec.json.decode(text)):
        return sealed, JobTarget(job.host_id, job.resource_id)
    target = await jobs.find_target(tx, job, payload=text)
    if target.refusal is not None:
        raise_refusal(edited, target.refusal, catalog.find_resource(edited))
    return sealed, target


async def _refuse_copied_secrets(tx: Tx, job: Job, refusal: type[Refused]) -> None:
    """Refuse to replace a payload whose secrets the job's other texts contain: without it they could not be masked there."""
    mask = Mask(find_secrets(*await jobs.get_secrets(tx, job.id)))
    texts = await jobs.get_chosen_texts(tx, job.id)
    if faults := [
        Fault(name, "holds a secret of the payload")
        for name, text in texts.items()
        if mask.mask_chosen(text) != text
    ]:
        raise refusal(
            f"The payload of job {job.id} cannot be edited, since the job's {faults[0].path} holds one of its secrets. "
            "Leave the payload as it is, or enqueue a new job.",
            faults,
        )


def _names_another(definition: Definition, stored: Any, edited: Any) -> bool:
    """Whether an edit names another resource. If not, the job keeps its host, which its enqueue may have set itself."""
    if definition.resource_pointer is None:
        return False
    path = parse_pointer(definition.resource_pointer)
    return bool(look_up(path, stored) != look_up(path, edited))


async def reclaim_key(tx: Tx, job: Job) -> None:
    """Claim the dedupe key of a locked, ended job again; refused while another active job holds it."""
    dedupe_key = await jobs.get_dedupe_key(tx, job.id)
    if dedupe_key is None:
        return
    key = bulk.key_of(job.tenant_id, dedupe_key)
    holder = (await bulk.claim_keys(tx, {key: job.id}))[key]
    if holder != job.id:
        raise JobNotRetryable(
            f"Job {job.id} cannot be retried while job {holder} is active with the same dedupe key; "
            "cancel that job or wait for it."
        )


async def get_visible(
    tx: Tx, principal: Principal, job_id: UUID, permission: Permission = Permission.READ_JOBS
) -> Job:
    job = await jobs.get(tx, job_id, tenant_id=principal.tenant_id)
    if job is None:
        raise _unknown_job(job_id)
    principal.require(permission, job.tenant_id)
    return job


def _unknown_job(job_id: UUID) -> JobUnknown:
    return JobUnknown(f"There is no job {job_id}.", [Fault("id", "unknown")])


async def get_changeable(tx: Tx, principal: Principal, job_id: UUID) -> Job:
    """A job that the principal may cancel and retry; a job that runs a workflow also needs the right to run workflows."""
    job = await get_visible(tx, principal, job_id, Permission.WRITE_JOBS)
    if job.definition_key == ENGINE_RUN:
        principal.require(Permission.RUN_WORKFLOWS, job.tenant_id)
    return job


async def find_tenant_scope(tx: Tx, principal: Principal, tenant: str | None) -> UUID | None:
    """The tenant whose jobs are read: the named one, else the principal's; None means all."""
    if tenant is None:
        principal.require(Permission.READ_JOBS, principal.tenant_id)
        return principal.tenant_id
    found = await tenants.get_ids(tx, [tenant])
    if tenant not in found:
        raise unknown_tenant(tenant)
    principal.require(Permission.READ_JOBS, found[tenant])
    return found[tenant]


def read_cursor(cursor: str | None) -> UUID | None:
    try:
        return None if cursor is None else UUID(cursor)
    except ValueError:
        raise invalid_cursor() from None


async def audit_change(
    tx: Tx, principal: Principal, action: str, job: Job, details: dict[str, Any] | None = None
) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="job",
        resource_id=job.id,
        tenant_id=job.tenant_id,
        details={"definition_key": job.definition_key, **(details or {})},
    )
