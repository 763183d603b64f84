"""Approvals of durable functions: list, show, approve and reject."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from fairlead.actions import approvals
from fairlead.db.tx import Tx
from fairlead.model.access import Permission
from fairlead.model.approval import Approval, ApprovalStatus
from fairlead.server.auth import Caller, GuardedRoute, Requires
from fairlead.server.merged_lists import Part, by_id, read_merged
from fairlead.server.paging import PageQuery
from fairlead.server.problems import PREFIX
from fairlead.server.views import Body, Id, Listing, ReadableText

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["approvals"])

Reader = Annotated[Caller, Depends(Requires(Permission.READ_JOBS))]
Answerer = Annotated[Caller, Depends(Requires(Permission.ANSWER_APPROVALS))]


class ApprovalsQuery(PageQuery):
    """Filters of approvals: the open ones by default."""

    status: ApprovalStatus | Literal["any"] = ApprovalStatus.OPEN
    job_id: Id | None = None
    limit: int = Field(50, ge=1, le=approvals.MAX_PAGE)


class AnswerBody(Body):
    """The answer to an approval: the values of its form, and a comment."""

    values: dict[str, Any] | None = None
    comment: ReadableText | None = None


@router.get("/approvals")
async def list_approvals(query: Annotated[ApprovalsQuery, Query()], caller: Reader) -> Listing[Approval]:
    """Approvals, newest first. A page may be short and still have a next_cursor."""

    async def read(tx: Tx, page: ApprovalsQuery) -> Part[Approval]:
        found = await approvals.list_approvals(
            tx,
            caller.principal,
            status=approvals.parse_status(page.status),
            job_id=page.job_id,
            limit=page.limit,
            cursor=page.cursor,
        )
        return Part(found.items, found.next_cursor)

    found = await read_merged(caller, query, read, by_id(newest_first=True))
    return Listing(found.items, found.next_cursor)


@router.get("/approvals/{approval_id}")
async def show(approval_id: UUID, caller: Reader) -> Approval:
    """An approval with its form, and the answer if there is one."""
    async with caller.transaction() as tx:
        return await approvals.get(tx, caller.principal, approval_id)


@router.post("/approvals/{approval_id}/approve")
async def approve(approval_id: UUID, caller: Answerer, body: AnswerBody | None = None) -> Approval:
    """Approve, with the values of the form: the function goes on."""
    given = body or AnswerBody()
    async with caller.transaction() as tx:
        return await approvals.approve(tx, caller.principal, approval_id, given.values, comment=given.comment)


@router.post("/approvals/{approval_id}/reject")
async def reject(approval_id: UUID, caller: Answerer, body: AnswerBody | None = None) -> Approval:
    """Reject: the function goes on, and gets the answer."""
    given = body or AnswerBody()
    async with caller.transaction() as tx:
        return await approvals.reject(tx, caller.principal, approval_id, given.values, comment=given.comment)
