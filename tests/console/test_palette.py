"""The palette: to go anywhere with the keyboard."""

import asyncio
import re

import pytest
from playwright.async_api import Page, Route, expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import NARROW, Console, accessible_in_each_look

pytestmark = pytest.mark.thorough


async def _open(page: Page) -> None:
    await page.wait_for_load_state()  # a page has its address before its scripts
    await page.keyboard.press("Control+k")
    await expect(page.locator(".palette input")).to_be_focused()


async def test_the_keyboard_leads_to_pages_and_things(console: Console) -> None:
    trigger = await given.trigger(console, label="Nightly report")
    page = await console.visit()

    await _open(page)
    await page.keyboard.type("nightly")
    option = page.locator("[role=option]", has_text="Nightly report")
    await expect(option).to_have_attribute("aria-selected", "true")
    chosen = await page.locator(".palette input").get_attribute("aria-activedescendant")
    assert chosen == await option.get_attribute("id")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"/triggers/{trigger.id}$"))

    await _open(page)
    await page.keyboard.type("hosts")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("/hosts$"))
    await _open(page)
    await page.keyboard.press("Escape")
    await expect(page.locator(".palette")).not_to_be_visible()
    await _open(page)
    await page.keyboard.type("switch theme")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_enter_waits_for_the_entries_that_are_on_their_way(console: Console) -> None:
    trigger = await given.trigger(console, label="Nightly report")
    page = await console.visit()
    requested, released = asyncio.Event(), asyncio.Event()

    async def answer_late(route: Route) -> None:
        requested.set()
        await released.wait()
        await route.continue_()

    await page.route("**/console/palette*", answer_late)
    await page.evaluate("window.setTimeout = () => 0")  # the palette waits for some seconds only
    await _open(page)
    await requested.wait()
    await page.keyboard.type("nightly")
    await page.keyboard.press("Enter")
    released.set()
    await expect(page).to_have_url(re.compile(f"/triggers/{trigger.id}$"))


async def test_a_pasted_id_finds_its_job(console: Console) -> None:
    job_id = await given.queued_job(console)
    page = await console.visit(Role.VIEWER, "/audit")

    for text in (str(job_id), str(job_id)[-8:]):
        await _open(page)
        await page.keyboard.insert_text(text)
        await expect(page.locator("[role=option]").first).to_contain_text(f"Find job {text}")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(f"/jobs\\?q={text}$"))


async def test_it_offers_only_what_the_visitor_may_see(console: Console) -> None:
    await given.trigger(console, label="Theirs", tenant=given.OTHER)
    page = await console.visit(Role.VIEWER)
    items = (await (await page.request.get("/console/palette")).json())["items"]
    assert {one["group"] for one in items} == {"Definition", "Host"}

    await _open(page)
    await page.keyboard.type("enqueue")
    await expect(page.locator("[role=option]")).to_have_count(1)  # the search of jobs
    page = await console.visit(Role.SUPER_ADMIN, f"/jobs?tenant={given.OTHER}")
    await _open(page)
    await page.keyboard.type("theirs")
    await expect(page.locator("[role=option]").first).to_contain_text("Theirs")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"/triggers/.*tenant={given.OTHER}"))
    await page.goto("/console/jobs")
    await _open(page)
    await page.keyboard.type(f"tenant {given.OTHER}")
    await expect(page.locator("[role=option]").first).to_have_text(f"{given.OTHER}Tenant")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"/tenants/{given.OTHER}"))


async def test_everybody_can_use_it(console: Console) -> None:
    page = await console.visit(width=NARROW)
    await page.click("[data-palette]")
    await expect(page.locator("[role=option]").first).to_be_visible()
    await accessible_in_each_look(page, shot="palette")
