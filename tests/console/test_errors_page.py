"""Errors in groups, in a real browser."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from playwright.async_api import Page, expect

from fairlead.actions import bulk_jobs, error_groups
from fairlead.model.access import Role
from tests import given
from tests.console.visiting import WIDE, Console, accessible_in_each_look, submit

pytestmark = pytest.mark.thorough


async def fold(console: Console) -> None:
    async with console.transaction() as tx:
        while await error_groups.fold_failures(tx):
            pass


async def fail(
    console: Console, error: str, *, tenant: str = given.TENANT, status: str = "dead_letter"
) -> UUID:
    return await given.failed_job(console, error, status=status, tenant=tenant)


async def fill(console: Console) -> None:
    """Three that could not connect, one that timed out, one that failed for good; and another tenant's."""
    for number in range(3):
        await fail(console, f"ConnectionError: port {number}")
    await fail(console, "TimeoutError: <b>slow</b>")
    await fail(console, "ValueError: no such order", status="failed")
    await fail(console, "ConnectionError: port 9", tenant=given.OTHER)
    await fold(console)


async def statuses(console: Console, tenant: str = given.TENANT) -> list[str]:
    answer = await console.world.call("GET", "/jobs", tenant=tenant)
    return sorted(one["status"] for one in answer.json()["items"])


async def act(page: Page, button: str, confirm: str) -> None:
    await page.locator(button).click()
    await page.locator("#batch [data-go]", has_text=confirm).click()
    await expect(page.locator("#batch")).to_be_hidden()


async def test_all_jobs_of_an_error_are_retried_with_one_click_and_a_confirmation(console: Console) -> None:
    page = await console.visit(Role.OPERATOR, "/errors")
    await expect(page.locator("text=No open errors")).to_be_visible()
    await fill(console)
    await page.reload()

    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(3)
    row = rows.filter(has_text="ConnectionError: port <n>")
    await expect(row.locator(".num")).to_have_text("3")
    await expect(row.locator(".badge")).to_have_text("New")
    await expect(row.locator("svg.trend")).to_have_attribute("aria-label", "3 failures in the last 24h")
    await expect(rows.filter(has_text="TimeoutError: <b>slow</b>")).to_have_count(1)

    await row.locator("text=Retry 3 jobs").click()
    await expect(page.locator("#batch")).to_contain_text(
        "Jobs of greet in tenant acme that failed with “ConnectionError: port <n>”"
    )
    await accessible_in_each_look(page, dark=WIDE)
    await page.locator("#batch [data-go]").click()
    await expect(page.locator(".toast")).to_contain_text("Queued again: 3.")
    await expect(rows).to_have_count(2)
    assert (await statuses(console)).count("queued") == 3
    await page.click(".toast >> text=Show jobs")
    await expect(page).to_have_url(re.compile(r"/console/jobs\?definition=greet$"))
    # the other tenant's were not touched
    assert await statuses(console, given.OTHER) == ["dead_letter"]


async def test_a_number_leads_to_exactly_these_jobs(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.VIEWER, "/errors?status=dead_letter")
    row = page.locator("tbody tr", has_text="ConnectionError")
    await row.locator(".num a").click()
    await expect(page.locator("#members tbody tr")).to_have_count(3)
    await expect(page.locator("#members")).to_contain_text("ConnectionError: port 2")
    await expect(page.locator("#members")).not_to_contain_text("TimeoutError")
    await expect(page.locator(".sample")).to_contain_text("ConnectionError: port")
    await accessible_in_each_look(page, dark=WIDE)
    await page.locator("#members tbody a").first.click()
    await expect(page).to_have_url(re.compile(r"/console/jobs/"))


async def test_the_page_of_a_job_leads_to_the_others_with_its_error(console: Console) -> None:
    one, other = [await fail(console, f"ConnectionError: port {number}") for number in range(2)]
    await fold(console)
    page = await console.visit(Role.VIEWER, f"/jobs/{one}")

    await page.click("text=All jobs with this error")

    await expect(page).to_have_url(re.compile("/errors/"))
    await expect(page.locator(f"a[href*='{one}']").first).to_be_visible()
    await expect(page.locator(f"a[href*='{other}']").first).to_be_visible()


async def test_what_failed_since_a_time_is_retried_and_the_rest_discarded(console: Console) -> None:
    old = await fail(console, "E: 1")
    await fail(console, "E: 2")
    await given.set_attempt(console, old, finished_at=datetime.now(UTC) - timedelta(hours=30))
    await fold(console)
    page = await console.visit(Role.OPERATOR, "/errors")
    await page.click("tbody .error-pattern")
    await page.click("text=Last 24 hours")
    await expect(page.locator("#members tbody tr")).to_have_count(1)
    await act(page, "#members button:has-text('Retry 1 job')", "Retry 1 job")
    await expect(page.locator("#members")).to_contain_text(
        re.compile(
            r"No job that failed with this error since [-\d]+ [:\d]+ UTC is left here\. Retried jobs come back"
        )
    )
    await expect(page.locator("#members >> text=Show the jobs of greet")).to_have_attribute(
        "href", "/console/jobs?definition=greet"
    )
    await page.click("text=Any time")
    await expect(page.locator("#members tbody tr")).to_have_count(1)
    await act(page, "#members button:has-text('Discard 1 job')", "Discard 1 job")
    await expect(page.locator("#members")).to_contain_text("No job has this error now")
    await expect(page.locator("#group .facts")).to_contain_text("Discarded")
    assert await statuses(console) == ["dead_letter", "queued"]


async def test_a_large_group_is_retried_in_batches_and_what_is_left_has_a_reason(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_jobs, "BATCH", 2)
    held, *_ = [await fail(console, "E: x") for _ in range(5)]
    async with console.transaction() as tx:
        await given.set_job(tx, held, dedupe_key="k")
        await given.queued_job(tx, dedupe_key="k")
    await fold(console)
    page = await console.visit(Role.OPERATOR, "/errors")
    await act(page, "tbody button", "Retry 5 jobs")
    await expect(page.locator(".toast")).to_contain_text(
        "Queued again: 4. Left as they are: 1 (another active job has the same dedupe key)."
    )


async def test_a_muted_error_leaves_the_list_and_comes_back(console: Console) -> None:
    await fail(console, "E: x")
    await fold(console)
    page = await console.visit(Role.OPERATOR, "/errors")
    await page.click("tbody .error-pattern")
    await page.click("text=Mute")
    await accessible_in_each_look(page, dark=WIDE)
    await page.select_option("#mute select", "change")
    await submit(page, "#mute [type=submit]", {"#mute input": "ticket 7"})
    await expect(page.locator(".badge")).to_have_text("Muted until the definition changes")
    await expect(page.locator("#group")).to_contain_text("ticket 7")
    await page.goto("/console/errors")
    await expect(page.locator("text=No open errors")).to_be_visible()
    await page.click("text=Muted")
    await page.click("tbody .error-pattern")
    await page.click("text=Unmute")
    await expect(page.locator(".badge")).to_have_text("New")


async def test_a_super_admin_sees_the_errors_of_all_tenants(console: Console) -> None:
    await fill(console)
    admin = await console.visit(Role.SUPER_ADMIN, "/dead-letters?status=dead_letter")
    await expect(admin).to_have_url(re.compile(r"/console/errors\?status=dead_letter"))
    await admin.goto("/console/errors?sort=jobs")
    await expect(admin.locator("tbody tr")).to_have_count(4)
    await expect(admin.locator("tbody tr").first).to_contain_text("acme")
    await accessible_in_each_look(admin, dark=WIDE)
    group = (await admin.locator("tbody tr").first.get_attribute("id") or "").removeprefix("group-")
    await admin.goto(f"/console/errors?tenant={given.OTHER}&q=port&range=7d&seen=24h&definition=greet")
    await expect(admin.locator("tbody tr .num")).to_have_text("1")
    await admin.goto(f"/console/errors/{group}?since=never&cursor=x_y")
    await expect(admin.locator(".fault")).to_contain_text("is not a time")
