"""Approvals of durable functions: ask, list, answer, escalate."""

from typing import Any
from uuid import UUID

import msgspec
import structlog

from fairlead.actions.jobs import find_tenant_scope, read_cursor
from fairlead.db.tx import JsonText, Tx, json_text
from fairlead.errors import (
    ApprovalClosed,
    ApprovalInvalid,
    ApprovalUnknown,
    FairleadError,
    Fault,
    Forbidden,
    InvalidInput,
)
from fairlead.model.access import Permission, Principal, Role
from fairlead.model.approval import (
    MAX_VALUES_BYTES,
    Approval,
    ApprovalStatus,
    NewApproval,
)
from fairlead.model.approval_rules import check_comment, has_secrets, mask_values
from fairlead.model.definition import check_payload, compile_schema
from fairlead.model.durable import NewWait, Place, StepRecord, StepStatus
from fairlead.model.event import NewEvent
from fairlead.model.job import Lease
from fairlead.model.payload import encode
from fairlead.store import approvals, audit, durable, events, sealed_steps, sealing
from fairlead.store.durable import CompletedWait

log = structlog.get_logger(__name__)

MAX_PAGE = 1000
# How often a page looks further for approvals that match: many may be of jobs that have ended.
MOST_LOOKS = 20
# A filter that any status passes.
ANY = "any"
# Larger values of a form are left out of the audit log.
MOST_AUDITED = 4096
SYSTEM = "system"


class ApprovalPage(msgspec.Struct, frozen=True):
    items: list[Approval]
    next_cursor: str | None


async def begin_approval(tx: Tx, lease: Lease, wait: NewWait, new: NewApproval) -> StepRecord | None:
    """Record a wait for an approval, and the approval. None if the lease is lost."""
    found = await durable.begin_wait(tx, lease, wait)
    if found is not None and found.status is StepStatus.WAITING:
        await approvals.add(tx, lease.job_id, wait.place, new)
    return found


async def get(tx: Tx, principal: Principal, approval_id: UUID) -> Approval:
    """An approval, without secret values."""
    found = await approvals.get(tx, approval_id, tenant_id=principal.tenant_id)
    if found is None:
        raise ApprovalUnknown(f"There is no approval {approval_id}.", [Fault("id", "unknown")])
    principal.require(Permission.READ_JOBS, found.tenant_id)
    return found


async def list_approvals(
    tx: Tx,
    principal: Principal,
    *,
    tenant: str | None = None,
    status: ApprovalStatus | None = ApprovalStatus.OPEN,
    job_id: UUID | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> ApprovalPage:
    """A page of approvals, newest first; None as the status means any.

    A page may be short and still have a next_cursor: it compares a bounded number.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(
            f"limit must be between 1 and {MAX_PAGE}.", [Fault("limit", f"use 1 to {MAX_PAGE}")]
        )
    tenant_id = await find_tenant_scope(tx, principal, tenant)
    matching, before = list[UUID](), read_cursor(cursor)
    for _ in range(MOST_LOOKS):
        looked = await approvals.look(
            tx,
            tenant_id=tenant_id,
            job_id=job_id,
            open_only=status in (ApprovalStatus.OPEN, ApprovalStatus.CANCELED),
            before=before,
        )
        matching += [one.id for one in looked if status is None or one.status is status]
        if len(matching) > limit or len(looked) < approvals.LOOK:
            break
        before = looked[-1].id
    ids = matching[:limit]
    found = await approvals.get_page(tx, ids, tenant_id=tenant_id)
    if found.more or len(matching) > limit:
        return ApprovalPage(found, str(found[-1].id))
    return ApprovalPage(found, str(looked[-1].id) if len(looked) == approvals.LOOK else None)


def parse_status(status: str | None) -> ApprovalStatus | None:
    """The status of a filter; InvalidInput for one that does not exist."""
    try:
        return None if status in (None, ANY) else ApprovalStatus(status)
    except ValueError:
        raise InvalidInput(
            f"status must be one of: {', '.join(ApprovalStatus)}, {ANY}.", [Fault("status", "unknown")]
        ) from None


def may_answer(principal: Principal, approval: Approval) -> bool:
    """Whether the principal may answer an approval that is open."""
    try:
        _require_answering(principal, approval)
    except Forbidden:
        return False
    return True


def _require_answering(principal: Principal, approval: Approval) -> None:
    principal.require(Permission.ANSWER_APPROVALS, approval.tenant_id)
    if principal.role is not Role.SUPER_ADMIN and principal.role not in approval.roles:
        roles = ", ".join(dict.fromkeys((*approval.roles, Role.SUPER_ADMIN)))
        raise Forbidden(
            f"{principal.actor} ({principal.role}) may not answer this approval. Ask for one of the roles: {roles}."
        )


async def approve(
    tx: Tx, principal: Principal, approval_id: UUID, values: Any = None, *, comment: str | None = None
) -> Approval:
    """Approve, with the values of the form: the function goes on."""
    return await _answer(tx, principal, approval_id, ApprovalStatus.APPROVED, values=values, comment=comment)


async def reject(
    tx: Tx, principal: Principal, approval_id: UUID, values: Any = None, *, comment: str | None = None
) -> Approval:
    """Reject: the function goes on, and learns it. Values are optional; those that are given must fit the form."""
    return await _answer(tx, principal, approval_id, ApprovalStatus.REJECTED, values=values, comment=comment)


async def _answer(
    tx: Tx,
    principal: Principal,
    approval_id: UUID,
    status: ApprovalStatus,
    *,
    values: Any,
    comment: str | None,
) -> Approval:
    asked = await get(tx, principal, approval_id)
    _require_answering(principal, asked)
    comment = check_comment(comment)
    if values is None and status is ApprovalStatus.APPROVED:
        values = {}
    plain, text = _check_values(asked, values)
    if is_secret := has_secrets(asked.form) and await sealing.is_on(tx):
        # only the function gets them, from its step
        text = None if text is None else json_text(mask_values(asked.form, plain))
    wait = await approvals.lock_wait(tx, approval_id)
    at = wait and await approvals.answer(
        tx, approval_id, status=status, actor=principal.actor, comment=comment, values=text
    )
    if wait is None or at is None:
        raise _closed_error(await get(tx, principal, approval_id))
    result = {
        "id": asked.id,
        "name": asked.name,
        "approved": status is ApprovalStatus.APPROVED,
        "values": plain,
        "comment": comment,
        "answered_by": principal.actor,
        "answered_at": at,
    }
    stored: Any = result
    if is_secret:
        place = Place(wait.branch, wait.position)
        stored = await sealed_steps.seal_answer(tx, asked.tenant_id, wait.job_id, place, result)
    await durable.complete_waits(tx, [CompletedWait(wait.job_id, wait.branch, wait.position, result=stored)])
    await _audit(tx, principal.actor, f"APPROVAL_{status.upper()}", asked, _describe(asked, plain, comment))
    return await get(tx, principal, approval_id)


def _check_values(asked: Approval, values: Any) -> tuple[Any, JsonText | None]:
    """The values as plain JSON and encoded; ApprovalInvalid if they do not fit the form."""
    if values is None:
        return None, None
    try:
        plain, text = encode(values, max_bytes=MAX_VALUES_BYTES)
        check_payload(compile_schema(asked.form or {}), "the form", plain, size=len(text))
    except FairleadError as error:
        raise ApprovalInvalid(error.message, error.faults) from None
    if asked.form is None and plain:
        raise ApprovalInvalid(
            "This approval has no form: answer without values, and use the comment for a text.",
            [Fault("values", "there is no form")],
        )
    return plain, JsonText(text)


def _closed_error(approval: Approval) -> ApprovalClosed:
    told = {
        ApprovalStatus.APPROVED: f"was approved by {approval.answered_by}",
        ApprovalStatus.REJECTED: f"was rejected by {approval.answered_by}",
        ApprovalStatus.EXPIRED: "has expired: its timeout came first",
    }.get(approval.status, "is no longer needed: its job has ended, or was retried from an earlier step")
    return ApprovalClosed(f"Approval {approval.id} {told}.")


def _describe(asked: Approval, values: Any, comment: str | None) -> dict[str, Any]:
    """What the audit log says about an answer."""
    shown = mask_values(asked.form, values)
    details: dict[str, Any] = {"comment": comment} if comment else {}
    if shown and len(msgspec.json.encode(shown)) <= MOST_AUDITED:
        details["values"] = shown
    return details


async def _audit(tx: Tx, actor: str, action: str, approval: Approval, details: dict[str, Any]) -> None:
    await audit.write(
        tx,
        actor=actor,
        action=action,
        resource_type="job",
        resource_id=approval.job_id,
        tenant_id=approval.tenant_id,
        details={
            "definition_key": approval.definition_key,
            "approval": approval.name,
            "approval_id": str(approval.id),
            **details,
        },
    )


async def escalate_overdue(tx: Tx, *, limit: int) -> int:
    """Emit the events of approvals that have waited too long. How many were looked at."""
    found = await approvals.take_overdue(tx, limit=limit)
    for approval in found:
        # a job that has ended needs no answer
        if approval.escalate is not None and approval.status is not ApprovalStatus.CANCELED:
            await _escalate(tx, approval, approval.escalate)
    return len(found)


async def _escalate(tx: Tx, approval: Approval, name: str) -> None:
    data = {
        "approval_id": approval.id,
        "job_id": approval.job_id,
        "definition_key": approval.definition_key,
        "name": approval.name,
        "title": approval.title,
        "status": approval.status,
        "roles": approval.roles,
        "requested_at": approval.requested_at,
        "due_at": approval.due_at,
    }
    new = NewEvent(name=name, tenant=str(approval.tenant_id), caused_by=approval.job_id)
    answer = await events.emit(tx, new, data=json_text(data), actor=SYSTEM)
    if answer.event_id is None:
        log.warning("approval_not_escalated", approval_id=str(approval.id), why=answer.outcome)
        return
    await _audit(
        tx, SYSTEM, "APPROVAL_ESCALATED", approval, {"event": name, "event_id": str(answer.event_id)}
    )
