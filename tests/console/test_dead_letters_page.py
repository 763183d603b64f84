"""Dead letters by kind of error, in a real browser."""

import re

import pytest
from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import NARROW, WIDE, Console, accessible


async def fill(console: Console) -> None:
    """Three that could not connect, one that timed out, one that failed for good; and another tenant's."""
    async with console.transaction() as tx:
        for number, (status, error, tenant) in enumerate(
            [
                ("dead_letter", "ConnectionError: port {}", given.TENANT),
                ("dead_letter", "ConnectionError: port {}", given.TENANT),
                ("dead_letter", "ConnectionError: port {}", given.TENANT),
                ("dead_letter", "TimeoutError: <b>slow</b>", given.TENANT),
                ("failed", "ValueError: no such order", given.TENANT),
                ("dead_letter", "ConnectionError: port {}", given.OTHER),
            ]
        ):
            job_id = await given.ended_job(tx, status, tenant=tenant)
            values = [error.format(number), job_id]
            await tx.run("update fairlead.job_records set last_error = %s where id = %s", values)


async def test_errors_are_grouped_and_all_of_a_kind_are_retried(console: Console) -> None:
    page = await console.visit(Role.OPERATOR, "/dead-letters")
    await expect(page.locator("text=Nothing here")).to_be_visible()
    await fill(console)
    await page.reload()

    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.nth(0)).to_contain_text("ConnectionError: port <n>")
    await expect(rows.nth(0).locator(".num")).to_have_text("3")
    await expect(rows.nth(1)).to_contain_text("TimeoutError: <b>slow</b>")
    await expect(page.locator(".bar")).to_contain_text(
        "4 dead letter jobs in 2 kinds of error (5 troubled jobs"
    )

    await rows.nth(0).locator("text=Retry all 3").click()
    await expect(page.locator("#confirm")).to_contain_text("Queue 3 jobs of greet again")
    await page.click("#confirm [data-yes]")
    await expect(page.locator(".toast")).to_contain_text("Queued again: 3.")
    await expect(rows).to_have_count(1)

    await page.click("text=Failed for good")
    await expect(rows).to_have_count(1)
    await expect(rows.nth(0)).to_contain_text("ValueError: no such order")
    await rows.nth(0).locator(".num a").click()
    await expect(page).to_have_url(re.compile(r"/jobs\?status=failed&definition=greet"))
    await expect(page.locator("tbody tr")).to_have_count(1)
    # the other tenant's were not touched
    answer = await console.world.call("GET", "/jobs?status=dead_letter", tenant=given.OTHER)
    assert len(answer.json()["items"]) == 1


async def test_a_viewer_retries_nothing_and_a_super_admin_sees_all(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.VIEWER, "/dead-letters")
    await expect(page.locator("tbody button").first).to_be_disabled()
    mark = (await page.locator("tbody tr").first.get_attribute("id") or "").removeprefix("group-")
    refused = await page.request.post(f"/console/dead-letters/{mark}/retry")
    assert refused.status == 403
    await page.goto("/console/dead-letters?status=queued")
    await expect(page.locator("h1")).to_have_text("That did not work")

    admin = await console.visit(Role.SUPER_ADMIN, "/dead-letters")
    first = admin.locator("tbody tr").first
    await expect(first).to_contain_text("acme, umbrella")
    await expect(first.locator(".num")).to_have_text("4")
    await admin.goto(f"/console/dead-letters?tenant={given.OTHER}")
    await expect(admin.locator("tbody tr .num")).to_have_text("1")
    gone = await admin.request.post(f"/console/dead-letters/000000000000/retry?tenant={given.OTHER}")
    assert gone.status == 404


@pytest.mark.parametrize(("width", "theme"), [(WIDE, "dark"), (NARROW, "light")])
async def test_everybody_can_use_it(console: Console, width: int, theme: str) -> None:
    await fill(console)
    page = await console.visit(Role.SUPER_ADMIN, "/dead-letters", width=width, theme=theme)  # type: ignore[arg-type]
    await accessible(page)
