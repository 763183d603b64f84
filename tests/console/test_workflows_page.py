"""Workflows and their runs: graphs that fill with colour, what went wrong first, and going on from there."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import expect

from fairlead import Fairlead, Fatal
from fairlead.actions import workflows
from fairlead.actions.workflows import RunRequest
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.store import workflows as stored_workflows
from tests import given
from tests.console.visiting import Console, accessible_in_each_look, fits_each_window, submit
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

INPUT = {
    "type": "object",
    "properties": {"email": {"type": "string"}, "pin": {"type": "string", "x-secret": True}},
    "required": ["email"],
}
# A step of each kind.
ONBOARD = {
    "key": "onboard",
    "description": "Says hello.",
    "input_schema": INPUT,
    "steps": [
        {"name": "create", "definition": "steady", "payload": {"text": "{{input.email}}"}},
        {"name": "index", "definition": "steady", "after": ["create"]},
        {"name": "gift", "definition": "steady", "after": ["create"], "when": {"input.vip": True}},
        {"name": "done", "definition": "gated", "after": ["index"]},
    ],
}
CHECKS: dict[str, Any] = {
    "key": "checks",
    "steps": [
        {"name": "undo", "definition": "steady"},
        {
            "name": "check",
            "definition": "moody",
            "payload": {"number": "{{index}}"},
            "for_each": "{{input.list}}",
            "on_failure": {"compensate": "undo"},
        },
        {"name": "report", "definition": "steady", "after": ["check"]},
    ],
}
LARGE = {
    "key": "large",
    "steps": [
        *({"name": f"first{n}", "definition": "anything"} for n in range(160)),
        {"name": "last", "definition": "anything", "after": [f"first{n}" for n in range(160)]},
    ],
}


class Moods:
    """What the functions below do next."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.bad = True


@asynccontextmanager
async def working(console: Console) -> AsyncIterator[Moods]:
    """A worker for steps that succeed, that wait for a gate, and that fail while it has bad moods."""
    fl, moods, stop = Fairlead(settings=console.world.fl.settings, actor="tester"), Moods(), asyncio.Event()

    @fl.job
    async def steady(text: str = "") -> dict[str, str]:
        return {"said": text}

    @fl.job
    async def gated() -> str:
        await moods.opened.wait()
        return "over"

    @fl.job
    async def moody(number: int) -> int:
        if moods.bad and number == 3:
            raise Fatal("number three is broken")
        return number

    async with fl, asyncio.TaskGroup() as group:
        group.create_task(fl.work(stop, stop))
        try:
            yield moods
        finally:
            moods.opened.set()
            stop.set()


async def publish(console: Console, *documents: Any, tenant: str = given.TENANT) -> None:
    async with console.transaction() as tx:
        for document in documents:
            await workflows.publish(tx, given.TESTER, tenant, document)


async def start(tx: Tx, key: str, tenant: str = given.TENANT, **fields: Any) -> UUID:
    return (await workflows.start(tx, given.TESTER, key, RunRequest(tenant=tenant, **fields))).id


async def started(console: Console, key: str, **fields: Any) -> UUID:
    async with console.transaction() as tx:
        return await start(tx, key, **fields)


def simple(key: str) -> dict[str, Any]:
    return {"key": key, "steps": [{"name": "only", "definition": "anything"}]}


async def test_a_workflow_is_started_from_its_form_and_its_graph_fills_as_it_runs(console: Console) -> None:
    page = await console.visit(path="/workflows")
    await expect(page.locator("text=No workflows yet")).to_be_visible()
    async with working(console) as moods:
        await publish(console, ONBOARD)
        await page.reload()
        await expect(page.locator("tbody tr")).to_contain_text("Never ran")
        await accessible_in_each_look(page)
        await page.click("tbody tr >> text=onboard")
        await expect(page.locator(".graph .step")).to_have_count(4)
        await expect(page.locator(".graph .line")).to_have_count(3)
        await expect(page.locator("#box-2 .pill")).to_contain_text("if")
        await expect(page.locator("text=No runs yet")).to_be_visible()
        await accessible_in_each_look(page)

        await page.click(".primary >> text=Start")
        await page.click("form .primary")
        await expect(page.locator(".field-fault")).to_contain_text("This is required.")
        await expect(page.locator("[role=alert]")).to_contain_text("Nothing was started")
        await accessible_in_each_look(page)
        await page.fill("[name='payload/email']", "ada@example.com")
        await page.fill("[name='payload/pin']", "hunter2hunter2")
        await page.fill("[name=key]", "ada")
        await page.click("form .primary")

        await expect(page.locator("h1")).to_contain_text("onboard")
        await expect(page.locator("#box-3.running")).to_be_visible()
        await expect(page.locator("#box-0.succeeded")).to_be_visible()
        await expect(page.locator("#box-2.skipped")).to_be_visible()
        await expect(page.locator(".line.gone")).to_have_count(2)
        await expect(page.locator("#step-3")).to_contain_text("running")
        assert "hunter2" not in await page.content()
        moods.opened.set()
        await expect(page.locator("h1 .status")).to_contain_text("succeeded")
        await expect(page.locator("#box-3.succeeded")).to_be_visible()
        await expect(page.locator("#output")).to_contain_text("over")

    address = page.url
    await page.click("#box-0")
    await expect(page.locator("h1")).to_contain_text("steady")
    await page.click("text=Workflow run")
    await expect(page).to_have_url(address)
    await page.goto("/console/workflows")
    await expect(page.locator(".mark.succeeded")).to_have_count(1)
    # one run for a key, and no secret is copied
    await page.goto(f"/console/workflows/onboard/start?copy={address.rpartition('/')[2]}")
    await expect(page.locator("[name='payload/pin']")).to_have_value("")
    await submit(page, "form .primary", {"[name=key]": "ada"})
    await expect(page).to_have_url(address)
    await expect(page.locator(".toast")).to_contain_text("A run with this key exists")


async def test_a_run_that_failed_says_why_first_and_goes_on_from_there(console: Console) -> None:
    async with working(console) as moods:
        await publish(console, CHECKS)
        run_id = await started(console, "checks", input={"list": list(range(120))})
        page = await console.visit(path=f"/workflow-runs/{run_id}")

        await expect(page.locator(".card.error")).to_contain_text("check failed")
        await expect(page.locator(".card.error")).to_contain_text("number three is broken")
        await expect(page.locator("#box-0.undo.succeeded")).to_be_visible()
        await expect(page.locator(".line.undo")).to_have_count(1)
        await expect(page.locator("#box-1 .pill")).to_contain_text("120/120")
        await expect(page.locator("#step-1")).to_contain_text("1 failed")
        await expect(page.locator("#box-2.stopped")).to_be_visible()
        await accessible_in_each_look(page)

        await page.click("#box-1")
        await expect(page.locator("[id^=item-]")).to_have_count(100)
        await page.click("text=Later items")
        await expect(page.locator("[id^=item-]")).to_have_count(20)
        await page.click(".tabs >> text=failed")
        await expect(page.locator("[id^=item-]")).to_have_count(1)
        await expect(page.locator("#item-3")).to_contain_text("number three is broken")
        await accessible_in_each_look(page)

        # what was undone cannot go on
        await page.goto(f"/console/workflow-runs/{run_id}")
        await expect(page.locator("text=Retry from failed step")).to_have_count(0)

        check = {name: value for name, value in CHECKS["steps"][1].items() if name != "on_failure"}
        await publish(console, {"key": "kept", "steps": [check, CHECKS["steps"][2]]})
        run_id = await started(console, "kept", input={"list": list(range(4))})
        await page.goto(f"/console/workflow-runs/{run_id}")
        await expect(page.locator("h1 .status")).to_contain_text("failed")
        moods.bad = False
        await page.click("text=Retry from failed step")
        await page.click("#confirm [value=no]")
        await page.click("text=Retry from failed step")
        await page.click("#confirm [data-yes]")
        await expect(page.locator(".toast")).to_contain_text("It continues from the steps")
        await expect(page.locator("h1 .status")).to_contain_text("succeeded")
        await expect(page.locator("#box-1.succeeded")).to_be_visible()
        await expect(page.locator("text=Retry from failed step")).to_have_count(0)

        # a job that waits for a run leads to it, and it to the job
        await publish(console, {"key": "slow", "steps": [{"name": "wait", "definition": "gated"}]})
        job_id = await given_engine_job(console)
        await page.goto("/console/workflow-runs?workflow=slow")
        await page.click("tbody tr a")
        await expect(page.locator("#box-0.running")).to_be_visible()
        await page.click(f"#steps a[href$='{job_id}']")
        await page.click("dd >> text=workflow run >> a")
        await page.click("text=Cancel")
        await page.click("#confirm [data-yes]")
        await expect(page.locator("h1 .status")).to_contain_text("canceled")


async def given_engine_job(console: Console) -> UUID:
    """A job of ENGINE_RUN whose run goes on."""
    fl = Fairlead(settings=console.world.fl.settings, actor="tester")
    fl.allow_engine()
    stop = asyncio.Event()
    async with fl, asyncio.TaskGroup() as group:
        group.create_task(fl.work(stop, stop))
        job = await fl.enqueue("ENGINE_RUN", tenant=given.TENANT, payload={"workflow": "slow"})
        async with asyncio.timeout(SECONDS):
            while not await waits_for_a_run(console, job.id):
                await asyncio.sleep(0.02)
        stop.set()
    return job.id


async def waits_for_a_run(console: Console, job_id: UUID) -> bool:
    async with console.transaction() as tx:
        return await stored_workflows.find_awaited_run(tx, job_id) is not None


async def test_a_run_of_many_steps_is_told_in_layers_and_pages(console: Console) -> None:
    await publish(console, LARGE)
    run_id = await started(console, "large")
    page = await console.visit(path=f"/workflow-runs/{run_id}")

    await expect(page.locator("[data-view]")).to_contain_text("161 of 161 steps shown")
    layers = page.locator(".layers tbody tr")
    await expect(layers).to_have_count(2)
    await expect(layers.first).to_contain_text("160")
    await expect(page.locator("[id^=step-]")).to_have_count(150)
    await page.click("text=Later steps")
    await expect(page.locator("[id^=step-]")).to_have_count(11)
    await expect(page.locator("#step-160")).to_contain_text("waiting")
    await fits_each_window(page)
    await page.goto("/console/workflows/large")
    await expect(page.locator(".layers tbody tr")).to_have_count(2)
    await expect(page.locator("[id^=step-]")).to_have_count(150)


async def test_runs_are_filtered_paged_and_do_not_move_while_new_ones_come(console: Console) -> None:
    await publish(console, simple("a"), simple("b"))
    async with console.transaction() as tx:
        for _ in range(51):
            await start(tx, "a")
        stopped = await start(tx, "b")
        await workflows.cancel(tx, given.TESTER, stopped)
    page = await console.visit(path="/workflow-runs")
    rows = page.locator("[id^=run-]")

    await expect(rows).to_have_count(50)
    await page.click("text=Older")
    await expect(rows).to_have_count(2)
    await page.select_option("[name=status]", "canceled")
    await expect(page).to_have_url(re.compile("status=canceled"))
    await expect(rows).to_have_count(1)
    await page.fill("[name=workflow]", "a")
    await page.press("[name=workflow]", "Enter")
    await expect(page.locator("text=No matching runs")).to_be_visible()

    await page.goto("/console/workflow-runs?workflow=b")
    await expect(page.locator("[data-live-state=live]")).to_be_visible()
    await started(console, "b")
    await expect(page.locator(".new")).to_have_text("1 new")
    await expect(rows).to_have_count(1)
    await page.click(".new")
    await expect(rows).to_have_count(2)
    await accessible_in_each_look(page)


async def test_a_tenant_sees_its_own_workflows_and_the_shared(console: Console) -> None:
    await publish(console, simple("theirs"), tenant=given.OTHER)
    await publish(console, simple("everybodys"), simple("ours"), tenant="global")
    await publish(console, {**simple("ours"), "description": "Another."})
    await started(console, "theirs", tenant=given.OTHER)

    page = await console.visit(path="/workflows")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await expect(page.locator("tbody tr", has_text="ours")).to_contain_text("This tenant")

    page = await console.visit(Role.SUPER_ADMIN, "/workflows")
    await expect(page.locator("tbody tr")).to_have_count(4)
    await page.click("tbody tr >> text=theirs")
    await expect(page).to_have_url(re.compile(f"tenant={given.OTHER}"))
    await expect(page.locator("#runs tbody tr")).to_have_count(1)
    await page.goto("/console/workflows/everybodys/start")
    await submit(page, "button >> text=Continue", {"[name=tenant][required]": given.OTHER})
    await expect(page.locator("h1")).to_contain_text("Start everybodys")
