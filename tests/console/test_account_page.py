"""The account page: one's own password, time display, shortcuts and sessions."""

import re
from contextlib import suppress
from urllib.parse import unquote

import pytest
from playwright.async_api import Error, Page, expect

from fairlead.model.access import Role
from fairlead.server.second_factor import COOKIE as PENDING
from tests import given
from tests.console.visiting import Browsing, Console, accessible_in_each_look, served, submit
from tests.second_factors import Person, person, protected
from tests.server.world import PASSWORD, world_on

pytestmark = pytest.mark.thorough

NEW = "another horse, another battery"


async def _fill(page: Page, old: str, new: str, again: str | None = None) -> None:
    await page.fill("[name=old_password]", old)
    await page.fill("[name=new_password]", new)
    await page.fill("[name=again]", new if again is None else again)
    await page.click("text=Change password")


async def test_a_viewer_changes_the_password_and_stays_signed_in(console: Console) -> None:
    elsewhere = await console.visit(Role.VIEWER)
    page = await console.visit(Role.VIEWER)
    await page.click(".foot .who a")
    await expect(page.locator("h1")).to_have_text("Account")

    await _fill(page, PASSWORD, NEW, "not the same")
    await expect(page.locator("#own-password .fault")).to_contain_text("differ")
    await _fill(page, "wrong", NEW)
    await expect(page.locator("#own-password .fault")).to_contain_text("The old password is wrong")
    await expect(page.locator("[name=old_password]")).to_have_attribute("aria-invalid", "true")
    await _fill(page, PASSWORD, NEW)
    await expect(page.locator("#toasts")).to_contain_text("Password changed. 1 other session signed out.")
    await elsewhere.reload()
    await expect(elsewhere.locator("[name=password]")).to_be_visible()


async def test_times_and_shortcuts_are_remembered(console: Console) -> None:
    page = await console.visit(Role.OPERATOR, "/account")
    root = page.locator("html")
    assert await root.get_attribute("data-timezone") is None

    await submit(page, "#own-times >> text=Save", {"[name=timezone]": "Europe/Pariss"})
    await expect(page.locator("#own-times .fault")).to_contain_text("Did you mean Europe/Paris?")
    await page.fill("[name=timezone]", "Europe/Paris")
    await page.select_option("[name=hour_cycle]", "h12")
    await page.click("#own-times >> text=Save")
    await expect(root).to_have_attribute("data-timezone", "Europe/Paris")
    await expect(root).to_have_attribute("data-hour-cycle", "h12")
    await page.goto("/console/jobs")
    await expect(root).to_have_attribute("data-timezone", "Europe/Paris")

    await page.goto("/console/account")
    await page.uncheck("main [data-shortcuts]")
    assert await page.evaluate("localStorage.getItem('fairlead-shortcuts')") == "off"
    await page.reload()
    await expect(page.locator("main [data-shortcuts]")).not_to_be_checked()
    await expect(page.locator("#keys [data-shortcuts]")).not_to_be_checked()


async def test_a_super_admin_signs_out_other_sessions_in_whatever_tenant(console: Console) -> None:
    other = await console.visit(Role.SUPER_ADMIN)
    page = await console.visit(Role.SUPER_ADMIN, f"/account?tenant={given.TENANT}")
    await expect(page.locator(".sessions li")).to_have_count(2)
    await expect(page.locator(".sessions li").first).to_contain_text("this browser")
    await accessible_in_each_look(page, shot="account")

    await page.click("text=Sign out other sessions")
    await page.click("#confirm [data-yes]")
    await expect(page.locator(".sessions li")).to_have_count(1)
    await other.reload()
    await expect(other.locator("[name=password]")).to_be_visible()


async def test_signing_out_everywhere_ends_this_session_too(console: Console) -> None:
    other = await console.visit(Role.VIEWER)
    page = await console.visit(Role.VIEWER, "/account")

    await page.click("text=Sign out everywhere")
    await expect(page.locator("#confirm")).to_contain_text("also in this browser")
    await page.click("#confirm [data-yes]")

    await expect(page.locator(".sign-in")).to_contain_text("Signed out everywhere")
    await expect(page.locator("[name=password]")).to_be_visible()
    await other.reload()
    await expect(other.locator("[name=password]")).to_be_visible()
    await page.goto("/console/account")
    await expect(page.locator("[name=password]")).to_be_visible()


async def test_a_user_makes_a_personal_token_that_may_do_less_and_is_shown_once(console: Console) -> None:
    page = await console.visit(Role.TENANT_ADMIN, "/account")

    await page.fill("#new-personal-token [name=name]", "reader")
    await page.select_option("#new-personal-token [name=role]", "viewer")
    await page.select_option("#new-personal-token [name=days]", "7")
    await page.fill("#new-personal-token [name=scopes]", "jobs.write")
    await page.click("text=Create token")
    await expect(page.locator("#new-personal-token .fault").first).to_contain_text("jobs.write")
    await submit(page, "text=Create token", {"#new-personal-token [name=scopes]": "jobs.read"})
    made = page.locator("#personal-tokens li")
    for part in ("reader", "viewer", "in 6 d", "only jobs.read"):
        await expect(made).to_contain_text(part)
    await expect(page.locator("#personal-tokens [data-shown-once]")).to_contain_text("shown only once")
    await accessible_in_each_look(page, shot="account-token")
    secret = await page.locator("#personal-tokens [data-shown-once] pre").inner_text()
    me = await console.world.call("GET", "/me", who=None, headers={"Authorization": f"Bearer {secret}"})
    assert me.json()["permissions"] == ["jobs.read"]
    await page.reload()
    await expect(page.locator("#personal-tokens [data-shown-once]")).to_have_count(0)

    viewer = await console.visit(Role.VIEWER, "/account")
    await expect(viewer.locator("#new-personal-token [name=role]")).to_have_count(0)


# The second factor in the console: its set-up, the second page of the sign-in, and its removal


async def _set_up(page: Page, ada: Person) -> list[str]:
    """Go through the set-up on its page. The recovery codes."""
    await submit(page, "main button:has-text('Set up')", {"[name=password]": "not this one"})
    await expect(page.locator("#set-up .fault")).to_contain_text("The password is wrong")
    await submit(page, "main button:has-text('Set up')", {"[name=password]": PASSWORD})
    await expect(page.locator("svg.qr")).to_be_visible()
    ada.key = (await page.locator("#setup-key").inner_text()).replace(" ", "").strip()
    await accessible_in_each_look(page, shot="second-factor-scan")
    await submit(page, "text=Activate", {"[name=code]": ada.wrong_code})
    await expect(page.locator("#confirm-code .fault")).to_contain_text("The code is wrong")
    await expect(page.locator("svg.qr")).to_be_visible()
    await submit(page, "text=Activate", {"[name=code]": ada.code()})
    await expect(page.locator(".recovery-codes li")).to_have_count(10)
    await expect(page.locator("svg.qr")).to_have_count(0)
    await accessible_in_each_look(page, shot="second-factor-codes")
    codes = await page.locator(".recovery-codes li").all_inner_texts()
    file = unquote(str(await page.get_attribute("a[download]", "href")))
    assert all(code in file for code in codes)
    await ada.forget_steps()
    return codes


async def _enter_password(page: Page, email: str) -> None:
    await submit(page, "[type=submit]", {"[name=email]": email, "[name=password]": PASSWORD})


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
    await submit(browser, "[type=submit]", {"[name=code]": ada.wrong_code})
    await expect(browser.locator(".fault")).to_contain_text("The code is wrong")
    await submit(browser, "[type=submit]", {"[name=code]": codes[0]})
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
    # the session has ended: the page may be loading itself again at this moment, which breaks off our reload
    with suppress(Error):
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
