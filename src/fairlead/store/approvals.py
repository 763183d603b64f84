"""Approvals: what durable functions ask people for, and the answers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.arrays import UuidArray
from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx, json_text
from fairlead.model.approval import Approval, ApprovalStatus, NewApproval
from fairlead.model.approval_rules import has_secrets, mask_approval, mask_values
from fairlead.model.durable import Place
from fairlead.model.page import Page
from fairlead.store import bounded_page
from fairlead.store.resealing import Cursor, ResealedBatch

sql = queries_beside(__file__)

# How many approvals one page compares with its filter.
LOOK = 1000

_LARGE_JSON = ("form", "values")
_LARGE_TEXTS = ("description", "comment")
_SELECTED = sql.selected.replace("<status>", sql.status)


class FoundApproval(msgspec.Struct, frozen=True):
    id: UUID
    status: ApprovalStatus


class _StoredAnswer(msgspec.Struct, frozen=True):
    id: UUID
    form: dict[str, Any]
    answer: Any


class ApprovalWait(msgspec.Struct, frozen=True):
    """The wait that an answer ends."""

    job_id: UUID
    branch: str
    position: int


async def add(tx: Tx, job_id: UUID, place: Place, new: NewApproval) -> None:
    """Store the approval of a wait that begins in this transaction."""
    values = {
        **msgspec.structs.asdict(new),
        "job_id": job_id,
        **msgspec.structs.asdict(place),
        "form": None if new.form is None else json_text(new.form),
        "roles": [str(one) for one in new.roles],
        "secret": has_secrets(new.form),
    }
    await tx.run(sql.add, values)


async def get(tx: Tx, approval_id: UUID, *, tenant_id: UUID | None) -> Approval | None:
    """An approval of a tenant, or (None) of any, without secret values."""
    return next(iter(await get_page(tx, [approval_id], tenant_id=tenant_id)), None)


async def get_page(tx: Tx, ids: Sequence[UUID], *, tenant_id: UUID | None) -> Page[Approval]:
    """Approvals by their ids, newest first, without secret values; a page ends at MOST_PAGE_BYTES."""
    if not ids:
        return Page()
    found = await bounded_page.fetch_page(
        tx,
        Approval,
        f"{_SELECTED} {sql.by_ids}",
        {"ids": UuidArray(ids), "tenant_id": tenant_id},
        limit=len(ids),
        weighed=_LARGE_TEXTS,
        weighed_json=_LARGE_JSON,
    )
    return found.map(lambda one: mask_approval(one, tx.redact_patterns))


async def look(
    tx: Tx, *, tenant_id: UUID | None, job_id: UUID | None, open_only: bool, before: UUID | None
) -> list[FoundApproval]:
    """The ids and statuses of the newest approvals, at most LOOK. With `open_only`, without answered and expired ones."""
    scopes = list[str]()
    order = "a.id desc"
    if tenant_id is not None:
        scopes.append("a.tenant_id = %(tenant_id)s")
        order = "a.tenant_id, a.id desc"
    if job_id is not None:
        scopes.append("a.job_id = %(job_id)s")
        order = "a.id desc"
    if open_only:
        scopes.append("a.status = 'open'")
    query = (
        sql.looked.replace("<status>", sql.status)
        .replace("<scope>", " and ".join(scopes) or "true")
        .replace("<order>", order)
    )
    values = {"tenant_id": tenant_id, "job_id": job_id, "before": before, "look": LOOK}
    return await tx.all(FoundApproval, query, values)


async def lock_wait(tx: Tx, approval_id: UUID) -> ApprovalWait | None:
    """The wait that an answer ends; None if it is over. It stays as it is until the transaction has ended."""
    return await tx.first(ApprovalWait, sql.lock_wait, {"id": approval_id})


async def answer(
    tx: Tx,
    approval_id: UUID,
    *,
    status: ApprovalStatus,
    actor: str,
    comment: str | None,
    values: JsonText | None,
) -> datetime | None:
    """Store an answer: when; None if there is one already."""
    found = await tx.values(
        sql.answer,
        {"id": approval_id, "status": status, "actor": actor, "comment": comment, "answer": values},
    )
    return found[0][0] if found else None


async def hide_answers(tx: Tx, *, after: Cursor, tenant_id: UUID | None, limit: int) -> ResealedBatch:
    """Mask the secrets of the next answers from before the database encrypts: their functions have them, sealed."""
    rows = await tx.all(_StoredAnswer, sql.answers, {"after": after, "tenant_id": tenant_id, "limit": limit})
    changed = 0
    for row in rows:
        hidden = mask_values(row.form, row.answer)
        if hidden != row.answer:
            values = {"id": row.id, "old": json_text(row.answer), "new": json_text(hidden)}
            changed += await tx.run(sql.replace_answer, values)
    return ResealedBatch(len(rows), changed, rows[-1].id if len(rows) == limit else None)


async def take_overdue(tx: Tx, *, limit: int) -> list[Approval]:
    """Approvals whose events are due; each is taken once."""
    ids = [found for (found,) in await tx.values(sql.take_overdue, {"limit": limit})]
    return [one for found in ids if (one := await get(tx, found, tenant_id=None)) is not None]
