"""Approvals when their jobs are retried from a step, and when their tenants are moved to other cells."""

import asyncio
from typing import Any

import pytest

from fairlead import Approval, ApprovalStatus, Context, Fairlead, JobStatus
from fairlead.actions import approvals
from fairlead.errors import ApprovalClosed, TenantMoving
from fairlead.library.tenant_moves import move_tenant
from fairlead.model.tenant_move import CopyProgress, MoveStep, TenantMove
from tests import given
from tests.cells import add_cell, create_cell, drop_cell
from tests.given import TENANT
from tests.test_approvals import count_events, make_overdue
from tests.waiting import SECONDS
from tests.working import start, tick_until


def payment(fl: Fairlead) -> Any:
    """A function that asks twice, and fails if the second answer is a rejection."""

    @fl.job(durable=True, max_attempts=1, key="pay")
    async def pay(ctx: Context) -> list[str]:
        first = await ctx.wait_for_approval("first", title="First?")
        second = await ctx.wait_for_approval(
            "second", title="Second?", escalate="approval.late", escalate_after=3600
        )
        if not second:
            raise ValueError("rejected")
        return [str(first.id), str(second.id)]

    return pay


async def asked(fl: Fairlead, job_id: Any, name: str) -> Approval:
    """The open approval of this name, once the job has asked for it."""
    async with asyncio.timeout(SECONDS):
        while True:
            await fl.tick()
            for one in (await fl.list_approvals(tenant=TENANT, job_id=job_id)).items:
                if one.name == name and (await fl.read(job_id)).status is JobStatus.QUEUED:
                    return one


async def statuses(fl: Fairlead, *found: Approval) -> list[ApprovalStatus]:
    return [(await fl.read_approval(one.id)).status for one in found]


async def test_an_approval_that_a_retry_forgot_is_closed_and_the_new_one_is_answered(fl: Fairlead) -> None:
    pay = payment(fl)
    await fl.close()
    job = await start(fl, pay)
    first = await asked(fl, job.id, "first")
    await fl.approve(first.id)
    forgotten = await asked(fl, job.id, "second")
    await fl.cancel(job.id)
    await fl.retry(job.id, from_step="second")

    # before the function has asked again, and after it
    with pytest.raises(ApprovalClosed, match="retried from an earlier step"):
        await fl.approve(forgotten.id)
    again = await asked(fl, job.id, "second")
    with pytest.raises(ApprovalClosed, match="retried from an earlier step"):
        await fl.reject(forgotten.id)
    assert again.id != forgotten.id
    assert [one.id for one in (await fl.list_approvals(job_id=job.id)).items] == [again.id]
    assert await statuses(fl, first, forgotten, again) == ["approved", "canceled", "open"]

    # of both, only the open one is escalated
    await make_overdue(fl)
    await fl.database.transact(lambda tx: approvals.escalate_overdue(tx, limit=10))
    assert await count_events(fl, "approval.late") == 1
    await fl.approve(again.id)
    assert await tick_until(fl, job.id, JobStatus.SUCCEEDED) == [str(first.id), str(again.id)]


async def test_answered_approvals_that_a_retry_forgot_keep_their_answers(fl: Fairlead) -> None:
    pay = payment(fl)
    await fl.close()
    job = await start(fl, pay)
    first = await asked(fl, job.id, "first")
    await fl.approve(first.id)
    second = await asked(fl, job.id, "second")
    await fl.reject(second.id, comment="Not today")
    await tick_until(fl, job.id, JobStatus.DEAD_LETTER)
    await fl.retry(job.id, from_step="first")

    first_again = await asked(fl, job.id, "first")
    with pytest.raises(ApprovalClosed, match="was approved by"):
        await fl.approve(first.id)
    await fl.approve(first_again.id)
    second_again = await asked(fl, job.id, "second")
    with pytest.raises(ApprovalClosed, match="was rejected by"):
        await fl.approve(second.id)
    await fl.approve(second_again.id)

    assert await tick_until(fl, job.id, JobStatus.SUCCEEDED) == [str(first_again.id), str(second_again.id)]
    assert await statuses(fl, first, second) == ["approved", "rejected"]
    assert (await fl.read_approval(second.id)).comment == "Not today"


@pytest.mark.thorough
async def test_an_approval_moves_with_its_tenant_and_is_answered_in_the_new_cell(
    fl: Fairlead, server: str, migrated: str
) -> None:
    pay = payment(fl)
    url = create_cell(server, migrated)
    await add_cell(fl, "b", url)
    await fl.close()
    await fl.open()
    b = await fl.cells.member("b")
    job = await pay.enqueue(tenant=TENANT)
    first = await asked(fl, job.id, "first")
    await fl.approve(first.id)
    second = await asked(fl, job.id, "second")
    await make_overdue(fl)
    refused = list[asyncio.Task[Any]]()

    async def escalate_here() -> int:
        return await fl.database.transact(lambda tx: approvals.escalate_overdue(tx, limit=10))

    def tell(move: TenantMove, progress: CopyProgress | None) -> None:
        if move.step is MoveStep.COPY and not refused:
            refused.append(asyncio.create_task(fl.approve(second.id)))
            refused.append(asyncio.create_task(escalate_here()))

    await move_tenant(fl, TENANT, target="b", drain_seconds=0, tell=tell)
    answer, escalated = await asyncio.gather(*refused, return_exceptions=True)

    # an answer during the move is refused, or finds the new cell, and none is lost
    if isinstance(answer, Approval):
        assert answer.status is ApprovalStatus.APPROVED
    else:
        assert isinstance(answer, TenantMoving)
        assert [one.id for one in (await fl.list_approvals(tenant=TENANT)).items] == [second.id]
        await fl.approve(second.id)
    assert escalated == 0
    assert await given.count(fl, "approvals") == 0
    with pytest.raises(ApprovalClosed, match="was approved by tester"):
        await fl.reject(second.id)
    async with asyncio.timeout(SECONDS):
        while not (done := await fl.read(job.id)).status.terminal:
            await b.tick()
    assert done.output == [str(first.id), str(second.id)]
    assert await statuses(fl, first, second) == ["approved", "approved"]
    await given.no_inconsistencies(b.database)
    await fl.cells.close()
    drop_cell(server, url)
