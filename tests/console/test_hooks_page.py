"""Hooks: created, their URL and secret shown, rotated, paused, and their events, in a real browser."""

import re

import httpx2
import pytest
from playwright.async_api import expect

from fairlead.actions import hooks
from fairlead.model.access import Role
from fairlead.model.hooks.hook import Hook, Scheme
from tests import given
from tests.console.visiting import Console, accessible_in_each_look, close_secret, submit
from tests.server.world import BASE
from tests.signing import signed

pytestmark = pytest.mark.thorough

SECRET = "a secret of sixteen"  # noqa: S105


async def hook(console: Console) -> Hook:
    async with console.transaction() as tx:
        made = await hooks.create(
            tx,
            given.TESTER,
            tenant_id=console.world.tenants[given.TENANT],
            name="github",
            scheme=Scheme.GITHUB,
            secret=SECRET,
        )
    return made.hook


async def deliver(console: Console, *, secret: str = SECRET, message_id: str = "d1") -> httpx2.Response:
    headers = signed(Scheme.GITHUB, secret, b"{}", message_id=message_id)
    return await console.world.client.post(
        f"{BASE}/hooks/{given.TENANT}/github", content=b"{}", headers=headers
    )


async def test_a_hook_is_created_and_its_secret_is_shown_once(console: Console) -> None:
    page = await console.visit(path="/hooks")
    await expect(page.locator("text=No hooks yet")).to_be_visible()

    await page.click("text=Add hook")
    await submit(page, "text=Create hook", {"[name=name]": "Not a name"})
    await expect(page.locator("#new-hook-name-said")).to_contain_text("must begin with a letter")
    await accessible_in_each_look(page, shot="hook-new")
    await page.fill("[name=name]", "stripe")
    await page.select_option("[name=scheme]", "stripe")
    await page.click("text=Create hook")
    await expect(page.locator("#new-hook-secret-said")).to_contain_text("is required")
    await page.select_option("[name=scheme]", "github")
    await page.click("text=Create hook")
    shown = page.locator("[data-shown-once] pre")
    await expect(shown).to_have_count(2)
    assert (await shown.nth(0).inner_text()).endswith(f"/hooks/{given.TENANT}/stripe")
    secret = await shown.nth(1).inner_text()
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", secret)
    await close_secret(page)
    await accessible_in_each_look(page, shot="hooks")
    await page.click("tbody >> text=stripe")
    await expect(page.locator("main")).to_contain_text("No deliveries yet")
    assert secret not in await page.content()


async def test_its_events_and_the_reason_of_its_last_refusal_are_shown(console: Console) -> None:
    made = await hook(console)
    assert (await deliver(console)).status_code == 202
    assert (await deliver(console, secret="a forged secret of mine")).status_code == 401  # noqa: S106
    page = await console.visit(Role.VIEWER, f"/hooks/{made.id}")

    await expect(page.locator("#hook-details")).to_contain_text("Its signature was wrong")
    await expect(page.locator("#hook-details pre")).to_contain_text(f"/hooks/{given.TENANT}/github")
    await expect(page.locator("#received tbody tr")).to_have_count(1)
    await expect(page.locator("#hook-head button")).to_have_count(0)
    await page.click("#received tbody a")
    await expect(page.locator("h1")).to_contain_text("github.push")


async def test_it_is_rotated_changed_paused_tried_and_deleted(console: Console) -> None:
    made = await hook(console)
    page = await console.visit(path=f"/hooks/{made.id}")

    await accessible_in_each_look(page, shot="hook")
    await page.click("#hook-head >> text=Rotate secret")
    await accessible_in_each_look(page, shot="hook-rotate")
    await page.click("#rotate-body >> text=Rotate secret")
    secret = await page.locator("[data-shown-once] pre").nth(1).inner_text()
    await close_secret(page)
    for number, one in enumerate((secret, SECRET)):
        assert (await deliver(console, secret=one, message_id=str(number))).status_code == 202
    await expect(page.locator("#hook-details")).to_contain_text("Valid until")

    await submit(page, "text=Save", {"[name=event_name]": "job.{type}"})
    await expect(page.locator("#settings-event_name-said")).to_contain_text("reserved")
    await submit(page, "text=Save", {"[name=event_name]": "code.{type}"})
    await expect(page.locator("#hook-details")).to_contain_text("code.{type}")

    await page.click("text=Pause")
    await expect(page.locator("h1 .status")).to_have_text("paused")
    assert (await deliver(console, message_id="3")).status_code == 409
    await page.click("text=Resume")
    await expect(page.locator("h1 .status")).to_have_text("active")
    await page.click("text=Send test")
    await expect(page.locator("h1")).to_contain_text("code.test")
    await page.goto(f"/console/hooks/{made.id}")
    await page.click("text=Delete")
    await page.click("#confirm [data-yes]")
    await expect(page.locator("text=No hooks yet")).to_be_visible()
