"""Saved views of lists, in a real browser."""

import re

import pytest
from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import Console, accessible, submit

pytestmark = pytest.mark.thorough


async def test_filters_are_saved_shared_renamed_and_deleted(console: Console) -> None:
    page = await console.visit(Role.OPERATOR, "/errors?status=failed&sort=jobs")
    await page.click("text=Save view")
    await accessible(page)
    await submit(page, "#views-dialog .primary", {"#views-dialog [name=name]": "Final failures"})
    await expect(page.locator(".toast")).to_contain_text("View saved.")
    await expect(page.locator(".views a")).to_have_attribute("aria-current", "true")

    viewer = await console.visit(Role.VIEWER, "/errors")
    await viewer.click(".views a")
    await expect(viewer).to_have_url(re.compile(r"/errors\?status=failed&sort=jobs"))
    await viewer.click("text=Save view")
    await expect(viewer.locator("#views-dialog [name=shared]")).to_have_count(0)
    await expect(viewer.locator(".views-list button")).to_have_count(0)

    await page.click("text=Save view")
    await submit(page, "text=Rename", {".views-list [name=name]": "Failed for good"})
    await expect(page.locator(".views a")).to_have_text("Failed for good")
    await page.click("text=Save view")
    await page.click("[aria-label^='Delete the view']")
    await expect(page.locator(".toast")).to_contain_text("View deleted.")
    await expect(page.locator(".views a")).to_have_count(0)


async def test_every_list_has_its_own_views(console: Console) -> None:
    page = await console.visit(Role.OPERATOR, "/audit?action=job_created")
    await page.click("text=Save view")
    await submit(page, "#views-dialog .primary", {"#views-dialog [name=name]": "New jobs"})
    await expect(page.locator(".views a")).to_have_text("New jobs")
    await page.goto("/console/errors")
    await expect(page.locator(".views button")).to_have_text("Views")
    await expect(page.locator(".views a")).to_have_count(0)


async def test_a_view_of_jobs_keeps_the_search_with_all_its_filters(console: Console) -> None:
    async with console.transaction() as tx:
        await given.ended_job(tx, "failed")
        await given.ended_job(tx, "failed", definition="anything")
        await given.queued_job(tx)
    page = await console.visit(
        Role.OPERATOR, "/jobs?q=status:failed+definition:greet&range=24h&tz=Europe/Berlin"
    )
    await expect(page.locator("table.jobs tbody tr")).to_have_count(1)
    await page.click("text=Save view")
    await submit(page, "#views-dialog .primary", {"#views-dialog [name=name]": "Failed greetings"})
    await expect(page.locator(".views a")).to_have_attribute("aria-current", "true")
    await accessible(page)

    viewer = await console.visit(Role.VIEWER, "/jobs")
    await expect(viewer.locator("table.jobs tbody tr")).to_have_count(3)
    await viewer.click(".views a")
    await expect(viewer.locator("[name=q]")).to_have_value("status:failed definition:greet")
    await expect(viewer.locator("[data-qualifier=status]")).to_have_value("failed")
    await expect(viewer.locator("table.jobs tbody tr")).to_have_count(1)
