"""The allow-list of a tenant, in a real browser."""

from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import Console, accessible_in_each_look


async def test_an_admin_sets_the_list_and_is_warned_before_being_locked_out(console: Console) -> None:
    page = await console.visit(path="/addresses")
    await accessible_in_each_look(page, shot="addresses")
    await expect(page.locator("#allow-list")).to_contain_text("Your address: 127.0.0.1")

    await page.fill("[name=addresses]", "10.1.2.3/8")
    await page.click("#allow-list [type=submit]")
    await expect(page.locator("#allow-list-addresses-said")).to_contain_text("write 10.0.0.0/8")
    await page.fill("[name=addresses]", "10.0.0.0/8")
    await page.click("#allow-list [type=submit]")
    await expect(page.get_by_role("alert")).to_contain_text("You would lock yourself out")
    await accessible_in_each_look(page, shot="addresses-warned")
    assert (await console.world.call("GET", "/addresses", who="tenant_admin")).json() == {"addresses": []}

    await page.fill("[name=addresses]", "10.0.0.0/8\n127.0.0.0/8")
    await page.click("#allow-list [type=submit]")
    await expect(page.locator("#toasts")).to_contain_text("The allow-list is set")
    await expect(page.locator("[name=addresses]")).to_have_value("10.0.0.0/8\n127.0.0.0/8")

    await page.fill("[name=addresses]", "10.0.0.0/8")
    await page.click("#allow-list [type=submit]")
    await page.check("[name=force]")
    await page.click("#allow-list [type=submit]")
    await expect(page.locator("body")).to_contain_text("not in the allow-list")


async def test_a_super_admin_sets_it_for_a_tenant_and_is_not_bound(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, f"/tenants/{given.OTHER}")
    await page.click("main >> text=Allow-list")
    await page.fill("[name=addresses]", "192.0.2.0/24")
    await page.click("#allow-list [type=submit]")
    await expect(page.locator("#toasts")).to_contain_text("The allow-list is set")
    await page.goto(f"/console/tenants/{given.OTHER}")
    await expect(page.locator("main")).to_contain_text("192.0.2.0/24")
    await page.goto("/console/addresses")
    await expect(page.locator("main")).to_contain_text("the allow-list")

    own = await console.visit(Role.OPERATOR, "/addresses")
    await expect(own.locator("h1")).to_have_text("Not for your role")
