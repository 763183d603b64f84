"""Actions on many jobs: what the dialog says, what can be undone, and why jobs are left as they are."""

import re

import pytest
from playwright.async_api import expect

from fairlead.actions import jobs
from fairlead.model.access import Role
from tests import given
from tests.console.visiting import NARROW, Console, accessible
from tests.server import matrix

pytestmark = pytest.mark.thorough


async def test_the_dialog_names_the_number_the_filter_and_the_tenant(console: Console) -> None:
    async with console.transaction() as tx:
        for _ in range(3):
            await given.queued_job(tx)
        await given.queued_job(tx, definition="anything")
    page = await console.visit(path="/jobs?q=definition%3Agreet&status=queued", width=NARROW)

    await page.click("text=All matching")
    await page.click("[data-matching=cancel]")
    dialog = page.locator("#confirm")
    await expect(dialog.locator("h2")).to_have_text(f"Cancel 3 jobs in {given.TENANT}?")
    await expect(dialog).to_contain_text("search “definition:greet”, status queued")
    await expect(dialog.locator("button")).to_have_text(["Go back", "Cancel 3 jobs"])
    await accessible(page)
    await page.click("#confirm >> text=Go back")
    await expect(page.locator(".level.queued strong")).to_have_text("4")


async def test_a_cancel_of_all_that_match_is_undone(console: Console) -> None:
    async with console.transaction() as tx:
        for _ in range(3):
            await given.queued_job(tx)
    page = await console.visit(Role.SUPER_ADMIN)

    await page.click("text=All matching")
    await page.click("[data-matching=cancel]")
    await expect(page.locator("#confirm h2")).to_have_text("Cancel 3 jobs in all tenants?")
    await expect(page.locator("#confirm")).to_contain_text("No filter is set")
    await page.click("#confirm [data-yes]")
    await expect(page.locator(".toast")).to_contain_text("Canceled: 3.")
    await expect(page.locator(".level.canceled strong")).to_have_text("3")
    await page.click(".toast >> text=Undo")

    await expect(page.locator(".toast")).to_contain_text("Queued again: 3.")
    await expect(page.locator(".level.queued strong")).to_have_text("3")


async def test_selected_jobs_are_canceled_and_that_is_undone(console: Console) -> None:
    async with console.transaction() as tx:
        for _ in range(2):
            await given.queued_job(tx)
    page = await console.visit(Role.OPERATOR)

    await page.check("[data-all]")
    await page.click("[data-selected=cancel]")
    await expect(page.locator("#confirm [data-yes]")).to_have_text("Cancel 2 jobs")
    await page.click("#confirm [data-yes]")
    await expect(page.locator("tbody .status.canceled")).to_have_count(2)
    await page.click(".toast >> text=Undo")

    await expect(page.locator("tbody .status.queued")).to_have_count(2)


async def test_steps_of_workflows_are_left_with_the_reason(console: Console) -> None:
    async with console.transaction() as tx:
        await given.ended_job(tx, "failed")
        _, job_id = await given.begun_step(tx, matrix.WORKFLOW)
        await jobs.cancel(tx, given.TESTER, job_id)
    page = await console.visit()
    reason = re.compile(r"Left as they are: 1 \(steps of workflows: retry them with their run\)")

    await page.check("[data-all]")
    await page.click("[data-selected=retry]")
    await expect(page.locator(".toast").last).to_contain_text("Queued again: 1.")
    await expect(page.locator(".toast").last).to_contain_text(reason)
    await page.click("text=All matching")
    await page.click("[data-matching=retry]")

    await expect(page.locator(".toast").last).to_contain_text("No job here can be retried.")
    await expect(page.locator(".toast").last).to_contain_text(reason)
