"""Approvals: a wait of a durable function that a person ends, with the values of a form."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from fairlead.model.access import Role

MAX_TITLE = 200
MAX_DESCRIPTION = 4000
MAX_COMMENT = 4000
MAX_FORM_BYTES = 65_536
MAX_VALUES_BYTES = 65_536
# The roles that may be asked to answer. A super admin may always answer.
ANSWERING = (Role.OPERATOR, Role.TENANT_ADMIN, Role.APPLICATION)
DEFAULT_ROLES = (Role.OPERATOR, Role.TENANT_ADMIN)


class ApprovalStatus(StrEnum):
    """The state of an approval."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    # its timeout came first
    EXPIRED = "expired"
    # its job has ended, or was retried from an earlier step
    CANCELED = "canceled"


class NewApproval(msgspec.Struct, frozen=True, kw_only=True):
    """What a function asks people for. `escalate` is the event that the system emits after `escalate_seconds`."""

    id: UUID
    title: str
    description: str | None = None
    form: dict[str, Any] | None = None
    roles: tuple[Role, ...] = DEFAULT_ROLES
    escalate: str | None = None
    escalate_seconds: float | None = None
    # until the timeout
    seconds: float | None = None


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """An approval, as people see it: secret values of the form are masked."""

    id: UUID
    tenant_id: UUID
    tenant: str
    job_id: UUID
    definition_key: str
    name: str
    title: str
    description: str | None
    # a JSON Schema of the values; None: it has no form
    form: dict[str, Any] | None
    roles: tuple[Role, ...]
    status: ApprovalStatus
    requested_at: datetime
    # when the wait ends without an answer
    due_at: datetime | None
    # the event that the system emits at `escalate_at` if the approval is still open, and when it did
    escalate: str | None
    escalate_at: datetime | None
    escalated_at: datetime | None
    answered_at: datetime | None
    answered_by: str | None
    comment: str | None
    values: Any


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an approval, as the function gets it. It is true if it was approved."""

    id: UUID
    name: str
    approved: bool
    values: Any
    comment: str | None
    answered_by: str
    answered_at: datetime

    def __bool__(self) -> bool:
        return self.approved
