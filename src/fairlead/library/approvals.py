"""Approvals for which durable functions wait."""

from typing import Any
from uuid import UUID

from fairlead.actions import approvals
from fairlead.actions.approvals import ApprovalPage
from fairlead.library.client import Client
from fairlead.model.approval import Approval, ApprovalStatus
from fairlead.model.request import parse_id


class Approvals(Client):
    """List the approvals that functions ask for with `ctx.wait_for_approval`, and answer them."""

    async def approve(
        self, approval_id: UUID | str, values: Any = None, *, comment: str | None = None
    ) -> Approval:
        """Approve, with the values of the form: the function goes on. ApprovalClosed if it is no longer open."""
        return await self._search(
            approvals.approve, parse_id(approval_id, "approval"), values, comment=comment
        )

    async def reject(
        self, approval_id: UUID | str, values: Any = None, *, comment: str | None = None
    ) -> Approval:
        """Reject: the function goes on, and learns it. ApprovalClosed if it is no longer open."""
        return await self._search(
            approvals.reject, parse_id(approval_id, "approval"), values, comment=comment
        )

    async def read_approval(self, approval_id: UUID | str) -> Approval:
        """An approval with its form, and the answer if there is one."""
        return await self._search(approvals.get, parse_id(approval_id, "approval"))

    async def list_approvals(
        self,
        *,
        tenant: str | None = None,
        status: ApprovalStatus | str | None = ApprovalStatus.OPEN,
        job_id: UUID | str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> ApprovalPage:
        """A page of approvals, newest first: the open ones, or those of another status; None means any. Go on from a
        `next_cursor`.
        """
        return await self._act_in(
            tenant,
            approvals.list_approvals,
            tenant=tenant,
            status=approvals.parse_status(status),
            job_id=None if job_id is None else parse_id(job_id),
            limit=limit,
            cursor=cursor,
        )
