"""Editing a waiting job, and finding jobs by tags and payloads, in a real browser."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

import pytest
from playwright.async_api import Page, expect

from fairlead.actions import bulk_jobs, definitions
from fairlead.model.access import Role
from fairlead.store import job_search, jobs
from tests import given
from tests.console.test_job_page import LETTER, PAYLOAD, live
from tests.console.visiting import NARROW, Console, accessible, submit

pytestmark = pytest.mark.thorough


async def waiting_letter(console: Console, **fields: Any) -> UUID:
    async with console.transaction() as tx:
        await definitions.patch(tx, given.TESTER, "letter", LETTER)
        return await given.queued_job(tx, definition="letter", payload=PAYLOAD, **fields)


async def stored(console: Console, job_id: UUID) -> dict[str, Any]:
    async with console.transaction() as tx:
        job = await given.read_job(tx, job_id)
        payload = await jobs.get_payload(tx, job_id)
    names = ("priority", "scheduled_for", "tags", "status")
    return {"payload": payload} | {name: getattr(job, name) for name in names}


async def test_a_waiting_job_is_edited_after_its_faults_are_mended(console: Console) -> None:
    job_id = await waiting_letter(console, tags=("old",), scheduled_for=datetime(2090, 1, 1, tzinfo=UTC))
    page = await console.visit(Role.OPERATOR, f"/jobs/{job_id}")
    await page.click("#job a:has-text('Edit')")
    await expect(page.locator("h1")).to_have_text("Edit this job")
    await expect(page.locator("#tags")).to_have_value("old")
    await accessible(page)

    await page.fill("[name='payload/to']", "Grace Brewster Murray Hopper")
    await page.fill("[name='payload/token']", "another-token")
    await page.fill("#priority", "soon")
    await page.fill("#tags", "vip, eu")
    await page.click("#content button.primary")
    await expect(page.locator("#priority-fault")).to_have_text("must be an integer")
    await submit(page, "#content button.primary", {"#priority": "7"})
    await expect(page.locator("[id='payload/to-fault']")).to_contain_text("longer than 20 characters")
    await expect(page.locator("#tags")).to_have_value("vip, eu")
    await page.fill("[name='payload/to']", "Grace")
    await page.fill("#scheduled", "2091-07-01T12:30")
    await page.click("#content button.primary")

    await expect(page).to_have_url(re.compile(f"/console/jobs/{job_id}$"))
    await expect(page.locator(".toast")).to_contain_text("Job edited.")
    await expect(page.locator("#payload")).to_contain_text("to: Grace")
    await expect(page.locator("#trail")).to_contain_text("job edited")
    zone = await page.evaluate("new Date('2091-07-01T12:30').toISOString()")
    assert await stored(console, job_id) == {
        "payload": {**PAYLOAD, "to": "Grace", "token": "another-token"},
        "priority": 7,
        "scheduled_for": datetime.fromisoformat(zone).astimezone(UTC),
        "tags": ("vip", "eu"),
        "status": "queued",
    }


async def test_without_a_time_the_job_is_due_now_and_its_secrets_stay(console: Console) -> None:
    job_id = await waiting_letter(console, tags=("old",), scheduled_for=datetime(2090, 1, 1, tzinfo=UTC))
    page = await console.visit(path=f"/jobs/{job_id}/edit")

    await submit(page, "#content button.primary", {"#scheduled": "", "#tags": ""})
    await expect(page.locator(".toast")).to_contain_text("Job edited.")

    kept = await stored(console, job_id)
    assert (kept["payload"], kept["tags"]) == (PAYLOAD, None)
    assert kept["scheduled_for"] < datetime(2090, 1, 1, tzinfo=UTC)


async def test_a_job_that_was_claimed_meanwhile_is_not_edited(console: Console) -> None:
    job_id = await waiting_letter(console)
    page = await console.visit(path=f"/jobs/{job_id}/edit")
    await page.fill("#priority", "3")
    await given.claim(console, job_id)

    await page.click("#content button.primary")

    await expect(page.locator(".empty")).to_contain_text("This job can’t be edited")
    await expect(page.locator(".empty")).to_contain_text(
        "Only queued jobs can be edited. This job is running."
    )
    await accessible(page)


async def test_an_edit_shows_on_an_open_page(console: Console) -> None:
    job_id = await waiting_letter(console)
    page = await console.visit(path=f"/jobs/{job_id}")
    await live(page)

    answer = await console.world.call("PATCH", f"/jobs/{job_id}", json={"tags": ["vip"]})

    assert answer.status_code == 200, answer.text
    await expect(page.locator(".facts .tag")).to_have_text("vip")


async def test_tags_are_links_that_filter(console: Console) -> None:
    async with console.transaction() as tx:
        both = await given.queued_job(tx, tags=("eu", "night ly"))
        one = await given.queued_job(tx, tags=("eu",))
        await given.queued_job(tx)
    page = await console.visit(path=f"/jobs/{both}")

    await page.click(".facts .tag >> text=eu")
    await expect(page.locator("[data-search]")).to_have_value("tag:eu")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await expect(page.locator(f"#job-{one}")).to_be_visible()
    await page.click("tbody .tag >> text=night ly")
    await expect(page.locator("[data-search]")).to_have_value('tag:eu tag:"night ly"')
    await expect(page.locator("tbody tr")).to_have_count(1)
    await accessible(page)
    await page.click(".chip:has-text('tag: eu')")
    await expect(page.locator("[data-search]")).to_have_value('tag:"night ly"')
    await expect(page.locator(f"#job-{both}")).to_be_visible()


async def test_all_that_a_payload_finds_are_canceled_also_by_a_search_of_several_requests(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_LOOK", "FIRST_LARGE_LOOK", "MOST_LOOK", "MOST_WAITING"):
        monkeypatch.setattr(job_search, name, 2)
    monkeypatch.setattr(bulk_jobs, "SEARCH_SECONDS", 0)
    async with console.transaction() as tx:
        found = [
            await given.queued_job(tx, definition="anything", payload={"order": {"id": 7}, "n": n})
            for n in range(3)
        ]
        for _ in range(6):
            await given.queued_job(tx, definition="anything", payload={"order": {"id": 8}})
    search = 'payload:{"order": {"id": 7}}'
    page = await console.visit(path=f"/jobs?q={quote_plus(search)}", width=NARROW)
    await expect(page.locator("tbody tr")).to_have_count(3)
    await expect(page.locator(".chip").first).to_contain_text('payload: {"order": {"id": 7}}')

    await page.click("text=All matching")
    await page.click("[data-matching=cancel]")
    await expect(page.locator("#confirm h2")).to_contain_text("jobs in acme")
    await page.click("#confirm [data-yes]")

    await expect(page.locator(".toast")).to_contain_text("Canceled: 3.")
    for job_id in found:
        assert (await stored(console, job_id))["status"] == "canceled"


# The search of the jobs page, in a real browser


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
    monkeypatch.setattr(job_search, "FIRST_LARGE_LOOK", 2)
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
    dead = await given.ended_job(console, "dead_letter")
    page = await console.visit()

    await search(page, "status:failed definition:greet")
    await page.click("text=Show dead letters")

    await expect(page.locator("[data-search]")).to_have_value("definition:greet status:dead_letter")
    await expect(page.locator(f"#job-{dead}")).to_be_visible()
    await page.click(f"#job-{dead} td a.mono")
    await expect(page.locator("#job")).to_be_visible()
