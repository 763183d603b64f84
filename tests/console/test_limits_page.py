"""The page of limits, and the forms that change them, in a real browser."""

import pytest
from playwright.async_api import expect

from fairlead.actions import definitions, limits
from fairlead.model.access import Role
from fairlead.model.flow import Rate
from tests import given
from tests.console.visiting import Console, accessible_in_each_look, submit
from tests.given import OTHER, TENANT, TESTER
from tests.store.test_limit_upkeep import hold

pytestmark = pytest.mark.thorough

SLOW = Rate(1, per_seconds=3600)
KEY = {"pointer": "/name", "max_running": 1}


async def fill(console: Console) -> None:
    """Every kind of limit, each of them closed."""
    async with console.transaction() as tx:
        await definitions.patch(tx, TESTER, "greet", {"by_key": KEY})
        await hold(tx, "Ada", jobs=3)
        await hold(tx, "Grace", jobs=2)
        await limits.set_rate(tx, TESTER, Rate(100, 60, 20))
        await limits.set_rate(tx, TESTER, SLOW, tenant=TENANT)
        await limits.set_rate(tx, TESTER, SLOW, definition="anything")
        await limits.set_rate(tx, TESTER, SLOW, definition="anything", each_tenant=True)
        for tenant in (TENANT, TENANT, TENANT, OTHER):
            await given.queued_job(tx, definition="anything", tenant=tenant)
        await hold(tx)


async def test_limits_show_what_they_hold_back_and_everybody_can_use_it(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.SUPER_ADMIN, "/limits")
    await accessible_in_each_look(page)
    await expect(page.locator("tbody tr")).to_have_count(5)
    await expect(page.locator(".limits-said")).to_contain_text("4 of 5 limits hold jobs back.")
    system = page.locator("#limit-system-all td")
    await expect(system.nth(1)).to_contain_text("100 per minute")
    await expect(system.nth(3)).to_have_text("Now")
    definition = page.locator("#limit-definition-anything td")
    await expect(definition.nth(2)).to_contain_text("0 of 1")
    await expect(definition.nth(4)).to_contain_text("3")
    key = page.locator("#limit-key-greet")
    await expect(key.locator("li").first).to_contain_text("Ada")
    await expect(key.locator("li").first).to_contain_text("acme, 2 held, 1 running")
    await expect(key.locator("li").nth(1)).to_contain_text("Grace")
    await key.locator("td.num a.held").click()
    await expect(page.locator("h1")).to_contain_text("Jobs")
    await page.go_back()
    await key.locator("li a").first.click()
    await expect(page.locator("main")).to_contain_text("greet")

    await page.goto("/console/limits?definition=greet")
    await expect(page.locator("tbody tr")).to_have_count(1)


async def test_a_tenant_sees_its_own_part(console: Console) -> None:
    await fill(console)
    page = await console.visit(Role.VIEWER, "/limits")
    await expect(page.locator("#limit-system-all td").nth(2)).to_have_text("–")
    await expect(page.locator("#limit-definition-anything td").nth(4)).to_contain_text("2")


async def test_the_page_follows_what_happens(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/limits")
    await expect(page.locator("text=No rates and no limits by key")).to_be_visible()
    await fill(console)
    await expect(page.locator("#limit-key-greet")).to_be_visible()


async def test_rates_of_the_system_and_a_tenant_are_set_and_removed(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/system")
    await submit(page, "#rate-form >> text=Save", {"#system-rate": "often"})
    await expect(page.locator("#system-rate-said")).to_contain_text("must be a rate such as 100/min")
    await submit(page, "#rate-form >> text=Save", {"#system-rate": "100/min+20"})
    await expect(page.locator("#rate .status")).to_have_text("100 per minute")
    await expect(page.locator("#system-rate")).to_have_value("100/min+20")
    await submit(page, "#rate-form >> text=Save", {"#system-rate": ""})
    await expect(page.locator("#rate .status")).to_have_text("No limit")

    await page.goto("/console/tenants/acme")
    await submit(page, "#settings >> text=Save", {"#settings-rate": "0/s"})
    await expect(page.locator("#settings-rate-said")).to_contain_text("must be a whole number")
    await submit(page, "#settings >> text=Save", {"#settings-rate": "1000/15min"})
    await expect(page.locator(".toast")).to_contain_text("Saved.")
    await expect(page.locator("#settings-rate")).to_have_value("1000/15min+2")


async def test_limits_of_a_definition_are_set_and_removed(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/definitions/greet")
    await page.fill("#change-rate", "100/min+20 cost /n")
    await page.fill("#change-rate_per_tenant", "often")
    await page.fill("#change-by_key\\.max_running", "1")
    await page.click("#change >> text=Save")
    await expect(page.locator("#change-rate_per_tenant-said")).to_contain_text("must be a rate")
    await submit(page, "#change >> text=Save", {"#change-rate_per_tenant": "5/s"})
    await expect(page.locator("#change-by_key\\.pointer-said")).to_contain_text("must be a JSON pointer")
    await page.fill("#change-by_key\\.pointer", "/name")
    await page.select_option("#change-by_key\\.strategy", "drop_new")
    await page.check("[name='by_key.fifo']")
    await page.click("#change >> text=Save")
    await expect(page.locator("#facts")).to_contain_text("100 per minute, 20 at once, cost /n")
    await expect(page.locator("#facts")).to_contain_text("/name: 1 running, in order")
    await expect(page.locator("#change-rate")).to_have_value("100/min+20 cost /n")
    await expect(page.locator("#change-by_key\\.strategy")).to_have_value("drop_new")
    await expect(page.locator("[name='by_key.fifo']")).to_be_checked()
    await page.fill("#change-by_key\\.pointer", "")
    await page.fill("#change-by_key\\.max_running", "")
    await page.fill("#change-rate", "")
    await page.click("#change >> text=Save")
    await expect(page.locator("#facts")).not_to_contain_text("/name")
    await expect(page.locator("#facts")).to_contain_text("5 per second")
