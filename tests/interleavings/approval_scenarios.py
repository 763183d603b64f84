"""Scenarios of approvals: a person answers while the job, or another person, does something else."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fairlead.actions import approvals, jobs
from fairlead.db.tx import Tx
from fairlead.errors import ApprovalClosed
from fairlead.model.approval import Approval, ApprovalStatus
from fairlead.model.job import JobStatus
from fairlead.store import queue
from tests import given
from tests.given import TESTER
from tests.interleavings import operations as do
from tests.interleavings.durable_scenarios import WITHIN_COMPLETION, read_place, read_steps, woken
from tests.interleavings.explorer import Results, Scenario, World
from tests.interleavings.operations import Work, in_transaction, in_transactions
from tests.interleavings.scenarios import read_state

# What scenarios begin with


async def asking_function(tx: Tx) -> World:
    """A function that runs, and has asked for an approval."""
    lease, approval_id = await given.begun_approval(tx)
    await tx.run("update fairlead.leases set expires_at = clock_timestamp() + interval '1 hour'")
    return {"lease": lease, "job": lease.job_id, "approval": approval_id}


async def sleeping_function(tx: Tx) -> World:
    """A function that sleeps until its approval is answered."""
    world = await asking_function(tx)
    await queue.suspend(tx, [(world["lease"], given.SUSPENDED)], actor="worker")
    return world


async def canceled_function(tx: Tx) -> World:
    """A function that was canceled before its approval was answered."""
    world = await sleeping_function(tx)
    await jobs.cancel(tx, TESTER, world["job"])
    return world


# What they do


def answer(status: ApprovalStatus = ApprovalStatus.APPROVED) -> Work:
    act = approvals.approve if status is ApprovalStatus.APPROVED else approvals.reject

    async def work(tx: Tx, world: World) -> Approval:
        shown = await approvals.get(tx, TESTER, world["approval"])
        answered = await act(tx, TESTER, world["approval"])
        assert shown.status is ApprovalStatus.OPEN, (
            f"an approval was answered that was shown as {shown.status}"
        )
        return answered

    return work


async def retry_from_the_approval(tx: Tx, world: World) -> JobStatus:
    return (await jobs.retry(tx, TESTER, given.catalog(), world["job"], from_step="pay")).status


# What has to be true at the end


async def read_approval(tx: Tx, approval_id: UUID) -> str:
    """The status as it is stored."""
    [(status,)] = await tx.values("select status from fairlead.approvals where id = %s", [approval_id])
    return str(status)


async def read_received(tx: Tx, job_id: UUID) -> Any:
    """Whether the function goes on with an approval; None if it has no answer."""
    [(received,)] = await tx.values(
        "select result -> 'approved' from fairlead.job_steps where job_id = %s", [job_id]
    )
    return received


def is_refused(result: Any) -> bool:
    return isinstance(result, ApprovalClosed)


async def approved_and_woken(tx: Tx, world: World, results: Results) -> None:
    await woken(tx, world, results)
    assert await read_approval(tx, world["approval"]) == "approved"
    assert await read_received(tx, world["job"]) is True


async def answered_or_expired(tx: Tx, world: World, results: Results) -> None:
    assert results["give up"] is not None, "the function was told that its lease is lost"
    ends = (
        results["give up"].status,
        *await read_steps(tx, world["job"]),
        await read_approval(tx, world["approval"]),
    )
    if is_refused(results["answer"]):
        assert ends == ("timeout", "timeout", "expired")
    else:
        assert ends == ("succeeded", "succeeded", "approved")


async def answered_and_canceled(tx: Tx, world: World, results: Results) -> None:
    state = await read_state(tx, world["job"])
    assert (results["cancel"], state.status) == (JobStatus.CANCELED, JobStatus.CANCELED)
    assert await read_place(tx, world["job"]) == ""
    ends = (*await read_steps(tx, world["job"]), await read_approval(tx, world["approval"]))
    assert ends == (("waiting", "open") if is_refused(results["answer"]) else ("succeeded", "approved"))


async def one_answer_received(tx: Tx, world: World, results: Results) -> None:
    won, *others = results.values_of(Approval)
    assert not others, "two answers were accepted"
    assert await read_approval(tx, world["approval"]) == won.status
    assert await read_received(tx, world["job"]) is (won.status is ApprovalStatus.APPROVED)
    assert await read_place(tx, world["job"]) == "ready"


async def asked_again(tx: Tx, world: World, results: Results) -> None:
    """Before the retry the job has ended, and after it the step is forgotten: there is nothing to answer."""
    assert results["retry"] is JobStatus.QUEUED
    assert is_refused(results["answer"]), "an answer was accepted that the function never receives"
    assert (await approvals.get(tx, TESTER, world["approval"])).status is ApprovalStatus.CANCELED
    assert await read_place(tx, world["job"]) == "ready"


APPROVALS: list[Scenario] = [
    Scenario(
        name="answer × give up",
        prepare=asking_function,
        participants={"answer": in_transaction(answer()), "give up": in_transaction(do.give_up_wait)},
        check=answered_or_expired,
        stops=WITHIN_COMPLETION,
        allowed=(ApprovalClosed,),
    ),
    Scenario(
        name="answer × cancel",
        prepare=sleeping_function,
        participants=in_transactions(answer=answer(), cancel=do.cancel),
        check=answered_and_canceled,
        stops=WITHIN_COMPLETION,
        allowed=(ApprovalClosed,),
    ),
    Scenario(
        name="answer × answer",
        prepare=sleeping_function,
        participants=in_transactions(approve=answer(), reject=answer(ApprovalStatus.REJECTED)),
        check=one_answer_received,
        allowed=(ApprovalClosed,),
    ),
    Scenario(
        name="answer × suspend",
        prepare=asking_function,
        participants=in_transactions(answer=answer(), suspend=do.suspend()),
        check=approved_and_woken,
        stops=WITHIN_COMPLETION,
    ),
    Scenario(
        name="answer × retry from its step",
        prepare=canceled_function,
        participants=in_transactions(answer=answer(), retry=retry_from_the_approval),
        check=asked_again,
        allowed=(ApprovalClosed,),
    ),
]
APPROVALS_BY_NAME: Mapping[str, Scenario] = {one.name: one for one in APPROVALS}
