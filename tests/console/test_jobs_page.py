"""The jobs page, in a real browser."""

import re
from urllib.parse import quote_plus

import pytest
from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import WIDE, Console, accessible_in_each_look


@pytest.mark.thorough
async def test_cards_count_and_lead_to_the_jobs_of_a_status(console: Console) -> None:
    async with console.transaction() as tx:
        for status in ("succeeded", "failed", "failed"):
            await given.ended_job(tx, status)
        await given.queued_job(tx)
    page = await console.visit(Role.VIEWER)

    await expect(page.locator(".level.failed strong")).to_have_text("2")
    await expect(page.locator(".level.queued small")).to_contain_text("oldest")
    await page.click(".level.failed")

    await expect(page).to_have_url(re.compile("q=status%3Afailed"))
    await expect(page.locator("tbody tr")).to_have_count(2)


@pytest.mark.thorough
async def test_what_is_new_waits_behind_a_button(console: Console) -> None:
    first = await given.queued_job(console)
    page = await console.visit()
    await expect(page.locator("[data-live-state=live]")).to_be_visible()

    async with console.transaction() as tx:
        await given.queued_job(tx)
        await given.queued_job(tx)

    await expect(page.locator(".new")).to_have_text("2 new")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator(f"#job-{first}")).to_be_visible()
    await expect(page.locator(".level.queued strong")).to_have_text("3")
    await page.click(".new")
    await expect(page.locator("tbody tr")).to_have_count(3)


@pytest.mark.thorough
async def test_a_row_changes_by_itself_and_keeps_its_tick(console: Console) -> None:
    job_id = await given.queued_job(console)
    page = await console.visit()
    await expect(page.locator("[data-live-state=live]")).to_be_visible()
    await page.check(f"#job-{job_id} [data-tick]")

    await console.world.call("POST", f"/jobs/{job_id}/cancel")

    await expect(page.locator(f"#job-{job_id} .status")).to_have_text("canceled")
    await expect(page.locator(f"#job-{job_id} [data-tick]")).to_be_checked()


@pytest.mark.thorough
async def test_a_job_is_canceled_and_that_is_undone(console: Console) -> None:
    job_id = await given.queued_job(console)
    page = await console.visit(Role.OPERATOR)

    await page.click(f"#job-{job_id} .acts button")
    await expect(page.locator(f"#job-{job_id} .status")).to_have_text("canceled")
    await page.click(".toast >> text=Undo")

    await expect(page.locator(f"#job-{job_id} .status")).to_have_text("queued")


@pytest.mark.thorough
async def test_selected_jobs_are_retried_by_keys(console: Console) -> None:
    async with console.transaction() as tx:
        for _ in range(3):
            await given.ended_job(tx, "dead_letter")
    page = await console.visit()

    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await page.click("[data-selected=retry]")

    await expect(page.locator(".toast")).to_contain_text("Queued again: 2.")
    await expect(page.locator("tbody .status.queued")).to_have_count(2)


@pytest.mark.thorough
async def test_the_search_understands_qualifiers(console: Console) -> None:
    async with console.transaction() as tx:
        await given.ended_job(tx, "failed")
        await given.queued_job(tx, dedupe_key="abc")
        await given.ended_job(tx, "succeeded", definition="anything")
    page = await console.visit()
    for typed, found in (("status:failed,queued key:abc", 1), ("gree", 2)):
        await page.wait_for_load_state()  # a page has its address before its scripts
        await page.keyboard.press("/")
        await page.keyboard.press("Control+A")
        await page.keyboard.type(typed)
        await page.keyboard.press("Enter")

        await expect(page.locator("[data-search]")).to_have_value(typed)
        await expect(page).to_have_url(re.compile(re.escape(f"q={quote_plus(typed)}")))
        await expect(page.locator("tbody tr")).to_have_count(found)

    await page.goto("/console/jobs?q=status%3Abroken")
    await expect(page.locator(".fault")).to_contain_text("There is no status 'broken'. Use one of: queued")


@pytest.mark.thorough
async def test_a_tenant_sees_its_own_and_a_super_admin_sees_all_and_chooses_one(console: Console) -> None:
    await given.queued_job(console, tenant=given.OTHER)
    await given.queued_job(console)
    page = await console.visit(Role.VIEWER)
    await expect(page.locator("tbody tr")).to_have_count(1)
    # nothing can be pressed
    await expect(page.locator(".acts button")).to_have_count(0)
    await expect(page.locator("[data-tick]")).to_have_count(0)

    page = await console.visit(Role.SUPER_ADMIN)

    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.fill("[data-tenants]", given.OTHER)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"tenant={given.OTHER}"))
    await expect(page.locator("tbody tr")).to_have_count(1)


async def test_everybody_can_use_it(console: Console) -> None:
    async with console.transaction() as tx:
        for status in ("succeeded", "failed", "dead_letter", "canceled"):
            await given.ended_job(tx, status)
        await given.queued_job(tx)
        await given.running_job(tx)
    await accessible_in_each_look(await console.visit(), dark=WIDE)
