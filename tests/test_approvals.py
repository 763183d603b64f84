"""Approvals: a durable function waits for a person, who answers once, with the values of a form."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest

from fairlead import (
    Approval,
    ApprovalStatus,
    Backoff,
    Context,
    EnqueuedJob,
    Fairlead,
    JobStatus,
    Secret,
)
from fairlead.actions import approvals
from fairlead.db.tx import TransactionIdentity
from fairlead.errors import ApprovalClosed, ApprovalInvalid, ApprovalUnknown, Forbidden, InvalidInput
from fairlead.model.access import Principal, Role
from tests import given
from tests.given import TENANT
from tests.waiting import SECONDS
from tests.working import ended, reopen, start
from tests.working import working_and_dispatching as working

FORM = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1},
        "pin": {"type": "string", "x-secret": True, "default": "0000"},
    },
    "required": ["amount"],
    "additionalProperties": False,
}


async def asked(fl: Fairlead, job: EnqueuedJob, number: int = 1) -> list[Approval]:
    """The open approvals of a job, once it has so many and waits without a worker."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = (await fl.list_approvals(job_id=job.id)).items
            if len(found) == number and (await job.read()).status is JobStatus.QUEUED:
                return found
            await asyncio.sleep(0.02)


async def count_events(fl: Fairlead, name: str) -> int:
    return [event.name for event in await given.all_events(fl)].count(name)


async def make_overdue(fl: Fairlead) -> None:
    await given.set_approval(fl, escalate_at=datetime.now(UTC) - timedelta(seconds=1))


def payment(fl: Fairlead, **options: Any) -> Any:
    """A function that asks for an approval, and tells the answer."""

    @fl.job(durable=True, max_attempts=2, backoff=Backoff(0, 1, 0, 0))
    async def pay(ctx: Context, note: str = "") -> Any:
        given_options = {"title": f"Pay {note}", "form": FORM, **options}
        answer = await ctx.wait_for_approval("pay", **given_options)
        if answer is None:
            return "expired"
        return [bool(answer), answer.values, answer.comment, answer.answered_by, str(answer.id)]

    return pay


async def test_an_approved_function_goes_on_with_the_values_of_the_form(fl: Fairlead) -> None:
    pay = payment(fl, description="Please look at the invoice.")
    job = await start(fl, pay, note="Anna")
    async with working(fl):
        [approval] = await asked(fl, job)
        answered = await fl.approve(approval.id, {"amount": 5, "pin": "4711"}, comment=" Fine. ")
        done = await ended(job)

    assert (approval.title, approval.description, approval.name) == (
        "Pay Anna",
        "Please look at the invoice.",
        "pay",
    )
    assert (approval.status, approval.answered_by, approval.due_at) == (ApprovalStatus.OPEN, None, None)
    # the function has the secret, and what it returns is masked
    assert done.output == [True, {"amount": 5, "pin": "[redacted]"}, "Fine.", "tester", str(approval.id)]
    assert (answered.status, answered.answered_by, answered.comment) == (
        ApprovalStatus.APPROVED,
        "tester",
        "Fine.",
    )
    assert answered.values == {"amount": 5, "pin": "[redacted]"}
    assert answered.answered_at is not None
    assert "default" not in (answered.form or {})["properties"]["pin"]
    [entry] = await given.audit_entries(fl, "APPROVAL_APPROVED")
    assert (entry.actor, entry.resource_id) == ("tester", str(job.id))
    assert entry.details["values"] == {"amount": 5, "pin": "[redacted]"}
    assert (await fl.list_approvals(tenant=TENANT)).items == []
    assert [one.id for one in (await fl.list_approvals(status="approved")).items] == [approval.id]
    [(secret,)] = await fl.database.single(
        lambda tx: tx.values("select secret from fairlead.job_steps where job_id = %(id)s", {"id": job.id})
    )
    assert secret is True


async def test_a_rejection_needs_no_values_and_is_false_to_the_function(fl: Fairlead) -> None:
    pay = payment(fl)
    job = await start(fl, pay)
    async with working(fl):
        [approval] = await asked(fl, job)
        rejected = await fl.reject(str(approval.id), comment="Too much")
        done = await ended(job)

    assert done.output == [False, None, "Too much", "tester", str(approval.id)]
    assert rejected.status is ApprovalStatus.REJECTED
    assert len(await given.audit_entries(fl, "APPROVAL_REJECTED")) == 1


async def test_an_approval_is_answered_once(fl: Fairlead) -> None:
    pay = payment(fl, form=None)
    job = await start(fl, pay)
    async with working(fl):
        [approval] = await asked(fl, job)
        answers = await asyncio.gather(
            *(fl.approve(approval.id) for _ in range(4)),
            *(fl.reject(approval.id) for _ in range(4)),
            return_exceptions=True,
        )
        done = await ended(job)
        with pytest.raises(ApprovalClosed, match=r"was (approved|rejected) by tester"):
            await fl.approve(approval.id)

    [won] = [one for one in answers if isinstance(one, Approval)]
    assert all(isinstance(one, ApprovalClosed) for one in answers if one is not won)
    assert done.output[0] is (won.status is ApprovalStatus.APPROVED)


async def test_an_answer_that_does_not_fit_the_form_changes_nothing(fl: Fairlead) -> None:
    pay = payment(fl)
    job = await start(fl, pay)
    async with working(fl):
        [approval] = await asked(fl, job)
        with pytest.raises(ApprovalInvalid) as missing:
            await fl.approve(approval.id)
        with pytest.raises(ApprovalInvalid) as wrong:
            await fl.reject(approval.id, {"amount": 0})
        with pytest.raises(ApprovalInvalid, match="comment"):
            await fl.approve(approval.id, {"amount": 1}, comment="x" * 5000)
        with pytest.raises(ApprovalUnknown):
            await fl.approve(uuid4())
        [again] = await asked(fl, job)

    assert "amount" in missing.value.message
    assert [fault.path for fault in wrong.value.faults] == ["/amount"]
    assert again == approval


async def test_an_approval_that_cannot_be_asked_for_says_why(fl: Fairlead) -> None:
    @fl.job(durable=True, max_attempts=1)
    async def ask(ctx: Context, options: dict[str, Any]) -> None:
        await ctx.wait_for_approval("pay", **{"title": "Pay", **options})

    impossible: list[tuple[dict[str, Any], str]] = [
        ({"title": " "}, "title"),
        ({"form": {"type": "array"}}, "form"),
        ({"form": {"type": "object", "properties": 5}}, "form"),
        ({"roles": ["viewer"]}, "viewer"),
        ({"roles": []}, "roles"),
        ({"escalate": "job.late", "timeout": 5}, "reserved"),
        ({"escalate": "late"}, "escalate_after"),
        ({"escalate": "late", "timeout": 5, "escalate_after": 6}, "longer than the timeout"),
    ]
    await reopen(fl)
    jobs = [await ask.enqueue(tenant=TENANT, options=options) for options, _ in impossible]
    await fl.tick(len(jobs))

    for (_, told), job in zip(impossible, jobs, strict=True):
        done = await job.read()
        assert done.status is JobStatus.DEAD_LETTER
        assert "ApprovalInvalid" in (done.last_error or "")
        assert told in (done.last_error or "")
    assert (await fl.list_approvals(status=None)).items == []


async def test_an_unanswered_approval_expires_and_its_event_is_emitted_once(fl: Fairlead) -> None:
    pay = payment(fl, timeout=0.05, escalate="approval.late")
    job = await start(fl, pay)
    async with working(fl):
        done = await ended(job)
        [approval] = (await fl.list_approvals(status="expired")).items
        with pytest.raises(ApprovalClosed, match="expired"):
            await fl.approve(approval.id, {"amount": 1})
        rounds = [
            await fl.database.transact(lambda tx: approvals.escalate_overdue(tx, limit=10)) for _ in "12"
        ]

    assert done.output == "expired"
    assert approval.due_at == approval.escalate_at
    # the watchdog of the worker may have been first
    assert sum(rounds) <= 1
    assert await count_events(fl, "approval.late") == 1
    assert len(await given.audit_entries(fl, "APPROVAL_ESCALATED")) == 1


async def test_an_escalated_approval_can_still_be_answered(fl: Fairlead) -> None:
    pay = payment(fl, escalate="approval.late", escalate_after=3600)
    job = await start(fl, pay)
    async with working(fl):
        [approval] = await asked(fl, job)
        assert await fl.database.transact(lambda tx: approvals.escalate_overdue(tx, limit=10)) == 0
        await make_overdue(fl)
        await fl.database.transact(lambda tx: approvals.escalate_overdue(tx, limit=10))
        late = await fl.read_approval(approval.id)
        await fl.approve(approval.id, {"amount": 2})
        done = await ended(job)

    assert (late.status, late.escalated_at is not None) == (ApprovalStatus.OPEN, True)
    assert done.output[0] is True
    [event] = [event for event in await given.all_events(fl) if event.name == "approval.late"]
    assert event.data.items() >= {
        ("approval_id", str(approval.id)),
        ("job_id", str(job.id)),
        ("title", "Pay "),
    }
    assert event.caused_by == job.id


async def test_an_approval_of_a_canceled_job_is_closed_until_the_job_is_retried(fl: Fairlead) -> None:
    pay = payment(fl, escalate="approval.late", escalate_after=3600)
    job = await start(fl, pay)
    async with working(fl):
        [approval] = await asked(fl, job)
        await fl.cancel(job.id)
        closed = await fl.read_approval(approval.id)
        listed = [
            [one.id for one in (await fl.list_approvals(status=status)).items]
            for status in ("open", "canceled")
        ]
        with pytest.raises(ApprovalClosed, match="no longer needed"):
            await fl.approve(approval.id, {"amount": 1})
        await make_overdue(fl)
        await fl.database.transact(lambda tx: approvals.escalate_overdue(tx, limit=10))
        await fl.retry(job.id)
        [again] = await asked(fl, job)
        await fl.approve(again.id, {"amount": 1})
        done = await ended(job)

    assert closed.status is ApprovalStatus.CANCELED
    assert listed == [[], [approval.id]]
    assert await count_events(fl, "approval.late") == 0
    assert again.id == approval.id
    assert done.output[0] is True


async def test_branches_ask_for_their_own_approvals_and_pages_list_them(fl: Fairlead) -> None:
    @fl.job(durable=True)
    def flow(ctx: Context) -> Any:
        first, second = ctx.gather(
            lambda: ctx.wait_for_approval("first", title="First"),
            lambda: ctx.wait_for_approval("second", title="Second"),
        )
        return [first.approved, second.approved]

    job = await start(fl, flow)
    async with working(fl):
        newest, oldest = await asked(fl, job, 2)
        page = await fl.list_approvals(tenant=TENANT, limit=1)
        rest = await fl.list_approvals(tenant=TENANT, limit=1, cursor=page.next_cursor)
        by_name = {one.name: one.id for one in (newest, oldest)}
        await fl.approve(by_name["second"])
        with pytest.raises(ApprovalInvalid, match="no form"):
            await fl.approve(by_name["first"], {"amount": 1})
        await fl.reject(by_name["first"])
        done = await ended(job)

    assert [one.id for one in (*page.items, *rest.items)] == [newest.id, oldest.id]
    assert rest.next_cursor is None
    assert done.output == [False, True]
    with pytest.raises(InvalidInput, match="limit"):
        await fl.list_approvals(limit=0)
    with pytest.raises(InvalidInput, match="status"):
        await fl.list_approvals(status="closed")


def principal(role: Role, tenant_id: UUID | None) -> Principal:
    return Principal(f"the {role}", role, tenant_id)


async def test_only_the_named_roles_of_the_tenant_answer(fl: Fairlead) -> None:
    pay = payment(fl, roles=["tenant_admin", "application"], form=None)
    job = await start(fl, pay)
    async with working(fl):
        [approval] = await asked(fl, job)
        refused = list[type[Exception]]()
        for who in (
            principal(Role.VIEWER, approval.tenant_id),
            principal(Role.OPERATOR, approval.tenant_id),
            principal(Role.TENANT_ADMIN, uuid4()),
        ):
            with pytest.raises((Forbidden, ApprovalUnknown)) as error:
                async with fl.database.transaction() as tx:
                    await approvals.approve(tx, who, approval.id)
            refused.append(error.type)
        admin = principal(Role.TENANT_ADMIN, approval.tenant_id)
        async with fl.database.transaction(TransactionIdentity(approval.tenant_id)) as tx:
            answered = await approvals.approve(tx, admin, approval.id)
        await ended(job)

    assert refused == [Forbidden, Forbidden, ApprovalUnknown]
    assert approval.roles == (Role.TENANT_ADMIN, Role.APPLICATION)
    assert answered.answered_by == "the tenant_admin"


async def test_a_secret_of_the_payload_is_not_in_the_title(fl: Fairlead) -> None:
    @fl.job(durable=True, key="tell")
    async def tell(ctx: Context, word: Annotated[str, Secret()]) -> None:
        await ctx.wait_for_approval("tell", title=f"Tell {word}", description=f"It is {word}.")

    job = await start(fl, tell, word="open-sesame")
    async with working(fl):
        [approval] = await asked(fl, job)
        await fl.cancel(job.id)

    assert (approval.title, approval.description) == ("Tell [redacted]", "It is [redacted].")
