"""Approvals: what durable functions ask people for, with a form for the answer."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import approvals
from fairlead.errors import FairleadError, InvalidInput
from fairlead.model.access import Permission
from fairlead.model.approval import Approval, ApprovalStatus
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.payload_form import PayloadForm, refuse_masked
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]
Answerer = Annotated[Visit, Depends(RequiresVisit(Permission.ANSWER_APPROVALS))]

ROWS = 50


@router.get("/approvals")
async def list_approvals(request: Request, visit: Reader) -> Response:
    """The approvals, newest first: the open ones, or those of the chosen status."""
    given = request.query_params
    status = approvals.parse_status(given.get("status") or ApprovalStatus.OPEN)
    async with visit.transaction() as tx:
        page = await approvals.list_approvals(
            tx, visit.principal, status=status, limit=ROWS, cursor=given.get("cursor") or None
        )
    return visit.page(
        "approvals.html",
        approvals=page.items,
        next_cursor=page.next_cursor,
        cursor=given.get("cursor"),
        chosen=status or approvals.ANY,
        statuses=[*ApprovalStatus, approvals.ANY],
    )


@router.get("/approvals/{approval_id}")
async def show(approval_id: UUID, visit: Reader) -> Response:
    """An approval with its form, or with its answer."""
    async with visit.transaction() as tx:
        found = await approvals.get(tx, visit.principal, approval_id)
    return _render_page(visit, found, PayloadForm.new(found.form or {}))


@router.post("/approvals/{approval_id}")
async def answer(approval_id: UUID, visit: Answerer) -> Response:
    """Approve or reject with the form's values; with `show`, switch between fields and JSON."""
    given = await visit.form()
    comment = given.get("comment", "")
    async with visit.transaction() as tx:
        found = await approvals.get(tx, visit.principal, approval_id)
    form = PayloadForm.from_form(found.form or {}, given)
    try:
        if "show" in given:
            return _render_page(visit, found, form.switch_view(), comment=comment)
        told = await _answer(visit, found, form, how=given.get("how", ""), comment=comment)
    except FairleadError as error:
        if error.http_status in (403, 404):
            raise
        async with visit.transaction() as tx:
            found = await approvals.get(tx, visit.principal, approval_id)
        return _render_page(visit, found, form.with_faults(error), comment=comment, error=error)
    return visit.respond(told, to=visit.to(f"/approvals/{approval_id}"))


async def _answer(visit: Visit, asked: Approval, form: PayloadForm, *, how: str, comment: str) -> str:
    if how == "reject":
        # the fields are for an approval
        async with visit.transaction() as tx:
            await approvals.reject(tx, visit.principal, asked.id, comment=comment)
        return "Rejected. The job goes on."
    if how != "approve":
        raise InvalidInput("Nothing was answered. Press Approve or Reject.")
    values = None if asked.form is None else form.payload()
    refuse_masked(values)
    async with visit.transaction() as tx:
        await approvals.approve(tx, visit.principal, asked.id, values, comment=comment)
    return "Approved. The job goes on."


def _render_page(
    visit: Visit,
    approval: Approval,
    form: PayloadForm,
    *,
    comment: str = "",
    error: FairleadError | None = None,
) -> Response:
    return visit.page(
        "approval.html",
        status=200 if error is None else 422,
        approval=approval,
        payload=form,
        comment=comment,
        error=error,
        may_answer=approvals.may_answer(visit.principal, approval),
    )
