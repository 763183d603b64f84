"""Calls that answer what durable functions ask people."""

import asyncio
from typing import Any, Literal
from uuid import UUID

from fairlead.chaos.load.client_calls import CallResult, ClientSession
from fairlead.db.database_errors import FAILED
from fairlead.errors import FairleadError

# The function asks when it has come so far.
LOOKS = 20
LOOK_SECONDS = 0.4
Answer = Literal["approve", "reject"]


async def answer_approval(session: ClientSession, tenant: str, job_id: UUID) -> None:
    """Two people answer at once, once the function asks; one of them is too late."""
    approval_id = await _find_approval(session, tenant, job_id)
    if approval_id is not None:
        answers: tuple[Answer, Answer] = ("approve", "reject")
        await asyncio.gather(*(_answer(session, tenant, job_id, approval_id, one) for one in answers))


async def _find_approval(session: ClientSession, tenant: str, job_id: UUID) -> UUID | None:
    for _ in range(LOOKS):
        await asyncio.sleep(LOOK_SECONDS)
        try:
            page = await session.fl.list_approvals(tenant=tenant, job_id=job_id)
        except (FairleadError, OSError, TimeoutError, *FAILED):
            continue
        if page.items:
            return page.items[0].id
    return None


async def _answer(
    session: ClientSession, tenant: str, job_id: UUID, approval_id: UUID, answer: Answer
) -> None:
    via = session.choose_via()

    async def send(call: UUID) -> CallResult:
        # the function returns the comment
        if via == "http":
            await session.api.post(tenant, f"/approvals/{approval_id}/{answer}", {"comment": str(call)})
        elif answer == "approve":
            await session.fl.approve(approval_id, comment=str(call))
        else:
            await session.fl.reject(approval_id, comment=str(call))
        return CallResult([approval_id], {})

    what: dict[str, Any] = {"via": via, "job": job_id, "approval": approval_id, "answer": answer}
    await session.call("answer", tenant, what, send)
