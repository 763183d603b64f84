"""Sign-in with an identity provider, as a person sees it in a browser."""

import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import expect

from tests.console.visiting import NARROW, Browsing, Console, accessible_in_each_look, served
from tests.oidc_stage import Stage, reset_stage
from tests.server.world import world_on


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
