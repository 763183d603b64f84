"""The log on the page of a job, in a real browser."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from playwright.async_api import Request, Route, expect

from fairlead.actions import definitions
from fairlead.model.access import Role
from tests import given
from tests.acceptance.fleet import Fleet
from tests.console.test_job_page import LETTER, PAYLOAD, SECRET
from tests.console.visiting import Console, accessible, accessible_in_each_look

pytestmark = pytest.mark.thorough


async def test_a_function_is_followed_while_it_runs(
    console: Console, database_url: str, tmp_path: Path
) -> None:
    with Fleet(database_url, tmp_path) as fleet, fleet.worker():
        job_id = await asyncio.to_thread(fleet.hold, "logs_and_waits")
        page = await console.visit(Role.VIEWER, f"/jobs/{job_id}")
        lines = page.locator("[data-lines] .line")
        await expect(lines).to_have_count(1)
        await expect(lines).to_contain_text("first")
        await expect(page.locator("h1 .status")).to_have_text("running")
        answer = await page.request.get(f"/api/v1/jobs/{job_id}/logs")
        assert [item["text"].split()[2] for item in (await answer.json())["items"]] == ["first"]

        fleet.let_go(job_id)
        await expect(lines).to_have_count(2)
        await expect(lines.last).to_contain_text("last")
        await expect(page.locator("h1 .status")).to_have_text("succeeded")


async def long_log(console: Console, lines: int) -> UUID:
    """A job with a line of 1,000 characters in each chunk; each hundredth has a needle."""
    chunks = [f"line {number}{'.' * 1000}\n" for number in range(1, lines + 1)]
    chunks[99::100] = [chunk.replace("\n", " needle\n") for chunk in chunks[99::100]]
    async with console.transaction() as tx:
        job_id = await given.ended_job(tx, "succeeded")
        await given.write_log(tx, job_id, *chunks)
    return job_id


async def test_the_search_covers_the_whole_log_and_loads_the_part_around_a_match(console: Console) -> None:
    job_id = await long_log(console, 900)
    page = await console.visit(Role.VIEWER, f"/jobs/{job_id}")
    lines, found, here = page.locator(".line"), page.locator("[data-found]"), page.locator("mark.here")
    await expect(lines.last).to_contain_text("line 900.")
    assert await lines.count() < 200

    await page.fill("[data-find]", "NEEDLE")
    await expect(found).to_have_text("9 found")
    await page.press("[data-find]", "Enter")
    await expect(found).to_have_text("8 of 9")
    await page.press("[data-find]", "Enter")
    await expect(found).to_have_text("9 of 9")
    await page.press("[data-find]", "Enter")
    await expect(found).to_have_text("1 of 9")
    await expect(here).to_be_in_viewport()
    await expect(page.locator(".line:has(mark.here)")).to_contain_text("line 100.")
    await expect(page.locator("[data-later]")).to_be_visible()
    await page.click("[data-step='1']")
    await expect(page.locator(".line:has(mark.here)")).to_contain_text("line 200.")
    await page.click("[data-step='-1']")
    await page.click("[data-step='-1']")
    await expect(found).to_have_text("9 of 9")
    await expect(page.locator(".line:has(mark.here)")).to_contain_text("line 900.")
    await accessible(page)
    await page.fill("[data-find]", "no such text")
    await expect(found).to_have_text("0 found")
    await expect(page.locator("[data-step='1']")).to_be_disabled()


async def test_of_two_quick_steps_the_last_is_shown(console: Console) -> None:
    job_id = await long_log(console, 900)
    page = await console.visit(Role.VIEWER, f"/jobs/{job_id}")
    await page.fill("[data-find]", "needle")
    await expect(page.locator("[data-found]")).to_have_text("9 found")
    first, released, ended = "around=1.100", asyncio.Event(), asyncio.Event()

    async def answer_late(route: Route) -> None:
        await released.wait()
        await route.continue_()

    def end(request: Request) -> None:
        if first in request.url:
            ended.set()

    await page.route(f"**/log?*{first}*", answer_late)
    page.on("requestfinished", end)
    page.on("requestfailed", end)
    for place in (8, 9, 1, 2):
        await page.press("[data-find]", "Enter")
        if place != 1:
            await expect(page.locator("[data-found]")).to_have_text(f"{place} of 9")
    shown = page.locator(".line:has(mark.here)")
    await expect(shown).to_contain_text("line 200.")
    released.set()
    await ended.wait()

    await page.evaluate("new Promise(requestAnimationFrame)")
    await expect(shown).to_contain_text("line 200.")
    await expect(page.locator("[data-found]")).to_have_text("2 of 9")
    for name in ("requestfinished", "requestfailed"):
        page.remove_listener(name, end)


async def test_a_search_does_not_tell_of_secrets(console: Console) -> None:
    async with console.transaction() as tx:
        await definitions.patch(tx, given.TESTER, "letter", LETTER)
        job_id = await given.ended_job(tx, "succeeded", definition="letter", payload=PAYLOAD)
        await given.write_log(tx, job_id, f"sent with {SECRET}\n")
    page = await console.visit(Role.VIEWER, f"/jobs/{job_id}")
    await expect(page.locator(".line")).to_have_text("sent with [redacted]")

    await page.fill("[data-find]", SECRET[:8])
    await expect(page.locator("[data-found]")).to_have_text("0 found")


COLOURED = (
    "".join(f"\x1b[{code}mcolour {code}\x1b[0m\n" for code in (*range(30, 38), *range(90, 98)))
    + "\x1b[1mbold\x1b[22m \x1b[4munderlined\x1b[24m \x1b[38;5;9mof 256\x1b[38;2;1;2;3mtrue\x1b[39m\n"
    + "\x1b]0;title\x07\x1b[2Kplain \x1b[48;5;1mbackground\x1b[0m\n"
    + "\x1b[32mgreen over\ntwo lines\x1b[0m\n"
)


async def test_the_colours_of_a_command_are_shown(console: Console) -> None:
    async with console.transaction() as tx:
        job_id = await given.ended_job(tx, "succeeded")
        cut = COLOURED.index("[32mgreen")
        await given.write_log(tx, job_id, COLOURED[:cut], COLOURED[cut:])
    page = await console.visit(Role.VIEWER, f"/jobs/{job_id}")
    lines = page.locator(".line")

    await expect(lines).to_have_count(20)
    await expect(lines.nth(1).locator("span.ansi-1")).to_have_text("colour 31")
    await expect(lines.nth(8).locator("span.ansi-8")).to_have_text("colour 90")
    await expect(lines.nth(16)).to_have_text("bold underlined of 256true")
    await expect(lines.nth(16).locator(".ansi-bold")).to_have_text("bold")
    await expect(lines.nth(16).locator(".ansi-underline")).to_have_text("underlined")
    await expect(lines.nth(16).locator(".ansi-9")).to_have_text("of 256")
    await expect(lines.nth(17)).to_have_text("plain background")
    await expect(lines.nth(17).locator("span")).to_have_count(0)
    await expect(lines.nth(18).locator(".ansi-2")).to_have_text("green over")
    await expect(lines.nth(19).locator(".ansi-2")).to_have_text("two lines")
    await accessible_in_each_look(page)
    await page.fill("[data-find]", "derlined of")
    await expect(page.locator("[data-found]")).to_have_text("1 found")
    await expect(page.locator("mark")).to_have_text("derlined of")
    await accessible_in_each_look(page)
