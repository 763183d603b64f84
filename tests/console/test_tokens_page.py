"""Tokens, in a real browser."""

import re

import pytest
from playwright.async_api import Page, expect

from tests import given
from tests.console.visiting import Console, accessible, accessible_in_each_look, close_secret

pytestmark = pytest.mark.thorough


async def shown(page: Page) -> list[str]:
    found = page.locator("[data-shown-once] pre")
    await expect(found).to_have_count(2)
    return await found.all_text_contents()


async def test_a_secret_is_shown_once_and_works(console: Console) -> None:
    page = await console.visit(path="/tokens")
    await page.click("text=New token")
    await page.click("#new-token [type=submit]")
    await expect(page.locator("#new-token-name-said")).to_contain_text("must have 1 to 200")
    await page.fill("#new-token-name", "nightly")
    await page.check("#new-token [value=viewer]")
    await page.select_option("#new-token-days", "7")
    async with page.expect_response(re.compile("/tokens")) as answering:
        await page.click("#new-token [type=submit]")
    answer = await answering.value

    secret, curl = await shown(page)
    assert curl == f"curl {console.url}/api/v1/jobs -H 'Authorization: Bearer {secret}'"
    bearer = {"Authorization": f"Bearer {secret}"}
    assert await console.world.status("GET", "/jobs", who=None, headers=bearer) == 200
    assert answer.headers["cache-control"] == "no-store"
    assert "set-cookie" not in answer.headers
    assert secret not in answer.url + str(answer.headers)
    await accessible(page)
    await close_secret(page)
    row = page.locator("tr:has-text('nightly')")
    await expect(row).to_contain_text("valid")
    await expect(row).to_contain_text("in 6 d")
    await page.reload()
    cookies = str(await page.context.cookies())
    kept = await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert secret not in page.url + await page.content() + cookies + kept
    await expect(page.locator("#add-token [name=name]")).to_have_count(1)


async def test_an_agent_needs_a_host(console: Console) -> None:
    page = await console.visit(path="/tokens")
    await page.click("text=New token")
    await expect(page.locator("#new-token-host_id")).to_be_hidden()
    await page.fill("#new-token-name", "its agent")
    await page.check("#new-token [value=agent]")
    await page.click("#new-token [type=submit]")
    await expect(page.locator("#new-token-host_id-said")).to_contain_text("is required for the role agent")
    await accessible_in_each_look(page)
    await page.select_option("#new-token-host_id", label="host")
    await page.click("#new-token [type=submit]")

    secret, curl = await shown(page)
    assert f"/agent/hosts/{console.world.hosts[given.TENANT]}/session" in curl
    bearer = {"Authorization": f"Bearer {secret}"}
    path = f"/agent/hosts/{console.world.hosts[given.TENANT]}/session"
    assert await console.world.status("POST", path, who=None, headers=bearer, json={"version": "1"}) == 201


async def test_a_token_is_revoked_after_a_question(console: Console) -> None:
    page = await console.visit(path="/tokens")
    row = page.locator(f"#token-{console.world.token_ids[given.TENANT, 'viewer']}")
    await expect(row).to_contain_text("valid")
    expired = page.locator(f"#token-{console.world.token_ids[given.TENANT, 'expired']}")
    await expect(expired).to_contain_text("expired")
    await accessible_in_each_look(page)

    await row.locator("text=Revoke").click()
    await expect(page.locator("#confirm")).to_contain_text("Revoke the token acme.viewer?")
    # remembered as good for a moment
    assert await console.world.status("GET", "/jobs", who="viewer") == 200
    await page.click("#confirm [data-yes]")

    await expect(row).to_contain_text("revoked")
    await expect(row.locator("button")).to_have_count(0)
    assert await console.world.status("GET", "/jobs", who="viewer") == 401


async def test_a_token_is_rotated_with_an_overlap_and_its_new_secret_shown_once(console: Console) -> None:
    token_id = console.world.token_ids[given.TENANT, "viewer"]
    page = await console.visit(path="/tokens")
    row = page.locator(f"#token-{token_id}")
    await row.get_by_role("button", name="Rotate").click()
    await expect(page.locator("#rotate-token")).to_contain_text("acme.viewer")
    await accessible_in_each_look(page, shot="token-rotate")
    await page.select_option("#rotate-token-overlap", "86400")
    async with page.expect_response(re.compile("/rotate")) as answering:
        await page.click("#rotate-token-form [type=submit]")
    answer = await answering.value

    secret, _ = await shown(page)
    await expect(page.locator("[data-shown-once]")).to_contain_text("The old secret stays valid for a day")
    await accessible_in_each_look(page, shot="token-rotated")
    bearer = {"Authorization": f"Bearer {secret}"}
    assert await console.world.status("GET", "/jobs", who=None, headers=bearer) == 200
    assert await console.world.status("GET", "/jobs", who="viewer") == 200
    assert answer.headers["cache-control"] == "no-store"
    await close_secret(page)
    await expect(row).to_contain_text("being replaced")
    await expect(row.get_by_role("button", name="Rotate")).to_have_count(0)
    assert secret not in await page.content()
