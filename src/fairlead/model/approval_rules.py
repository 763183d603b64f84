"""The rules of approvals: what may be asked for, what an answer may have, and what people see."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.errors import ApprovalInvalid, FairleadError, Fault
from fairlead.model.access import Role
from fairlead.model.approval import (
    ANSWERING,
    DEFAULT_ROLES,
    MAX_COMMENT,
    MAX_DESCRIPTION,
    MAX_FORM_BYTES,
    MAX_TITLE,
    Approval,
    NewApproval,
)
from fairlead.model.definition import compile_schema
from fairlead.model.event import RESERVED, find_name_fault
from fairlead.model.payload import encode, find_storage_flaw
from fairlead.model.secrets.redact import Mask, Patterns, drop_examples, mask_payload, secret_paths


def has_secrets(form: dict[str, Any] | None) -> bool:
    """Whether the form has secret fields."""
    return form is not None and bool(secret_paths(form))


def mask_values(form: dict[str, Any] | None, values: Any, patterns: Patterns = ()) -> Any:
    """The values of a form, to show: without its secrets and without what patterns match."""
    return mask_payload(values, secret_paths(form), patterns)


def mask_approval(approval: Approval, patterns: Patterns) -> Approval:
    """The approval as users may see it."""
    texts = Mask((), patterns)
    return msgspec.structs.replace(
        approval,
        form=drop_examples(approval.form),
        values=mask_values(approval.form, approval.values, patterns),
        comment=None if approval.comment is None else texts.text(approval.comment),
    )


def check_approval(new: NewApproval) -> NewApproval:
    """The request itself; ApprovalInvalid names what is wrong."""
    faults = [*_check_texts(new), *_check_roles(new.roles), *_check_escalation(new)]
    if new.form is not None and (flaw := _find_form_flaw(new.form)):
        faults.append(Fault("form", flaw))
    if faults:
        raise ApprovalInvalid(f"Cannot ask for an approval: {faults[0].path}: {faults[0].message}.", faults)
    return new


def _check_texts(new: NewApproval) -> list[Fault]:
    faults = list[Fault]()
    if not 0 < len(new.title.strip()) <= MAX_TITLE:
        faults.append(Fault("title", f"must be text of 1 to {MAX_TITLE} characters"))
    if new.description is not None and len(new.description) > MAX_DESCRIPTION:
        faults.append(Fault("description", f"must be text of at most {MAX_DESCRIPTION} characters"))
    return faults


def _check_roles(roles: Sequence[Role]) -> list[Fault]:
    if roles:
        return []
    return [Fault("roles", f"name at least one of: {', '.join(ANSWERING)}")]


def _check_escalation(new: NewApproval) -> list[Fault]:
    if new.escalate is None:
        return []
    if flaw := find_name_fault(new.escalate):
        return [Fault("escalate", flaw)]
    if new.escalate.startswith(RESERVED):
        return [
            Fault("escalate", f"is reserved: choose a name that does not begin with {', '.join(RESERVED)}")
        ]
    if new.escalate_seconds is None:
        return [Fault("escalate", "needs timeout= or escalate_after=, which say when the event is emitted")]
    if new.seconds is not None and new.escalate_seconds > new.seconds:
        return [Fault("escalate_after", "must not be longer than the timeout")]
    return []


def _find_form_flaw(form: Any) -> str | None:
    if not isinstance(form, dict):
        return 'must be a JSON Schema of an object, such as {"type": "object", "properties": {…}}'
    if form.get("type", "object") != "object":
        return 'must be a JSON Schema of an object: its type is "object"'
    try:
        encode(form, max_bytes=MAX_FORM_BYTES)
        compile_schema(form)
    except FairleadError as error:
        return error.message.removesuffix(".")
    return None


def parse_roles(roles: Sequence[str] | str | None) -> tuple[Role, ...]:
    """The roles that may answer; ApprovalInvalid for a role that cannot."""
    if roles is None:
        return DEFAULT_ROLES
    named = [roles] if isinstance(roles, str) else list(roles)
    if unknown := [one for one in named if one not in (*ANSWERING, Role.SUPER_ADMIN)]:
        raise ApprovalInvalid(
            f"Cannot ask for an approval: {str(unknown[0])[:80]!r} cannot answer one. Use: {', '.join(ANSWERING)}, super_admin.",
            [Fault("roles", "unknown, or cannot answer")],
        )
    return tuple(Role(one) for one in dict.fromkeys(named))


def check_comment(comment: str | None) -> str | None:
    """The comment of an answer, None if it is empty."""
    comment = (comment or "").strip()
    if len(comment) > MAX_COMMENT or find_storage_flaw(comment):
        raise ApprovalInvalid(
            f"A comment has at most {MAX_COMMENT} characters that the database can store.",
            [Fault("comment", "not valid")],
        )
    return comment or None
