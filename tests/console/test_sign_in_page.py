"""Coming in, going out, and the pages for what is not there."""

import re

import pytest
from playwright.async_api import expect

from fairlead.actions import stats
from fairlead.model.access import Role
from tests.console.visiting import NARROW, Console, accessible, submit
from tests.server.world import PASSWORD


async def test_a_member_signs_in_and_out_and_comes_back_to_where_they_were(console: Console) -> None:
    await console.world.signed_in(Role.VIEWER)  # so that there is such a user
    page = await console.stranger("/audit?action=job_created", width=NARROW, theme="dark")
    await expect(page).to_have_url(re.compile("sign-in"))
    await accessible(page)

    await page.fill("[name=email]", "viewer.acme@fairlead.test")
    await page.fill("[name=password]", "not the password")
    await page.click("[type=submit]")
    await expect(page.locator(".fault")).to_have_text("Wrong email or password.")
    await expect(page.locator("[name=email]")).to_have_value("viewer.acme@fairlead.test")
    await submit(page, "[type=submit]", {"[name=password]": PASSWORD})

    await expect(page).to_have_url(re.compile(r"/console/audit\?action=job_created$"))
    await page.click("[data-menu]")
    await page.click("[aria-label='Sign out']")
    await expect(page).to_have_url(re.compile("sign-in"))
    await page.goto("/console/jobs")
    await expect(page).to_have_url(re.compile("sign-in"))


@pytest.mark.thorough
async def test_what_is_not_there_and_what_is_not_for_them_is_said_on_a_page(console: Console) -> None:
    page = await console.visit(Role.VIEWER, "/nowhere")
    await expect(page.locator("h1")).to_have_text("Not found")
    await accessible(page)

    await page.goto("/console/tokens")
    await expect(page.locator("h1")).to_have_text("Not for your role")
    await expect(page.locator("main")).to_contain_text("viewer")
    await page.click("text=To the jobs")
    await expect(page.locator("h1")).to_have_text("Jobs")


@pytest.mark.thorough
async def test_a_page_that_breaks_says_so_and_nothing_of_why(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await console.visit(Role.OPERATOR, "/enqueue")

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(stats, "get_throughput", broken)
    await page.goto("/console/jobs")

    await expect(page.locator(".code")).to_have_text("500")
    await expect(page.locator("main")).to_contain_text("It was logged; try again.")
    await expect(page.locator("main")).to_contain_text("internal_error")
    assert "hunter2" not in await page.content()
    await accessible(page)
