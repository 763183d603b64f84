"""The home page, in a real browser: one verdict, the problems, and links to what to do."""

import pytest
from playwright.async_api import expect

from fairlead.actions import error_groups, gates
from fairlead.model.access import Role
from fairlead.model.finding import Finding, Verdict
from fairlead.store import checks
from tests import given
from tests.console.visiting import Console, accessible_in_each_look

pytestmark = pytest.mark.thorough

FINDINGS = [
    Finding(
        "unfolded_counts", Verdict.WARN, "1200 rows of counts should have been folded", advice="Run a worker."
    ),
    Finding("duties", Verdict.OK, "the regular duties are done", advice=""),
]


async def fill(console: Console) -> None:
    """Jobs that no worker serves, a new error, a silent worker, a paused definition, jobs that ended."""
    async with console.transaction() as tx:
        await given.two_workers(tx, definitions=("anything",))
        await given.run_checks_now(tx)
        await checks.store_findings(tx, FINDINGS)
        for _ in range(3):
            await given.queued_job(tx)
            await given.ended_job(tx, "succeeded")
        await given.failed_job(tx, "no answer in 30 s")
        await error_groups.fold_failures(tx)
        await given.ended_job(tx, "succeeded", tenant=given.OTHER)
        await gates.pause(tx, given.TESTER, definition="anything", note="new disk")


async def test_problems_stand_below_the_verdict_the_worst_first(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.SUPER_ADMIN, "/overview")

    await expect(page.locator(".verdict.fail h2")).to_have_text("1 problem, 4 warnings")
    await expect(page.locator(".problem h3")).to_have_text(
        [
            "Problem: No worker serves greet",
            "Warning: Check unfolded counts: 1200 rows of counts should have been folded",
            "Warning: Definition anything is paused: no new jobs start",
            "Warning: New error in greet",
            "Warning: Worker web-2 is not responding",
        ]
    )
    first = page.locator(".problem").first
    await expect(first.locator(".figure")).to_have_text("3 queued jobs")
    await expect(first).to_contain_text("acme")
    await expect(page.locator(".verdict")).to_contain_text("1 worker online, 3 of 10 slots in use")
    await expect(page.locator("section[aria-label=Busiest] td.name")).to_have_text(["acme", "umbrella"])
    await expect(page.locator("section[aria-label='Slowest definitions'] td.name")).to_have_text(["greet"])
    await expect(page.locator("details.checks summary")).to_contain_text("2 of 3 ok")
    await accessible_in_each_look(page, whole=True)

    # each leads to a page that exists
    links = await page.locator(".problem a.button").evaluate_all("all => all.map(one => one.href)")
    assert len(links) == 5
    for url in links:
        assert (await page.request.get(url)).status == 200, url
    await first.locator("a.button").click()
    await expect(page.locator("table.jobs tbody tr")).to_have_count(3)
    assert "tenant=acme" in page.url


async def test_a_tenant_sees_its_own_part(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.OPERATOR, "/overview", tenant=given.OTHER)

    await expect(page.locator(".problem h3")).to_have_text(
        ["Warning: Definition anything is paused: no new jobs start"]
    )
    await expect(page.locator(".verdict")).not_to_contain_text("worker")
    await expect(page.locator("section[aria-label=Busiest] td.name")).to_have_text(["greet"])
    text = await page.locator("main").inner_text()
    for name in (given.TENANT, "web-1", "web-2"):
        assert name not in text


async def test_the_first_page_says_that_everything_is_fine_and_follows_what_happens(console: Console) -> None:
    page = await console.visit(Role.VIEWER, "/")
    await expect(page).to_have_url(f"{console.url}/console/overview")
    await expect(page.locator("[data-live-state=live]")).to_be_visible()
    await expect(page.locator(".verdict.ok h2")).to_have_text("Everything is fine")
    await expect(page.locator(".problem")).to_have_count(0)
    await expect(page.locator("nav a[aria-current=page]")).to_have_text("Overview")
    await expect(page.locator("details.checks")).to_have_count(0)
    await accessible_in_each_look(page)

    await console.world.call("POST", "/jobs", json={"definition_key": "greet", "payload": {"name": "Ada"}})

    await expect(page.locator(".verdict.fail h2")).to_have_text("1 problem")
    await expect(page.locator(".problem h3")).to_have_text("Problem: No worker is running")
