"""The page of sources, in a real browser."""

from datetime import UTC, datetime

import pytest
from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import Console, accessible_in_each_look

pytestmark = pytest.mark.thorough


async def three_sources(console: Console) -> None:
    """One that runs, one that fails, and one of no tenant that is silent."""
    now = datetime.now(UTC)
    why = "NATS cannot be used now: no servers available."
    async with console.transaction() as tx:
        await given.add_source(tx, "orders", messages=1234, refused=2, last_refusal="payload_not_json")
        await given.add_source(tx, "parcels", event="parcel.sent", failing_since=now, last_error=why)
        await given.add_source(tx, "visits", tenant=None, event="visit.{subject}", seen=-given.HOUR)


async def test_sources_are_shown_paused_and_resumed(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/sources")
    await expect(page.locator("text=No sources")).to_be_visible()
    await three_sources(console)

    await page.reload()

    await expect(page.locator(".banner").nth(0)).to_contain_text(
        "NATS cannot be used now: no servers available."
    )
    await expect(page.locator(".banner").nth(1)).to_contain_text("fairlead sources run visits")
    orders = page.locator("#source-orders")
    await expect(orders).to_contain_text("order.placed")
    await expect(orders).to_contain_text("1,234")
    await expect(orders).to_contain_text("payload_not_json")
    await expect(orders.locator(".status.good")).to_have_text("running")
    await expect(page.locator("#source-visits")).to_contain_text("By message")
    await accessible_in_each_look(page)
    await orders.get_by_role("button", name="Pause orders").click()
    await expect(page.locator(".toast")).to_contain_text("its messages wait in the broker")
    await expect(orders.locator(".status.paused")).to_have_text("paused")
    await orders.get_by_role("button", name="Resume orders").click()
    await expect(orders.locator(".status.good")).to_have_text("running")
    await page.goto("/console/audit")
    await expect(page.locator("main")).to_contain_text("orders")
