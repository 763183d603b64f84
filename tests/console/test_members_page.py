"""The members of a tenant, in a real browser."""

import re

import pytest
from playwright.async_api import Page, expect

from fairlead.actions import access
from fairlead.model.access import Role, User
from tests import given
from tests.console.visiting import Console, accessible, accessible_in_each_look, close_secret, submit
from tests.server.world import PASSWORD

pytestmark = pytest.mark.thorough


async def member(console: Console, email: str = "grace@example.com", tenant: str = given.TENANT) -> User:
    async with console.transaction() as tx:
        return await access.add_user(
            tx,
            given.TESTER,
            email=email,
            password=PASSWORD,
            role=Role.OPERATOR,
            tenant_id=console.world.tenants[tenant],
        )


async def may_sign_in(console: Console, email: str, password: str) -> bool:
    answer = await console.world.call("POST", "/login", who=None, json={"email": email, "password": password})
    return answer.status_code == 200


async def shown_password(page: Page) -> str:
    return (await page.locator("[data-shown-once] pre").text_content()) or ""


async def test_members_are_added_with_a_password_shown_once_or_typed_twice(console: Console) -> None:
    page = await console.visit(path="/members")
    await page.click("text=Add member")
    await submit(page, "#new-member [type=submit]", {"#new-member-email": "nonsense"})
    await expect(page.locator("#new-member-email-said")).to_contain_text("must be an e-mail address")
    await page.fill("#new-member-email", "ada@example.com")
    await page.select_option("#new-member-role", "viewer")
    async with page.expect_response(re.compile("/members")) as answering:
        await page.click("#new-member [type=submit]")
    answer = await answering.value

    password = await shown_password(page)
    assert await may_sign_in(console, "ada@example.com", password)
    assert answer.headers["cache-control"] == "no-store"
    assert "set-cookie" not in answer.headers
    async with page.expect_event("load"):  # without the password
        await page.keyboard.press("Escape")
    await expect(page.locator("tr:has-text('ada@example.com')")).to_contain_text("viewer")
    await accessible_in_each_look(page)
    assert password not in page.url + await page.content()

    await page.click("text=Add member")
    await expect(page.locator("#new-member-password")).to_be_hidden()
    await page.fill("#new-member-email", "alan@example.com")
    await page.check("#new-member [value=typed]")
    await page.fill("#new-member-password", PASSWORD)
    await page.fill("#new-member-again", "correct horse")
    await page.click("#new-member [type=submit]")
    await expect(page.locator("#new-member-again-said")).to_contain_text("not the same")
    await accessible_in_each_look(page)
    await page.fill("#new-member-password", PASSWORD)
    await page.fill("#new-member-again", PASSWORD)
    await page.click("#new-member [type=submit]")
    await expect(page.locator("h1")).to_have_text("alan@example.com")
    assert await may_sign_in(console, "alan@example.com", PASSWORD)


async def test_role_password_and_entry_are_changed(console: Console) -> None:
    user = await member(console)
    page = await console.visit(path=f"/members/{user.id}")

    await page.check("[name=role][value=viewer]")
    await page.click("text=Change role")
    await expect(page.locator(".toast")).to_contain_text("grace@example.com is now a viewer")
    await expect(page.locator("[name=role][value=viewer]")).to_be_checked()
    await page.click("text=Set password")
    await page.click("#new-password [type=submit]")
    password = await shown_password(page)
    assert await may_sign_in(console, user.email, password)
    await close_secret(page)
    await expect(page.locator("[data-shown-once]")).to_have_count(0)
    await page.click("button:has-text('Disable')")
    await expect(page.locator("#confirm")).to_contain_text("Disable grace@example.com?")
    await page.click("#confirm [data-yes]")
    await expect(page.locator("#member")).to_contain_text("disabled")
    await accessible(page)
    assert not await may_sign_in(console, user.email, password)
    await page.click(".toast >> text=Undo")
    await expect(page.locator("#member")).to_contain_text("active")


async def test_a_member_is_signed_out_and_may_come_back(console: Console) -> None:
    theirs = await console.visit(Role.VIEWER)
    page = await console.visit(path="/members")
    await page.click(f"main >> text=viewer.{given.TENANT}@fairlead.test")
    await page.click("#member >> text=Sign out")
    await expect(page.locator("#confirm")).to_contain_text("They can sign in again")
    await page.click("#confirm [data-yes]")

    await expect(page.locator("#toasts")).to_contain_text("signed out of 1 session")
    await theirs.reload()
    await expect(theirs.locator("[name=password]")).to_be_visible()
    await page.reload()  # the admin's own session goes on
    await expect(page.locator("#member")).to_contain_text("active")
    assert await may_sign_in(console, f"viewer.{given.TENANT}@fairlead.test", PASSWORD)


async def test_nobody_disables_or_demotes_themselves(console: Console) -> None:
    page = await console.visit(path="/members")
    mine = page.locator("tr:has-text('(you)')")

    await expect(mine.locator("button")).to_be_disabled()
    await expect(mine.locator("button")).to_have_attribute("title", re.compile("disable yourself"))
    own = (await mine.get_attribute("id") or "").removeprefix("user-")
    for path in ("disable", "role"):
        answer = await page.request.post(f"/console/members/{own}/{path}", form={"role": "viewer"})
        assert answer.status == 422
        assert "another admin" in await answer.text()
    await page.goto(f"/console/members/{own}")
    await expect(page.locator("text=Change role")).to_be_disabled()


async def test_a_super_admin_sees_all_members_and_adds_super_admins(console: Console) -> None:
    await member(console, tenant=given.OTHER)
    page = await console.visit(Role.SUPER_ADMIN, "/members")
    await expect(page.locator("tr:has-text('grace@example.com')")).to_contain_text(given.OTHER)
    await page.click("text=Add super admin")
    await expect(page.locator("#new-member-role option")).to_have_text(["super_admin"])
