"""Webhooks: created, tried, paused, and their deliveries, in a real browser."""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from fairlead.actions import definitions, webhooks
from fairlead.actions.dispatch import dispatch
from fairlead.model.access import Role
from fairlead.model.trigger import Trigger
from tests import given
from tests.acting import act
from tests.console.visiting import Console, accessible_in_each_look, close_secret, submit
from tests.server.test_worker_api import claimed, tell

pytestmark = pytest.mark.thorough

URL = "https://hooks.example.com/jobs"
SECRET_HEADER = "hunter2-is-the-header"  # noqa: S105
HTTP = {
    "key": "http.request",
    "arg_schema": {"properties": {"secret_headers": {"type": "object", "x-secret": True}}},
}


async def webhook(console: Console) -> Trigger:
    async with console.transaction() as tx:
        await definitions.patch(tx, given.TESTER, "http.request", HTTP)
        [made] = await webhooks.add(tx, given.TESTER, given.TENANT, url=URL, events=["job.failed"])
    return made


async def delivered(console: Console, what: str, **said: Any) -> None:
    """A job fails, and the webhook's call of it ends so."""
    await given.ended_job(console, "failed")
    await act(console, dispatch, given.catalog(), limit=10)
    item = await claimed(console.world, definitions=["http.request"])
    await tell(console.world, item, what, **said)


async def test_a_webhook_is_created_and_its_secret_is_shown_once(console: Console) -> None:
    await act(console, definitions.patch, given.TESTER, "http.request", HTTP)
    page = await console.visit(path="/webhooks")
    await expect(page.locator("text=No webhooks yet")).to_be_visible()

    await page.click("text=Add webhook")
    await submit(page, "text=Create webhook", {"[name=url]": "ftp://x"})
    await expect(page.locator(".fault")).to_contain_text("Choose at least one event")
    await page.check("[value='job.failed']")
    await page.click("text=Create webhook")
    await expect(page.locator("#new-webhook-url-said")).to_be_visible()
    await accessible_in_each_look(page, shot="webhook-new")
    await submit(page, "text=Create webhook", {"[name=url]": URL, "[name=sign_with]": "hooks"})
    secret = await page.locator("[data-shown-once] pre").first.inner_text()
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
    await close_secret(page)
    await expect(page.locator("tbody tr")).to_contain_text("hooks")
    await accessible_in_each_look(page, shot="webhooks")
    await page.click(f"tbody >> text={URL}")
    await expect(page.locator("main")).to_contain_text("No deliveries yet")
    assert secret not in await page.content()


async def test_it_is_tried_paused_and_deleted(console: Console) -> None:
    made = await webhook(console)
    page = await console.visit(path=f"/webhooks/{made.id}")

    await page.click("text=Pause")
    await expect(page.locator("h1 .status")).to_have_text("paused")
    await page.click("text=Resume")
    await expect(page.locator("h1 .status")).to_have_text("active")
    await page.click("text=Send test")
    await expect(page.locator("h1")).to_contain_text("http.request")
    await expect(page.locator("#payload")).to_contain_text("test: true")
    await expect(page.locator("#payload")).to_contain_text(URL)
    await page.goto(f"/console/webhooks/{made.id}")
    await page.click("text=Delete")
    await page.click("#confirm [data-yes]")
    await expect(page.locator("text=No webhooks yet")).to_be_visible()


async def test_deliveries_show_the_response_and_a_failed_one_is_retried(console: Console) -> None:
    made = await webhook(console)
    await delivered(console, "complete", output={"status": 202, "body": "thanks"})
    await delivered(console, "fail", error={"type": "HttpStatus", "message": "404"}, retryable=False)
    page = await console.visit(Role.OPERATOR, f"/webhooks/{made.id}")

    rows = page.locator("#deliveries tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.nth(1)).to_contain_text("202")
    await rows.nth(1).locator("summary").click()
    await expect(rows.nth(1).locator("pre")).to_contain_text("thanks")
    await expect(rows.nth(0)).to_contain_text("404")
    await accessible_in_each_look(page, shot="webhook")
    await rows.nth(0).locator("text=Retry").click()
    await expect(rows.nth(0)).to_contain_text("queued")


async def test_a_viewer_reads_no_secret(console: Console) -> None:
    made = await webhook(console)
    template = {**made.payload_template, "secret_headers": {"authorization": SECRET_HEADER}}
    await given.set_trigger(console, made.id, payload_template=template)
    for path in ("/webhooks", f"/webhooks/{made.id}"):
        assert SECRET_HEADER not in (await console.read(Role.VIEWER, path)).text
