"""Steps of workflows that wait: for a time, for an event, for an approval."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead import Approval, Context, Fairlead, Settings, WorkflowRun, testing
from fairlead.actions.workflows import RunDetails
from fairlead.model.workflow.run import RunStatus, StepState
from fairlead.testing import pass_time
from tests import given
from tests.given import TENANT
from tests.waiting import SECONDS
from tests.working import until_asleep
from tests.working import working as working_alone
from tests.working import working_and_dispatching as working


@pytest.fixture
async def fl(settings: Settings) -> AsyncIterator[Fairlead]:
    """A Fairlead with a job that returns its payload; the test opens it."""
    made = Fairlead(settings=settings, actor="tester")

    @made.job(key="echo")
    async def echo(value: Any = None) -> Any:
        return value

    yield made
    await given.no_inconsistencies(made.database)
    await made.close()


async def ended(run: WorkflowRun) -> RunDetails:
    async with asyncio.timeout(SECONDS):
        while True:
            found = await run.read()
            if found.run.status is not RunStatus.RUNNING:
                return found
            await asyncio.sleep(0.02)


def states(found: RunDetails) -> dict[str, str]:
    return {step.name: step.state.value for step in found.steps}


@pytest.mark.thorough
async def test_a_sleep_holds_back_the_steps_after_it(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    rest = flow.sleep("rest", "{{input.seconds}}")
    flow.step("after", "echo", {"value": "{{steps.rest.status}}"}, after=rest)
    await fl.open()
    run = await fl.start(flow, tenant=TENANT, input={"seconds": 3600})
    async with working(fl):
        await until_asleep(fl)
        found = await run.read()
        assert states(found) == {"rest": "running", "after": "waiting"}
        await pass_time(fl, hours=1)
        assert await run.result(timeout=SECONDS) == {"after": "succeeded"}


@pytest.mark.thorough
async def test_a_short_sleep_and_one_until_a_past_time_end(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    rest = flow.sleep("rest", timedelta(milliseconds=50))
    flow.sleep("until", until=datetime(2020, 1, 1, tzinfo=UTC), after=rest)
    await fl.open()
    run = await fl.start(flow, tenant=TENANT)
    async with working(fl):
        assert states(await ended(run)) == {"rest": "succeeded", "until": "succeeded"}


async def test_an_event_ends_a_wait_and_is_its_output(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    asked = flow.step("ask", "echo", {"value": "asked"})
    paid = flow.wait_for_event("paid", "order.paid", where={"order": "{{input.order}}"}, after=asked)
    flow.step("ship", "echo", {"value": "{{steps.paid.output.data.by}}"}, after=paid)
    await fl.open()
    run = await fl.start(flow, tenant=TENANT, input={"order": 7})
    async with working(fl):
        await until_asleep(fl)
        await fl.emit("order.paid", data={"order": 8, "by": "eve"}, tenant=TENANT)
        await fl.emit("order.paid", data={"order": 7, "by": "ada"}, tenant=TENANT)
        assert await run.result(timeout=SECONDS) == {"ship": "ada"}


@pytest.mark.thorough
async def test_an_event_that_came_while_an_earlier_step_ran_is_found(fl: Fairlead) -> None:
    @fl.job(key="pay")
    async def pay(ctx: Context) -> None:
        await fl.emit("order.paid", data={"n": 1}, tenant=ctx.tenant)

    flow = fl.workflow("w")
    first = flow.step("first", "pay")
    one = flow.wait_for_event("one", "order.paid", after=first)
    # the event was received by the step before: this one waits for another
    flow.wait_for_event("two", "order.paid", timeout=0.01, on_timeout="continue", after=one)
    await fl.open()
    run = await fl.start(flow, tenant=TENANT)
    async with working(fl):
        found = await ended(run)
    assert states(found) == {"first": "succeeded", "one": "succeeded", "two": "succeeded"}
    assert found.run.output == {"two": None}


async def test_a_late_dispatch_does_not_give_a_run_an_event_twice(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    one = flow.wait_for_event("one", "order.paid")
    flow.wait_for_event("two", "order.paid", timeout=3600, on_timeout="continue", after=one)
    await fl.open()
    run = await fl.start(flow, tenant=TENANT)
    await fl.emit("order.paid", tenant=TENANT)
    async with working_alone(fl):
        await until_asleep(fl)
        assert states(await run.read()) == {"one": "succeeded", "two": "running"}
        await testing.dispatch_events(fl)
        await pass_time(fl, hours=1)
        assert (await ended(run)).run.output == {"two": None}


@pytest.mark.thorough
async def test_after_the_timeout_the_step_fails_and_a_retry_waits_again(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    flow.wait_for_event("paid", "order.paid", timeout="{{input.timeout}}")
    await fl.open()
    run = await fl.start(flow, tenant=TENANT, input={"timeout": 0.05})
    async with working(fl):
        found = await ended(run)
        assert found.run.status is RunStatus.FAILED
        assert found.run.error["message"] == "Fatal: No event order.paid that matches came within 0.05 s."
        await fl.emit("order.paid", data={"n": 2}, tenant=TENANT)
        await run.retry()
        found = await ended(run)
    assert found.run.status is RunStatus.SUCCEEDED
    assert found.run.output["paid"]["data"] == {"n": 2}


@pytest.mark.thorough
async def test_a_step_waits_for_each_item(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    flow.wait_for_event("paid", "order.paid", where={"order": "{{item}}"}, for_each="{{input.orders}}")
    await fl.open()
    run = await fl.start(flow, tenant=TENANT, input={"orders": [1, 2, 3]})
    async with working(fl):
        await until_asleep(fl, number=3)
        for order in (3, 1, 2):
            await fl.emit("order.paid", data={"order": order}, tenant=TENANT)
        output = await run.result(timeout=SECONDS)
    assert [one["data"] for one in output["paid"]] == [{"order": 1}, {"order": 2}, {"order": 3}]


async def test_a_canceled_run_ends_its_waits(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    flow.sleep("rest", 3600)
    flow.wait_for_event("paid", "order.paid")
    await fl.open()
    run = await fl.start(flow, tenant=TENANT)
    async with working(fl):
        await until_asleep(fl, number=2)
        await run.cancel()
        found = await ended(run)
    assert found.run.status is RunStatus.CANCELED
    assert {step.state for step in found.steps} == {StepState.CANCELED}


@pytest.mark.thorough
async def test_a_durable_function_is_a_step(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def order(ctx: Context, number: int) -> Any:
        await ctx.sleep(0.05)
        found = await ctx.wait_for_event("order.paid", where={"order": number})
        return found.data["by"]

    flow = fl.workflow("w")
    first = flow.step("order", order, {"number": 7})
    flow.step("ship", "echo", {"value": "{{steps.order.output}}"}, after=first)
    await fl.open()
    run = await fl.start(flow, tenant=TENANT)
    async with working(fl):
        await until_asleep(fl)
        await fl.emit("order.paid", data={"order": 7, "by": "ada"}, tenant=TENANT)
        assert await run.result(timeout=SECONDS) == {"ship": "ada"}


async def until_open(fl: Fairlead) -> Approval:
    """Wait for an open approval."""
    async with asyncio.timeout(SECONDS):
        while not (page := await fl.list_approvals(tenant=TENANT)).items:
            await asyncio.sleep(0.02)
    return page.items[0]


FORM = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "pin": {"type": "string", "x-secret": True}},
    "required": ["amount"],
}


async def test_an_approval_is_the_output_of_its_step(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    asked = flow.approval("refund", "Refund order {{input.order}}?", form=FORM, timeout=3600)
    flow.step("pay", "echo", {"value": "{{steps.refund.output.values}}"}, after=asked)
    await fl.open()
    run = await fl.start(flow, tenant=TENANT, input={"order": 7})
    async with working(fl):
        approval = await until_open(fl)
        assert (approval.name, approval.title) == ("refund", "Refund order 7?")
        await fl.approve(approval.id, {"amount": 20, "pin": "very-secret-1"})
        # everyone who may read the run sees its outputs
        assert await run.result(timeout=SECONDS) == {"pay": {"amount": 20, "pin": "[redacted]"}}


@pytest.mark.thorough
async def test_a_rejection_fails_the_step_and_a_retry_asks_again(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    flow.approval("refund", "Refund?")
    await fl.open()
    run = await fl.start(flow, tenant=TENANT)
    async with working(fl):
        first = await until_open(fl)
        await fl.reject(first.id, comment="too late")
        found = await ended(run)
        assert found.run.status is RunStatus.FAILED
        assert found.run.error["message"] == "Fatal: tester rejected the approval 'Refund?': too late"
        await run.retry()
        second = await until_open(fl)
        assert second.id != first.id
        await fl.approve(second.id)
        found = await ended(run)
    assert found.run.status is RunStatus.SUCCEEDED
    assert found.run.output["refund"]["approved"] is True


@pytest.mark.thorough
async def test_a_run_goes_on_after_a_rejection_or_the_timeout_if_it_should(fl: Fairlead) -> None:
    flow = fl.workflow("w")
    late = flow.approval("late", "Late?", timeout=0.01, on_timeout="continue")
    flow.approval("no", "No?", on_reject="continue", after=late)
    await fl.open()
    run = await fl.start(flow, tenant=TENANT)
    async with working(fl):
        async with asyncio.timeout(SECONDS):
            while (approval := await until_open(fl)).name != "no":
                await asyncio.sleep(0.02)
        await fl.reject(approval.id)
        found = await ended(run)
    assert states(found) == {"late": "succeeded", "no": "succeeded"}
    assert found.run.output["no"]["approved"] is False
