"""Invitations and forgotten passwords, in a real browser."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import NARROW, WIDE, Browsing, Console, accessible, served, submit
from tests.server.mailing import ADA, NEW, Mailing, mailing_on

pytestmark = pytest.mark.thorough

Both = tuple[Console, Mailing]


@pytest.fixture
async def both(
    database_url: str, world_databases: object, browser: Browsing, tmp_path: Path
) -> AsyncIterator[Both]:
    async with mailing_on(database_url, tmp_path) as mailing, served(mailing.world, browser) as console:
        yield console, mailing


async def choose(page: Page, password: str = NEW, again: str | None = None) -> None:
    await page.fill("[name=new_password]", password)
    await page.fill("[name=again]", password if again is None else again)
    await page.click("[type=submit]")


async def test_a_member_is_invited_and_comes_in(both: Both) -> None:
    console, mailing = both
    page = await console.visit(path="/members")
    await page.click("text=Invite member")
    await expect(page.locator("#new-member [value=invited]")).to_be_checked()
    await expect(page.locator("#new-member-password")).to_be_hidden()
    await submit(page, "#new-member [type=submit]", {"#new-member-email": ADA})
    row = page.locator(f"tr:has-text('{ADA}')")
    await expect(row).to_contain_text("invited")
    await accessible(page)
    old = await mailing.link()
    await row.get_by_text("Send again").click()
    await expect(page.locator("#toasts")).to_contain_text("The earlier link has ended")
    token = await mailing.link()

    guest = await console.stranger(f"/invitation#{old}", width=NARROW, theme="dark")
    await expect(guest).to_have_url(f"{console.url}/console/invitation")  # not in the history
    await expect(guest.locator("[data-link-code]")).to_be_hidden()
    await accessible(guest)
    await choose(guest)
    await expect(guest.locator(".fault")).to_contain_text("This link does not work")
    assert old not in await guest.content()

    guest = await console.stranger(f"/invitation#{token}", width=WIDE)
    await choose(guest, NEW, "another one")
    await expect(guest.locator("#link-again-said")).to_have_text("is not the same")
    await choose(guest)
    await expect(guest).to_have_url(f"{console.url}/console/overview")
    await expect(guest.locator("body")).to_contain_text(f"You sign in as {ADA}")
    await page.reload()
    await expect(row).to_contain_text("active")


async def test_an_invitation_expires_and_is_withdrawn(both: Both) -> None:
    console, mailing = both
    await mailing.invite()
    await given.age(mailing.world, "links", seconds=73 * 3600)
    page = await console.visit(path="/members")
    row = page.locator(f"tr:has-text('{ADA}')")
    await expect(row).to_contain_text("invitation expired")
    await row.locator("a").first.click()
    await expect(page.locator("h1")).to_have_text(ADA)
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_text("Withdraw").click()
    if await page.locator("dialog[open] [value=yes], dialog[open] .danger").count():
        await page.locator("dialog[open] [value=yes], dialog[open] .danger").first.click()
    await expect(page).to_have_url(re.compile(r"/console/members"))
    await expect(row).to_have_count(0)


async def test_a_forgotten_password_is_replaced(both: Both) -> None:
    console, mailing = both
    await mailing.add()
    page = await console.stranger("/sign-in", width=NARROW)
    await page.click("text=Forgot password?")
    await accessible(page)
    await submit(page, "[type=submit]", {"[name=email]": ADA})
    await expect(page.get_by_role("status")).to_contain_text("a mail with a link is on its way")
    await accessible(page)
    token = await mailing.link()

    await page.goto(f"{console.url}/console/reset-password#{token}")
    await choose(page, "short pass")
    # the browser itself asks for more characters, and nothing is sent
    await expect(page).to_have_url(f"{console.url}/console/reset-password")
    await choose(page)
    await expect(page.get_by_role("status")).to_contain_text("Your password is changed")
    await submit(page, "[type=submit]", {"[name=email]": ADA, "[name=password]": NEW})
    await expect(page).to_have_url(f"{console.url}/console/overview")


async def test_without_scripts_the_link_is_pasted(both: Both) -> None:
    console, mailing = both
    await mailing.add()
    await mailing.ask()
    token = await mailing.link()
    page = await console.stranger("/sign-in")
    browser = page.context.browser
    assert browser is not None
    async with await browser.new_context(java_script_enabled=False) as context:
        plain = await context.new_page()
        await plain.goto(f"{console.url}/console/reset-password#{token}")
        await plain.fill("[name=token]", f"https://jobs.example.com/console/reset-password#{token}")
        await choose(plain)
        await expect(plain).to_have_url(f"{console.url}/console/sign-in")
    assert await mailing.sign_in(NEW) == 200


async def test_without_mail_nobody_is_offered_one(console: Console) -> None:
    page = await console.stranger("/sign-in")
    await expect(page.locator("text=Forgot password?")).to_have_count(0)
    await page.goto(f"{console.url}/console/forgot-password")
    await expect(page).to_have_url(re.compile("sign-in"))
    admin = await console.visit(Role.TENANT_ADMIN, "/members")
    await admin.click("text=Add member")
    await expect(admin.locator("#new-member [value=invited]")).to_be_disabled()
