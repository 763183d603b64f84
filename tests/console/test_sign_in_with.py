"""Sign-in with an identity provider, as a person sees it in a browser."""

import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from tests import given
from tests.console.visiting import NARROW, Browsing, Console, accessible_in_each_look, served
from tests.oidc_stage import Stage, reset_stage
from tests.server.world import world_on

pytestmark = pytest.mark.thorough


@pytest.fixture
async def stage(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with world_on(database_url) as world, reset_stage(world, monkeypatch) as opened:
        yield opened


@pytest.fixture
async def console(stage: Stage, browser: Browsing) -> AsyncIterator[Console]:
    async with served(stage.world, browser) as opened:
        yield opened


async def test_a_person_signs_in_with_a_button_and_out_again(console: Console, stage: Stage) -> None:
    page = await console.stranger("/audit", width=NARROW)
    await accessible_in_each_look(page, shot="sign-in-with")

    await page.click("text=Sign in with Work")
    await expect(page).to_have_url(re.compile("/console/audit$"))
    await page.goto("/console/account")
    await expect(page.locator("main")).to_contain_text("you sign in with Work")
    await accessible_in_each_look(page, shot="account-with")

    await page.click("[aria-label='Sign out']")
    await expect(page.locator("main")).to_contain_text("You are signed out of Fairlead")
    await expect(page.locator("text=Sign out of Work, too")).to_have_attribute(
        "href", re.compile(re.escape(stage.provider.issuer))
    )
    await accessible_in_each_look(page, shot="signed-out")


async def test_a_person_without_a_role_reads_why(console: Console, stage: Stage) -> None:
    stage.provider.person["groups"] = ["staff"]
    page = await console.stranger("/sign-in")

    await page.click("text=Sign in with Work")

    await expect(page.locator("[role=alert]")).to_contain_text("has no role here")
    await accessible_in_each_look(page, shot="sign-in-refused")


async def test_identities_are_unlinked_on_the_account_page_and_by_an_admin(
    console: Console, stage: Stage
) -> None:
    page = await console.stranger("/account", width=NARROW)
    await page.click("text=Sign in with Work")
    section = page.locator("section:has(> .head #identities-title)")
    await expect(section).to_contain_text("ada-1")
    await expect(section.locator("button")).to_be_disabled()  # the only way
    await accessible_in_each_look(page, shot="account-identities")
    user = await given.user_id(stage, "ada@example.com")

    admin = await console.visit(path=f"/members/{user}")
    await expect(admin.locator("text=only way to sign in")).to_be_visible()
    await accessible_in_each_look(admin, shot="member-identities")
    await admin.click("text=Unlink")
    await expect(admin.locator("dialog[open]")).to_contain_text("no way to sign in")
    await accessible_in_each_look(admin, shot="member-unlink")
    await admin.click("dialog[open] button:text-is('Unlink')")
    await expect(admin.locator("#toasts")).to_contain_text("ada@example.com unlinked from Work.")
    await expect(admin.locator("#identities-title")).to_have_count(0)
    await page.reload()
    await expect(page.locator("text=Sign in with Work")).to_be_visible()

    await given.link_identity(stage, user, issuer=stage.provider.issuer)
    await given.give_password(stage, "ada@example.com")
    await page.goto("/console/sign-in?next=/account")
    await page.click("text=Sign in with Work")
    await section.locator("text=Unlink").click()
    await page.click("dialog[open] button:text-is('Unlink')")
    await expect(page).to_have_url(re.compile("/console/sign-in"))
    await expect(page.locator("main")).to_contain_text("Work unlinked.")
