"""The account page: one's own password, time display, shortcuts and sessions."""

from playwright.async_api import Page, expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import Console, accessible_in_each_look
from tests.server.world import PASSWORD

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

    await page.fill("[name=timezone]", "Europe/Pariss")
    await page.click("#own-times >> text=Save")
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


async def test_everybody_can_use_it(console: Console) -> None:
    await console.visit(Role.VIEWER)
    page = await console.visit(Role.VIEWER, "/account")
    await accessible_in_each_look(page, shot="account")


async def test_a_user_makes_a_personal_token_that_is_shown_once(console: Console) -> None:
    page = await console.visit(Role.VIEWER, "/account")

    await page.fill("#new-personal-token [name=name]", "my script")
    await page.fill("#new-personal-token [name=scopes]", "jobs.write")
    await page.click("text=Create token")
    await expect(page.locator("#new-personal-token .fault").first).to_contain_text("jobs.write")
    await page.fill("#new-personal-token [name=scopes]", "jobs.read")
    await page.click("text=Create token")
    await expect(page.locator("#personal-tokens [data-shown-once]")).to_contain_text("shown only once")
    await expect(page.locator("#personal-tokens li")).to_contain_text("my script")
    await page.reload()
    await expect(page.locator("#personal-tokens [data-shown-once]")).to_have_count(0)
    await expect(page.locator("#personal-tokens li")).to_contain_text("only jobs.read")


async def test_a_personal_token_has_a_lesser_role_and_a_shorter_life(console: Console) -> None:
    page = await console.visit(Role.TENANT_ADMIN, "/account")
    await page.fill("#new-personal-token [name=name]", "reader")
    await page.select_option("#new-personal-token [name=role]", "viewer")
    await page.select_option("#new-personal-token [name=days]", "7")
    await page.click("text=Create token")

    made = page.locator("#personal-tokens li")
    await expect(made).to_contain_text("viewer")
    await expect(made).to_contain_text("in 6 d")
    await accessible_in_each_look(page, shot="account-token")
    secret = await page.locator("#personal-tokens [data-shown-once] pre").inner_text()
    me = await console.world.call("GET", "/me", who=None, headers={"Authorization": f"Bearer {secret}"})
    assert me.json()["role"] == "viewer"

    viewer = await console.visit(Role.VIEWER, "/account")
    await expect(viewer.locator("#new-personal-token [name=role]")).to_have_count(0)
