"""The pages about workers and about the system, in a real browser."""

from typing import Any

import pytest
from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import Console, accessible, accessible_in_each_look, submit

pytestmark = pytest.mark.thorough


async def test_silent_workers_are_warned_of(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/workers")
    await expect(page.locator("text=No workers")).to_be_visible()
    await given.two_workers(console)

    await page.reload()

    await expect(page.locator(".banner")).to_contain_text(
        "1 worker has not been seen for more than 1 min: web-2"
    )
    first, second = page.locator("tbody tr").nth(0), page.locator("tbody tr").nth(1)
    await expect(first).to_contain_text("online")
    await expect(first).to_contain_text("3 / 10")
    await expect(first).to_contain_text("other version")
    await expect(first.locator("code")).to_have_text(["greet", "anything"])
    await expect(second.locator(".status.stale")).to_have_text("not responding")
    await expect(page.locator(".levels")).to_contain_text("3 / 10")
    await accessible_in_each_look(page)


async def test_workers_over_http_have_names_and_labels_are_shown(console: Console) -> None:
    over_http = {"hostname": "", "metadata": {"transport": "http"}}
    await given.add_worker(console, "boxes:one", seen=-given.HOUR, version="2.7", **over_http)
    page = await console.visit(Role.SUPER_ADMIN, "/workers")

    await expect(page.locator(".banner")).to_contain_text("for more than 1 min: boxes:one.")
    await expect(page.locator("tbody tr")).to_contain_text("2.7 HTTP")
    await expect(page.locator("tbody tr")).not_to_contain_text("other version")

    await given.add_worker(console, "web-3:7:abc", labels={"gpu": "true"}, concurrency=8)
    await page.reload()
    await expect(page.locator("td.host code")).to_have_text("gpu=true")
    await page.click("text=web-3:7:abc")
    await expect(page.locator(".facts code").first).to_have_text("gpu=true")


async def test_the_gate_closes_with_a_note_and_every_page_says_so(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/system")
    await expect(page.locator("text=is current")).to_be_visible()
    await submit(page, "#pause-form button", {"#pause-form input": "moving house"})
    await page.click("#confirm button[value=no]")
    await expect(page.locator("#gate .status")).to_have_text("On")
    await page.click("#pause-form button")
    await page.click("#confirm [data-yes]")

    await expect(page.locator(".toast")).to_contain_text("Paused: no new jobs start.")
    await expect(page.locator("#gate .status")).to_have_text("Paused")
    await expect(page.locator("#gate")).to_contain_text("super_admin.acme@fairlead.test")
    await page.click("text=Run checks")
    await expect(page.locator("#findings li").first).to_be_visible()
    await accessible_in_each_look(page)
    for path in ("/jobs", "/definitions", "/errors"):
        assert "moving house" in (await console.read(Role.VIEWER, path)).text, path
    viewer = await console.visit(Role.VIEWER, "/jobs")
    await expect(viewer.locator(".banner")).to_contain_text("no new jobs start. “moving house”")
    await expect(viewer.locator(".banner a")).to_have_count(0)

    await page.click("#gate >> text=Resume")
    await expect(page.locator(".toast")).to_contain_text("Processing on")
    await expect(page.locator(".banner")).to_have_count(0)
    await viewer.reload()
    await expect(viewer.locator(".banner")).to_have_count(0)


async def test_the_doctor_looks_when_asked(console: Console) -> None:
    async with console.transaction() as tx:
        await given.queued_job(tx)
        await given.set_counts(tx, queued=2)
    page = await console.visit(Role.SUPER_ADMIN, "/system")

    await page.click("text=Run checks")

    found = page.locator("#findings li", has_text="consistency")
    await expect(found).to_contain_text("counts of queued say 2 where there are 1")
    await expect(found.locator(".status")).to_have_text("fail")
    await expect(page.locator("#findings li", has_text="rights").locator(".status")).to_have_text("ok")
    await given.set_counts(console, queued=1)


async def test_a_worker_has_a_page_and_is_drained_there(console: Console) -> None:
    await given.two_workers(console)
    async with console.transaction() as tx:
        job = (await given.claim(tx, await given.queued_job(tx), worker="web-1:7:abc")).job_id
    page = await console.visit(Role.SUPER_ADMIN, "/workers")

    await page.click("text=web-1:7:abc")
    await expect(page.locator("h1")).to_contain_text("web-1:7:abc")
    await expect(page.locator("section[aria-label=Facts]")).to_contain_text("1 of 10 running")
    await expect(page.locator("section[aria-label=Serves] code")).to_have_text(["greet", "anything"])
    await expect(page.locator("tbody tr")).to_contain_text(str(job)[-8:])
    await page.click("#acts >> text=Drain")
    await page.click("#confirm [data-yes]")
    await expect(page.locator(".toast")).to_contain_text("claims no more jobs")
    await expect(page.locator(".banner")).to_contain_text("and 1 still runs")
    await accessible(page)

    await page.click("#acts >> text=Resume")
    await expect(page.locator(".banner")).to_have_count(0)
    await page.goto("/console/workers/nobody")
    await expect(page.locator("h1")).to_have_text("Not found")


async def test_a_worker_that_is_recycled_shows_its_limits_and_that_it_is_being_replaced(
    console: Console,
) -> None:
    recycling: dict[str, Any] = {
        "jobs": 900,
        "max_jobs": 1000,
        "rss": 209715200,
        "max_rss": 536870912,
        "reason": None,
    }
    await given.two_workers(console)
    await given.set_worker(console, "web-1:7:abc", metadata={"recycling": recycling})

    page = await console.visit(Role.SUPER_ADMIN, "/workers/web-1:7:abc")
    await expect(page.locator(".facts")).to_contain_text("900 of 1,000 jobs, 200 of 512 MB")
    await expect(page.locator("#worker .status")).to_have_text("online")
    recycling |= {"jobs": 1000, "reason": "max_jobs"}
    await given.set_worker(console, "web-1:7:abc", metadata={"recycling": recycling})
    await page.reload()
    await expect(page.locator("#worker .status")).to_have_text("being replaced")
    await page.goto("/console/workers")
    await expect(page.locator("tbody tr").nth(0)).to_contain_text("being replaced")
