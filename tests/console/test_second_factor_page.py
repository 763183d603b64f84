"""The second factor in the console: its set-up, the second page of the sign-in, and its removal."""

import re
from urllib.parse import unquote

from playwright.async_api import Page, expect

from fairlead.model.access import Role
from fairlead.server.second_factor import COOKIE as PENDING
from tests.console.visiting import Browsing, Console, accessible_in_each_look, served
from tests.second_factors import Person, person, protected
from tests.server.world import PASSWORD, world_on


async def _set_up(page: Page, ada: Person) -> list[str]:
    """Go through the set-up on its page. The recovery codes."""
    await page.fill("[name=password]", "not this one")
    await page.click("main button:has-text('Set up')")
    await expect(page.locator("#set-up .fault")).to_contain_text("The password is wrong")
    await page.fill("[name=password]", PASSWORD)
    await page.click("main button:has-text('Set up')")
    await expect(page.locator("svg.qr")).to_be_visible()
    ada.key = (await page.locator("#setup-key").inner_text()).replace(" ", "").strip()
    await accessible_in_each_look(page, shot="second-factor-scan")
    await page.fill("[name=code]", ada.wrong_code)
    await page.click("text=Activate")
    await expect(page.locator("#confirm-code .fault")).to_contain_text("The code is wrong")
    await expect(page.locator("svg.qr")).to_be_visible()
    await page.fill("[name=code]", ada.code())
    await page.click("text=Activate")
    await expect(page.locator(".recovery-codes li")).to_have_count(10)
    await expect(page.locator("svg.qr")).to_have_count(0)
    await accessible_in_each_look(page, shot="second-factor-codes")
    codes = await page.locator(".recovery-codes li").all_inner_texts()
    file = unquote(str(await page.get_attribute("a[download]", "href")))
    assert all(code in file for code in codes)
    await ada.forget_steps()
    return codes


async def _enter_password(page: Page, email: str) -> None:
    await page.fill("[name=email]", email)
    await page.fill("[name=password]", PASSWORD)
    await page.click("[type=submit]")


async def test_a_member_sets_it_up_signs_in_with_it_and_removes_it(console: Console) -> None:
    ada = await person(console.world, Role.VIEWER)
    page = await console.visit(Role.VIEWER, "/account")
    await page.click("a:has-text('Set up')")
    await accessible_in_each_look(page, shot="second-factor-start")
    codes = await _set_up(page, ada)
    await page.click("text=I have kept them")
    await expect(page.locator("main")).to_contain_text("10 of 10 recovery codes left")

    browser = await console.stranger("/audit?action=job_created")
    await _enter_password(browser, ada.email)
    await expect(browser.locator("main")).to_contain_text(ada.email)
    assert PASSWORD not in await browser.content()
    await accessible_in_each_look(browser, shot="second-factor-sign-in")
    await browser.fill("[name=code]", ada.wrong_code)
    await browser.click("[type=submit]")
    await expect(browser.locator(".fault")).to_contain_text("The code is wrong")
    await browser.fill("[name=code]", codes[0])
    await browser.click("[type=submit]")
    await expect(browser).to_have_url(re.compile(r"/console/audit\?action=job_created$"))
    assert PENDING not in {one.get("name") for one in await browser.context.cookies()}

    await page.goto("/console/account/second-factor")
    await accessible_in_each_look(page, shot="second-factor-active")
    await page.fill("#renew [name=password]", PASSWORD)
    await page.fill("#renew [name=code]", ada.code())
    await page.click("text=Renew codes")
    await expect(page.locator(".recovery-codes li")).to_have_count(10)
    await page.goto("/console/account/second-factor")
    await page.fill("#remove [name=password]", PASSWORD)
    await page.fill("#remove [name=code]", ada.code())
    await page.click("text=Remove second factor")
    await expect(page.locator("#remove .fault")).to_contain_text("was used before")
    await page.fill("#remove [name=password]", PASSWORD)
    await page.fill("#remove [name=code]", ada.code(1))
    await page.click("text=Remove second factor")
    await expect(page.locator("main")).to_contain_text("not set up")
    await browser.reload()
    await expect(browser.locator("[name=password]")).to_be_visible()


async def test_a_role_that_needs_one_is_led_to_the_setup(database_url: str, browser: Browsing) -> None:
    async with (
        world_on(database_url, require_second_factor=("viewer",)) as world,
        served(world, browser) as console,
    ):
        ada = await person(world, Role.VIEWER)
        page = await console.stranger("/audit?action=job_created")
        await _enter_password(page, ada.email)
        await expect(page.locator("main")).to_contain_text("needs a second factor")
        await expect(page.locator("#nav")).to_have_count(0)
        await accessible_in_each_look(page, shot="second-factor-required")
        await page.goto("/console/jobs")
        await expect(page).to_have_url(re.compile("/account/second-factor"))
        await page.goto("/console/audit?action=job_created")
        await _set_up(page, ada)
        await page.click("text=I have kept them")
        await expect(page).to_have_url(re.compile(r"/console/audit\?action=job_created$"))


async def test_an_admin_sees_who_has_one_and_removes_it(console: Console) -> None:
    ada = await protected(console.world, Role.VIEWER)
    page = await console.visit(Role.TENANT_ADMIN, "/members")
    row = page.locator("tr", has_text=ada.email)
    await expect(row.locator("td").nth(3)).to_have_text("active")
    await accessible_in_each_look(page, shot="second-factor-members")
    await row.locator("a").first.click()
    await accessible_in_each_look(page, shot="second-factor-member")
    await page.click("button:has-text('Remove')")
    await page.click("#confirm [data-yes]")
    await expect(page.locator("#toasts")).to_contain_text("Second factor of")
    assert (await ada.call("GET")).status_code == 401
    assert (await ada.login()).status_code == 200
