"""The box in which a super admin chooses a tenant."""

import re

from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import Console, accessible, accessible_in_each_look


async def test_the_box_offers_the_tenants_and_the_page_stays_when_the_tenant_changes(
    console: Console,
) -> None:
    async with console.transaction() as tx:
        job_id = await given.queued_job(tx)
    page = await console.visit(Role.SUPER_ADMIN)
    await page.focus("[data-tenants]")
    await expect(page.locator(f"#tenant-list option[value={given.TENANT}]")).to_have_count(1)
    await expect(page.locator(f"#tenant-list option[value={given.OTHER}]")).to_have_count(1)

    for before, after in {
        "/usage?by=day": "/usage?by=day&tenant={}",
        "/jobs?status=failed&cursor=x": "/jobs?status=failed&tenant={}",
        "/system": "/jobs?tenant={}",
        f"/jobs/{job_id}": "/jobs?tenant={}",
    }.items():
        await page.goto(f"/console{before}")
        await page.fill("[data-tenants]", given.OTHER)
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{console.url}/console{after.format(given.OTHER)}")


async def test_an_unknown_tenant_is_answered_with_near_names(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, f"/usage?tenant={given.TENANT[:-1]}x")

    await expect(page.locator("h1")).to_have_text("No such tenant")
    await expect(page.locator("nav#nav")).to_be_attached()
    await expect(page.locator("main")).not_to_contain_text("fairlead tenants add")
    await accessible_in_each_look(page)
    await page.click(f"main >> text={given.TENANT}")
    await expect(page).to_have_url(re.compile(rf"/console/usage\?tenant={given.TENANT}$"))


async def test_a_member_learns_no_names_of_other_tenants(console: Console) -> None:
    answer = await console.read(Role.TENANT_ADMIN, f"/jobs?tenant={given.OTHER}x")

    assert answer.status_code == 404
    assert "Not found" in answer.text
    assert "Did you mean" not in answer.text


async def test_the_beginning_of_a_slug_is_enough_if_one_tenant_has_it_and_a_link_leads_back(
    console: Console,
) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/usage")

    await page.fill("[data-tenants]", given.OTHER[:3])
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(rf"/usage\?tenant={given.OTHER}$"))

    await console.make(
        "insert into fairlead.tenants (slug, name, timezone) values (%s, 'Another', 'UTC')",
        [f"{given.OTHER}-2"],
    )
    await page.goto("/console/usage")
    await page.fill("[data-tenants]", given.OTHER[:3])
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("No such tenant")
    await page.fill("[data-tenants]", given.OTHER)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(rf"/usage\?tenant={given.OTHER}$"))

    # and a link leads back to all tenants
    await page.goto(f"/console/jobs?status=failed&tenant={given.TENANT}")
    await accessible(page, whole=True)
    await page.click("nav >> text=All tenants")
    await expect(page).to_have_url(f"{console.url}/console/jobs?status=failed")
    await expect(page.locator("[data-tenants]")).to_have_value("")
    await expect(page.locator("nav >> text=All tenants")).to_have_count(0)
