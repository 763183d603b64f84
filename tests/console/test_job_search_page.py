"""The search of the jobs page, in a real browser."""

from datetime import UTC, datetime, timedelta
from urllib.parse import quote_plus

import pytest
from playwright.async_api import Page, expect

from fairlead.store import job_search
from tests import given
from tests.console.visiting import Console, accessible


async def search(page: Page, text: str) -> None:
    await page.fill("[data-search]", text)
    await page.keyboard.press("Enter")


async def test_words_are_completed_by_keys(console: Console) -> None:
    async with console.transaction() as tx:
        failed = await given.ended_job(tx, "failed")
        await given.queued_job(tx)
    page = await console.visit()
    offered = page.locator("#suggestions li")

    await page.click("[data-search]")
    await expect(offered.first).to_contain_text("status:")
    await accessible(page)
    await page.keyboard.type("sta")
    await expect(offered).to_have_count(1)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-search]")).to_have_value("status:")
    await page.keyboard.type("fai")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Tab")
    await expect(page.locator("[data-search]")).to_have_value("status:failed ")
    await page.keyboard.press("Enter")

    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator(f"#job-{failed}")).to_be_visible()
    await expect(page.locator("[data-found]")).to_have_text("1 job, newest first")


async def test_filters_are_removed_one_by_one_and_a_list_of_values_writes_into_the_search(
    console: Console,
) -> None:
    async with console.transaction() as tx:
        await given.ended_job(tx, "failed")
        await given.ended_job(tx, "failed", definition="anything")
        wanted = await given.queued_job(tx, definition="anything")
    page = await console.visit(path=f"/jobs?q={quote_plus('status:failed definition:greet')}")
    await expect(page.locator("tbody tr")).to_have_count(1)

    await page.click(".chip:has-text('definition')")
    await expect(page.locator("[data-search]")).to_have_value("status:failed")
    await expect(page.locator("tbody tr")).to_have_count(2)

    await page.click("text=Clear all")
    await expect(page.locator("[data-search]")).to_have_value("")
    await expect(page.locator("tbody tr")).to_have_count(3)

    # a job is found by the id that is shown
    await search(page, await page.inner_text(f"#job-{wanted} td a.mono"))
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator(f"#job-{wanted}")).to_be_visible()

    await page.goto(f"/console/jobs?q={quote_plus('definition:anything status:queued')}")
    await page.select_option("[data-qualifier=status]", "failed")
    await expect(page.locator("[data-search]")).to_have_value("definition:anything status:failed")
    await expect(page.locator("tbody .status.failed")).to_have_count(1)


async def test_a_search_goes_on_until_all_jobs_were_searched(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_search, "FIRST_LOOK", 2)
    monkeypatch.setattr(job_search, "MOST_LOOK", 2)
    monkeypatch.setattr("fairlead.server.console.pages.jobs.FIRST_SECONDS", 0)
    monkeypatch.setattr("fairlead.server.console.pages.jobs.FURTHER_SECONDS", 0)
    async with console.transaction() as tx:
        wanted = await given.queued_job(tx, payload={"name": "Grace"})
        for _ in range(11):
            await given.queued_job(tx)
    page = await console.visit()

    await search(page, "payload.name:Grace")

    await expect(page.locator(f"#job-{wanted}")).to_be_visible()
    await expect(page.locator("#further")).to_contain_text("All jobs were searched.")
    await expect(page.locator("[data-found]")).to_have_text("1 job found")
    await search(page, "payload.name:Nobody")
    await expect(page.locator("[data-nothing]")).to_have_text("Nothing here fits the search and the filters.")


async def test_scheduled_jobs_say_when_they_are_due_and_an_unknown_qualifier_is_named(
    console: Console,
) -> None:
    later = datetime.now(UTC) + timedelta(hours=5, minutes=30)
    async with console.transaction() as tx:
        scheduled = await given.queued_job(tx, scheduled_for=later)
        await given.queued_job(tx)
    page = await console.visit()
    await expect(page.locator(f"#job-{scheduled} .status")).to_have_text("scheduled")
    await expect(page.locator(f"#job-{scheduled} .due")).to_contain_text("due in 5 h")

    await search(page, "status:scheduled")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await search(page, "status:ready")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("tbody .status")).to_have_text("queued")

    # an unknown qualifier is named
    await search(page, "colour:red")
    await expect(page.locator(".fault")).to_contain_text("There is no qualifier colour: in this search.")
    await expect(page.locator("text=All matching")).to_have_count(0)
    await expect(page.locator("tbody tr")).to_have_count(0)


async def test_a_search_for_failed_jobs_offers_the_dead_letters(console: Console) -> None:
    async with console.transaction() as tx:
        dead = await given.ended_job(tx, "dead_letter")
    page = await console.visit()

    await search(page, "status:failed definition:greet")
    await page.click("text=Show dead letters")

    await expect(page.locator("[data-search]")).to_have_value("definition:greet status:dead_letter")
    await expect(page.locator(f"#job-{dead}")).to_be_visible()
    await page.click(f"#job-{dead} td a.mono")
    await expect(page.locator("#job")).to_be_visible()
