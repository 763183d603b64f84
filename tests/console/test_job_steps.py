"""The steps of a durable function on its job's page, in a real browser; and the order of their rows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest
from playwright.async_api import expect

from fairlead import Backoff, Context, Fairlead, Retry, Secret, StepFailed
from fairlead.model.access import Role
from fairlead.model.durable import JobStep, Place, StepKind, StepStatus, format_place
from fairlead.model.job import Job, JobStatus
from fairlead.server.console.step_rows import list_rows
from tests.console.visiting import Console, accessible_in_each_look
from tests.given import TENANT

pytestmark = pytest.mark.thorough

PIN = "pin-4711-secret"
NOW = datetime(2026, 11, 18, tzinfo=UTC)


def add_small(fl: Fairlead) -> None:
    """Functions with a single kind of step."""

    @fl.job(durable=True)
    async def parent(ctx: Context) -> Any:
        return await ctx.gather(ctx.call("index", {"user": 1}), ctx.wait_for_signal("go"))

    @fl.job(durable=True)
    async def ask(ctx: Context) -> bool:
        return bool(await ctx.wait_for_approval("welcome", title="Send the welcome gift?"))

    @fl.job(durable=True)
    async def long(ctx: Context) -> None:
        for number in range(130):
            await ctx.step(f"step {number}", lambda: None)


@asynccontextmanager
async def onboarding(console: Console) -> AsyncIterator[Fairlead]:
    """An application with durable functions, on the console's database."""
    fl = Fairlead(settings=console.world.fl.settings, actor="tester")

    def decline() -> None:
        raise ValueError("card declined")

    @fl.job
    async def index(user: int) -> dict[str, int]:
        return {"pages": user}

    @fl.job(durable=True)
    async def onboard(ctx: Context, email: str, pin: Annotated[str, Secret()]) -> Any:
        account = await ctx.step("create account", lambda: {"id": 7, "pin": pin, "plans": ["a", "b"] * 9})
        try:
            await ctx.step("charge", decline, retry=Retry(2, Backoff(0, 1, 0, 0)))
        except StepFailed:
            await ctx.step("free plan", lambda: "free")

        async def remind(n: int) -> None:
            await ctx.step(f"reminder {n}", lambda: n)
            await ctx.sleep(days=n)

        async def confirm() -> Any:
            return await ctx.wait_for_event(
                "user.confirmed", where={"email": email}, timeout=timedelta(days=7)
            )

        await ctx.gather(confirm(), remind(3))
        return await ctx.call(index, {"user": account["id"]})

    add_small(fl)
    await fl.open()
    try:
        yield fl
    finally:
        await fl.close()


async def test_the_steps_and_waits_of_a_function_are_shown_and_followed(console: Console) -> None:
    async with onboarding(console) as fl:
        job = await fl.enqueue("onboard", tenant=TENANT, payload={"email": "ada@example.com", "pin": PIN})
        await fl.tick()
        page = await console.visit(Role.OPERATOR, f"/jobs/{job.id}")

        steps = page.locator("#steps > ol > li")
        await expect(steps).to_have_count(6)
        assert PIN not in await page.content()
        await expect(steps.nth(0)).to_contain_text("create account")
        await expect(steps.nth(0).locator("details").first).to_contain_text("pin: [redacted]")
        await expect(steps.nth(1)).to_contain_text("ValueError: card declined")
        await expect(steps.nth(1)).to_contain_text("2 tries")
        await expect(steps.nth(1)).to_contain_text("The function went on after this failure.")
        await expect(steps.nth(2).locator("code")).to_have_text('"free"')
        # what waits, in its branches
        await expect(steps.nth(3)).to_contain_text("branch 1")
        await expect(steps.nth(3)).to_contain_text("Times out in")
        await expect(steps.nth(3)).to_contain_text("ada@example.com")
        await expect(steps.nth(4)).to_contain_text("branch 2")
        await expect(steps.nth(5)).to_contain_text("Goes on in")
        await expect(page.locator(".why")).to_contain_text("for the event user.confirmed")
        await expect(page.locator("#waterfall tbody tr")).to_have_count(7)
        await page.evaluate(
            "document.querySelectorAll('#steps details').forEach((one) => { one.open = true; })"
        )
        await accessible_in_each_look(page, shot="job-steps-waiting")

        await expect(page.locator("[data-live-state=live]")).to_be_visible()
        await fl.emit("user.confirmed", data={"email": "ada@example.com"}, tenant=TENANT)
        await fl.tick()
        await expect(steps.nth(3).locator(".status")).to_have_text("succeeded")
        # what the reader has unfolded stays so
        await expect(steps.nth(0).locator("details").first).to_have_attribute("open", "")


async def test_a_call_leads_to_its_child_and_a_canceled_wait_says_so(console: Console) -> None:
    async with onboarding(console) as fl:
        job = await fl.enqueue("parent", tenant=TENANT)
        await fl.tick()
        page = await console.visit(Role.OPERATOR, f"/jobs/{job.id}")
        call, signal = page.locator("#steps > ol > li").nth(0), page.locator("#steps > ol > li").nth(1)
        await expect(signal).to_contain_text("No timeout")
        await expect(page.locator("#waterfall tbody tr")).to_have_count(3)
        await fl.cancel(job.id)
        await page.reload()
        await expect(signal.locator(".status")).to_have_text("canceled")
        await accessible_in_each_look(page, shot="job-steps-ended")
        await call.locator("a").click()
        await expect(page.locator("h1")).to_contain_text("index")
        await expect(page.locator("#steps")).to_have_count(0)


async def test_a_wait_for_an_approval_leads_to_it(console: Console) -> None:
    async with onboarding(console) as fl:
        job = await fl.enqueue("ask", tenant=TENANT)
        await fl.tick()
        page = await console.visit(Role.OPERATOR, f"/jobs/{job.id}")
        await expect(page.locator(".why a")).to_have_text("Open the approval")
        await page.locator("#steps").get_by_text("Send the welcome gift?").click()
        await page.wait_for_url("**/approvals/**")
        await expect(page.locator("h1")).to_contain_text("Send the welcome gift?")


async def test_many_steps_are_shown_in_pages(console: Console) -> None:
    async with onboarding(console) as fl:
        job = await fl.enqueue("long", tenant=TENANT)
        await fl.tick()
        page = await console.visit(path=f"/jobs/{job.id}")
        await expect(page.locator("#steps > ol > li")).to_have_count(100)
        await page.click("text=Later steps")
        await expect(page.locator("#steps > ol > li")).to_have_count(30)
        await expect(page.locator("#steps > ol > li").first).to_contain_text("step 100")
        await page.click("text=First steps")
        await expect(page.locator("#steps > ol > li").first).to_contain_text("step 0")


def job_step(branch: str, position: int, **fields: Any) -> JobStep:
    nothing = dict.fromkeys(("ended_at", "due_at", "child_id", "request", "result", "error"))
    known: dict[str, Any] = {
        **nothing,
        "kind": StepKind.STEP,
        "name": f"{branch}:{position}",
        "status": StepStatus.SUCCEEDED,
        "tries": 1,
        "attempt_no": 1,
        "started_at": NOW,
        "secret": False,
        **fields,
    }
    place = format_place(Place(branch, position))
    return JobStep(place=place, branch=branch, number=position + 1, **known)


def job_with(status: JobStatus) -> Job:
    nothing: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    return Job(**{**nothing, "status": status, "finished_at": NOW + timedelta(hours=1)})


def test_branches_stand_where_the_function_began_them() -> None:
    steps = [
        *(job_step("", position) for position in range(12)),
        job_step("/10.1.0", 0),
        *(job_step("/2.0.0", position) for position in range(2)),
        job_step("/2.0.0/1.0.0", 0),
        job_step("/2.0.1", 0),
        job_step("/2.0.10", 0),
        job_step("/2.0.2", 0),
    ]
    rows = list_rows(job_with(JobStatus.SUCCEEDED), steps)
    assert [(row.step.place, row.level, row.branch) for row in rows[:8]] == [
        ("1", 0, None),
        ("2", 0, None),
        ("/2.0.0:1", 1, "branch 1"),
        ("/2.0.0/1.0.0:1", 2, "branch 1"),
        # the branch goes on
        ("/2.0.0:2", 1, None),
        ("/2.0.1:1", 1, "branch 2"),
        ("/2.0.2:1", 1, "branch 3"),
        ("/2.0.10:1", 1, "branch 11"),
    ]
    assert [row.step.place for row in rows[8:]] == [*map(str, range(3, 11)), "/10.1.0:1", "11", "12"]


def test_a_wait_of_a_job_that_has_ended_is_over() -> None:
    wait = job_step("", 0, kind=StepKind.SIGNAL, status=StepStatus.WAITING)
    [row] = list_rows(job_with(JobStatus.CANCELED), [wait])
    assert (row.status, row.seconds) == ("canceled", 3600)
    [failed] = list_rows(job_with(JobStatus.FAILED), [job_step("", 0, status=StepStatus.RETRY, ended_at=NOW)])
    assert (failed.status, failed.seconds) == ("failed", 0)
