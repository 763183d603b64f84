"""Actions of workers without a database connection: claim, renew, report, end. Only the owner of a lease changes its job."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import structlog

from fairlead.actions import workflow_progress
from fairlead.db.tx import Tx
from fairlead.errors import DefinitionUnknown, FairleadError, Fault, LeaseLost, PayloadNotJson
from fairlead.handlers.attempt import LONGEST_KIND, LONGEST_TRACEBACK, MAX_OUTPUT_BYTES
from fairlead.handlers.context import LONGEST_PROGRESS_MESSAGE
from fairlead.handlers.log import MAX_BYTES, clean_text
from fairlead.model import payload
from fairlead.model.access import Permission, Principal, Role
from fairlead.model.job import JobStatus, Lease
from fairlead.model.log import NewChunk
from fairlead.model.outcome import (
    LONGEST_MESSAGE,
    Change,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    decide,
)
from fairlead.model.request import unknown_definition
from fairlead.model.secrets.redact import build_mask
from fairlead.store import bulk, definitions, leases, logs, queue
from fairlead.store.leases import LeaseOwner
from fairlead.store.logs import AppendResult
from fairlead.store.queue import HeartbeatResult

log = structlog.get_logger(__name__)

# Retries of a heartbeat whose lease another transaction has locked, usually for a few milliseconds.
BEATS = 5
BEAT_SECONDS = 0.02


class ClaimScope(msgspec.Struct, frozen=True):
    """What a principal may claim: definitions for every tenant (None: all), and definitions for one tenant each."""

    definitions: tuple[UUID, ...] | None
    pairs: tuple[tuple[UUID, UUID], ...] = ()
    tenant_id: UUID | None = None  # the one tenant of all pairs


class AttemptDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an ended attempt beside its outcome."""

    cost_cents: int = 0
    stdout_tail: str | None = None
    stderr_tail: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None


class RenewedLease(msgspec.Struct, frozen=True):
    """A valid lease: its remaining seconds, and whether a cancel was requested."""

    lease_seconds: float
    cancel_requested: bool


async def resolve_scope(tx: Tx, principal: Principal, keys: Sequence[str] | None) -> ClaimScope:
    """What the principal may claim of the definitions with these keys, or (None) of all: only its own tenant's jobs."""
    principal.require(Permission.RUN_JOBS, principal.tenant_id)
    if keys is None:
        keys = principal.definitions
    if keys is None and principal.tenant_id is None:
        return ClaimScope(None)
    found = await definitions.get_ids(tx, keys, tenant_id=principal.tenant_id)
    _require_known([key in found and principal.serves(key) for key in keys or ()], keys or ())
    ids = sorted(found.values())
    if principal.tenant_id is None:
        return ClaimScope(tuple(ids))
    return ClaimScope((), tuple((one, principal.tenant_id) for one in ids), principal.tenant_id)


def _require_known(is_known: Sequence[bool], keys: Sequence[str]) -> None:
    """Raise DefinitionUnknown with a fault for each unknown key."""
    missing = [index for index, known in enumerate(is_known) if not known]
    if missing:
        faults = [Fault(f"definitions.{index}", "unknown") for index in missing]
        raise DefinitionUnknown(unknown_definition(keys[missing[0]]).message, faults)


async def heartbeat(tx: Tx, principal: Principal, lease: Lease, *, lease_seconds: float) -> RenewedLease:
    """Renew a lease."""
    owner = await _find_owned(tx, principal, lease)
    beat = await _renew(tx, lease, lease_seconds)
    for _ in range(BEATS):
        if beat.renewed:
            await leases.mark_owners_seen(tx, [owner.worker_id])
            return RenewedLease(lease_seconds, beat.cancel)
        await asyncio.sleep(BEAT_SECONDS)
        beat = await _renew(tx, lease, lease_seconds)
    left = await leases.remaining_seconds(tx, lease)
    if left is None:
        raise lost_error(lease)
    return RenewedLease(left, beat.cancel)


async def renew(
    tx: Tx, principal: Principal, held: Sequence[Lease], *, lease_seconds: float
) -> dict[Lease, HeartbeatResult]:
    """Renew all leases of a worker at once; those that are missing from the result are lost."""
    principal.require(Permission.RUN_JOBS, principal.tenant_id)
    mine = await leases.find_held(tx, held, tenant_id=principal.tenant_id, keys=principal.definitions)
    if not mine:
        return {}
    await leases.mark_owners_seen(tx, mine.values())
    return await queue.heartbeat(tx, list(mine), lease_seconds=lease_seconds)


async def _renew(tx: Tx, lease: Lease, lease_seconds: float) -> HeartbeatResult:
    alive = await queue.heartbeat(tx, [lease], lease_seconds=lease_seconds)
    if lease not in alive:
        raise lost_error(lease)
    return alive[lease]


async def complete(
    tx: Tx, principal: Principal, lease: Lease, *, output: Any = None, ending: AttemptDetails
) -> JobStatus:
    """Report a success. The job's status."""
    return await _finish(tx, principal, lease, Succeeded(check_output(output), ending.cost_cents), ending)


async def fail(
    tx: Tx,
    principal: Principal,
    lease: Lease,
    *,
    kind: str,
    message: str,
    traceback: str | None,
    retryable: bool,
    timed_out: bool,
    ending: AttemptDetails,
) -> JobStatus:
    """Report a failure: the job is retried after its backoff if it is retryable and has attempts left. The job's status."""
    failed = Failed(
        kind, message, retryable, timed_out=timed_out, traceback=traceback, cost_cents=ending.cost_cents
    )
    return await _finish(tx, principal, lease, failed, ending)


async def release(tx: Tx, principal: Principal, lease: Lease, *, delay: float = 0.0) -> JobStatus:
    """Release the job, to run again after `delay` seconds; no attempt is charged. The job's status."""
    return await _finish(tx, principal, lease, Snoozed(delay) if delay else Released(), AttemptDetails())


async def progress(tx: Tx, principal: Principal, lease: Lease, *, percent: float, message: str = "") -> None:
    """Report the progress, 0 to 100."""
    mask = build_text_mask(tx, await _find_owned(tx, principal, lease))
    step = (lease, percent, clean_text(mask(message), LONGEST_PROGRESS_MESSAGE))
    if lease.job_id not in await queue.store_progress(tx, [step]):
        raise lost_error(lease)


async def append_log(tx: Tx, principal: Principal, lease: Lease, chunks: Sequence[NewChunk]) -> AppendResult:
    """Store log chunks of the attempt, up to its limits."""
    owner = await _find_owned(tx, principal, lease)
    mask = build_text_mask(tx, owner)
    cleaned = [chunk._replace(text=_make_storable(mask(chunk.text))) for chunk in chunks]
    appended = await logs.append(tx, lease, owner.tenant_id, cleaned)
    if appended is None:
        raise lost_error(lease)
    return appended


async def _finish(
    tx: Tx, principal: Principal, lease: Lease, outcome: Outcome, ending: AttemptDetails
) -> JobStatus:
    """End the attempt with a worker's own statement; a repetition after a lost answer gets the same answer."""
    owner = await _find_owned(tx, principal, lease)
    change = build_change(tx, owner, outcome, ending)
    done = await workflow_progress.finish_attempts(tx, [(lease, change)], actor=principal.actor)
    if lease.job_id not in done:
        raise lost_error(lease)
    if done[lease.job_id] is JobStatus.QUEUED:
        await bulk.notify(tx, "later" if change.delay > 0 else "ready")
    return done[lease.job_id]


def build_change(tx: Tx, owner: LeaseOwner, outcome: Outcome, ending: AttemptDetails) -> Change:
    """The change that an outcome from elsewhere makes to its job: masked, and cut to the size limits."""
    if secrets := build_mask(owner.payload, owner.secret_paths, tx.redact_patterns):
        outcome = secrets.outcome(outcome)
    if isinstance(outcome, Failed):
        outcome = _within_bounds(outcome)
    mask = build_text_mask(tx, owner)
    ran = {
        "exit_code": ending.exit_code,
        "stderr": cut_tail(ending.stderr_tail, mask),
        "duration_ms": ending.duration_ms,
    }
    return msgspec.structs.replace(decide(owner, outcome), log=cut_tail(ending.stdout_tail, mask), ran=ran)


def _within_bounds(failed: Failed) -> Failed:
    """Cut a failure to the size limits. Mask it before: a secret that is cut in two could not be masked."""
    return msgspec.structs.replace(
        failed,
        kind=clean_text(failed.kind, LONGEST_KIND),
        message=clean_text(failed.message, LONGEST_MESSAGE),
        traceback=cut_tail(failed.traceback, most=LONGEST_TRACEBACK),
    )


async def _find_owned(tx: Tx, principal: Principal, lease: Lease) -> LeaseOwner:
    """The job of the lease. A lease of another tenant is refused like an unknown one."""
    owner = await leases.find_job(tx, lease)
    if owner is None or principal.tenant_id not in (None, owner.tenant_id):
        raise lost_error(lease)
    if not principal.serves(owner.definition_key):
        raise lost_error(lease)
    if principal.role is Role.AGENT:
        if owner.host_id is None or owner.host_id != principal.host_id:
            raise lost_error(lease)
    else:
        principal.require(Permission.RUN_JOBS, owner.tenant_id)
    return owner


def build_text_mask(tx: Tx, owner: LeaseOwner) -> Callable[[str], str]:
    """A function that masks the job's secrets in a text."""
    mask = build_mask(owner.payload, owner.secret_paths, tx.redact_patterns)
    return str if mask is None else mask.text


def lost_error(lease: Lease) -> LeaseLost:
    log.warning("stale_write_refused", job_id=str(lease.job_id), attempt_no=lease.attempt_no)
    return LeaseLost(
        f"The lease of job {lease.job_id}, attempt {lease.attempt_no}, is not yours any more: it ended, or was not "
        "renewed in time. Nothing was changed; stop the work."
    )


def check_output(output: Any) -> Any:
    """Check an output: plain JSON values within a handler's limits."""
    try:
        return payload.encode(output, max_bytes=MAX_OUTPUT_BYTES)[0]
    except FairleadError as error:
        fault = error.faults[0]
        where = f" at {fault.path}" if fault.path else ""
        raise type(error)(f"The output cannot be stored: {fault.message}{where}.", error.faults) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadNotJson(f"The output cannot be stored: {error}.", [Fault("", str(error))]) from None


def cut_tail(text: str | None, mask: Callable[[str], str] = str, most: int = MAX_BYTES) -> str | None:
    """The end of a text, masked and without characters that PostgreSQL cannot store."""
    if text is None:
        return None
    whole = _make_storable(mask(text)).encode()
    return whole.decode() if len(whole) <= most else "…" + whole[3 - most :].decode(errors="ignore")


def _make_storable(text: str) -> str:
    """The whole text without characters that PostgreSQL cannot store."""
    return clean_text(text, len(text))
