"""Editing a waiting job, and finding jobs by tags and payloads, in a real browser."""

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

import pytest
from playwright.async_api import expect

from fairlead.actions import bulk_jobs, definitions
from fairlead.model.access import Role
from fairlead.store import job_search, queue
from tests import given
from tests.console.test_job_page import LETTER, PAYLOAD, live
from tests.console.visiting import NARROW, Console, accessible


async def waiting_letter(console: Console, **fields: Any) -> UUID:
    async with console.transaction() as tx:
        await definitions.patch(tx, given.TESTER, "letter", LETTER)
        return await given.queued_job(tx, definition="letter", payload=PAYLOAD, **fields)


async def stored(console: Console, job_id: UUID) -> dict[str, Any]:
    async with console.transaction() as tx:
        [row] = await tx.values(
            "select payload, priority, scheduled_for, tags, status from fairlead.jobs where id = %s", [job_id]
        )
    return dict(zip(("payload", "priority", "scheduled_for", "tags", "status"), row, strict=True))


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
    await page.fill("#priority", "7")
    await page.click("#content button.primary")
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
        "tags": ["vip", "eu"],
        "status": "queued",
    }


async def test_without_a_time_the_job_is_due_now_and_its_secrets_stay(console: Console) -> None:
    job_id = await waiting_letter(console, tags=("old",), scheduled_for=datetime(2090, 1, 1, tzinfo=UTC))
    page = await console.visit(path=f"/jobs/{job_id}/edit")

    await page.fill("#scheduled", "")
    await page.fill("#tags", "")
    await page.click("#content button.primary")
    await expect(page.locator(".toast")).to_contain_text("Job edited.")

    kept = await stored(console, job_id)
    assert (kept["payload"], kept["tags"]) == (PAYLOAD, None)
    assert kept["scheduled_for"] < datetime(2090, 1, 1, tzinfo=UTC)


async def test_a_job_that_was_claimed_meanwhile_is_not_edited(console: Console) -> None:
    job_id = await waiting_letter(console)
    page = await console.visit(path=f"/jobs/{job_id}/edit")
    await page.fill("#priority", "3")
    async with console.transaction() as tx:
        await tx.run("update fairlead.ready set priority = %s where job_id = %s", [given.FIRST, job_id])
        await tx.run("update fairlead.job_records set priority = %s where id = %s", [given.FIRST, job_id])
        await queue.claim(tx, worker="worker", wanted=1, lease_seconds=600)

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
    for name in ("FIRST_LOOK", "MOST_LOOK", "MOST_WAITING"):
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


async def test_a_search_that_is_not_json_says_what_to_write(console: Console) -> None:
    page = await console.visit(path=f"/jobs?q={quote_plus('payload:{order')}")

    await expect(page.locator(".fault")).to_contain_text("is not JSON. Write payload:")
