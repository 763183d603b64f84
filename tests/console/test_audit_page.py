"""The audit log, in a real browser."""

import re

import pytest
from playwright.async_api import expect

from fairlead.actions import gates
from fairlead.model.access import Role
from fairlead.store import audit
from tests import given
from tests.console.visiting import Console, accessible, accessible_in_each_look

pytestmark = pytest.mark.thorough


async def entries(console: Console, count: int, *, action: str = "something_done") -> None:
    async with console.transaction() as tx:
        for number in range(count):
            await audit.write(
                tx,
                actor="user:ada@example.com",
                action=action,
                resource_type="system",
                tenant_id=console.world.tenants[given.TENANT],
                details={"number": number, "deep": {"list": [1, 2]}},
            )


async def test_filters_are_in_the_address_and_pages_go_on(console: Console) -> None:
    await entries(console, 60)
    await entries(console, 1, action="other_thing")
    page = await console.visit(Role.VIEWER, "/audit")

    await page.fill("[name=action]", "something_done")
    await page.fill("[name=actor]", "user:ada@example.com")
    await page.select_option("[name=resource_type]", "system")

    await expect(page).to_have_url(re.compile("action=something_done&actor=user%3Aada"))
    await expect(page.locator("tbody tr")).to_have_count(50)
    await page.click("text=Older")
    await expect(page.locator("tbody tr")).to_have_count(10)
    await expect(page.locator("tbody td.key").first).to_have_text("something done")
    await page.click("text=Back to newest")
    await page.fill("[data-zoned]:has([name=before]) [type=datetime-local]", "2001-01-01T00:00:00")
    await page.click("text=Search")
    await expect(page.locator("text=No matching entries")).to_be_visible()
    await page.click("text=Show all entries")
    await page.click("tbody >> text=other thing")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.goto("/console/audit?after=yesterday")
    await expect(page.locator(".fault")).to_contain_text(
        "'yesterday' is not a time. Write it as 2026-01-31T08:30"
    )
    await page.goto("/console/audit?cursor=nonsense")
    await expect(page.locator(".fault")).to_contain_text("The cursor is invalid")


async def test_what_is_new_waits_behind_a_button_and_opened_details_stay_open(console: Console) -> None:
    await entries(console, 1)
    page = await console.visit(Role.VIEWER, "/audit?resource_type=system")
    await page.click("tbody summary")
    await expect(page.locator("tbody pre")).to_contain_text('"list": [')

    await entries(console, 2)

    await expect(page.locator(".new")).to_have_text("2 new")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("tbody pre")).to_be_visible()
    await page.click(".new")
    await expect(page.locator("tbody tr")).to_have_count(3)
    await accessible_in_each_look(page)


async def test_entries_lead_to_what_they_are_about(console: Console) -> None:
    job_id = await given.queued_job(console)
    await console.world.call("POST", f"/jobs/{job_id}/cancel")
    host = console.world.hosts[given.TENANT]
    await console.world.call("PATCH", f"/hosts/{host}", who="tenant_admin", json={"draining": True})

    for role in (Role.TENANT_ADMIN, Role.VIEWER):
        listed = (await console.read(role, "/audit")).text
        assert f'/jobs/{job_id}"' in listed
        assert f'/hosts/{host}"' in listed


async def test_who_paused_what_is_one_choice(console: Console) -> None:
    async with console.transaction() as tx:
        await gates.pause(tx, given.TESTER, tenant=given.OTHER, note="migration")
        host = console.world.hosts[given.TENANT]
        await gates.pause(tx, given.TESTER, host=host, note="new disk")
    await entries(console, 60)
    page = await console.visit(Role.SUPER_ADMIN, "/audit")

    await page.select_option("[name=group]", "pauses")

    await expect(page.locator("tbody tr")).to_have_count(2)
    row = page.locator("tbody tr", has_text="tenant paused")
    await expect(row.locator(".about")).to_have_text(f"tenant {given.OTHER}")
    await expect(row).to_contain_text("migration")
    await accessible(page)
    await page.goto("/console/audit?action=Tenant+paused&actor=TEST&text=MIGR")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.goto("/console/system")
    await page.click("text=Who paused what")
    await expect(page.locator("tbody tr")).to_have_count(2)
