"""Approvals: listed, answered with a form, and shown with the answer, in a real browser."""

from datetime import UTC, datetime

import pytest
from playwright.async_api import expect

from fairlead.model.access import Role
from tests import given
from tests.console.visiting import NARROW, WIDE, Console, accessible, submit

pytestmark = pytest.mark.thorough

FORM = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "title": "Amount", "minimum": 1},
        "pin": {"type": "string", "title": "PIN", "x-secret": True},
    },
    "required": ["amount"],
}


async def test_an_approval_is_answered_with_the_values_of_its_form(console: Console) -> None:
    async with console.transaction() as tx:
        approval = await given.open_approval(tx, form=FORM)
        await given.open_approval(tx, tenant=given.OTHER)
    page = await console.visit(Role.OPERATOR, "/approvals")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.click("text=Pay?")
    await expect(page.locator("h1")).to_have_text("Pay?")

    await page.click("button >> text=Approve")
    await expect(page.locator(".field-fault")).to_contain_text("required")
    await page.fill("[name='payload/amount']", "12")
    await page.fill("[name='payload/pin']", "4711-4711")
    await page.fill("#comment", "It is fine.")
    await page.click("button >> text=Approve")
    await expect(page.locator("main .status")).to_have_text("approved")
    await expect(page.locator(".json")).to_contain_text('"amount": 12')
    await expect(page.locator("main")).to_contain_text("It is fine.")
    assert "4711-4711" not in await page.content()

    await page.goto("/console/approvals")
    await expect(page.locator("text=No open approvals")).to_be_visible()
    await page.select_option("[name=status]", "approved")
    await expect(page.locator(f"#approval-{approval}")).to_contain_text("approved")


async def test_an_approval_without_a_form_is_rejected_with_a_comment(console: Console) -> None:
    approval = await given.open_approval(console)
    page = await console.visit(Role.TENANT_ADMIN, f"/approvals/{approval}")
    await submit(page, "button >> text=Reject", {"#comment": "Too early"})
    await expect(page.locator("main .status")).to_have_text("rejected")
    await expect(page.locator("main")).to_contain_text("Too early")


async def test_a_late_answer_shows_who_was_first(console: Console) -> None:
    approval = await given.open_approval(console)
    late = await console.visit(Role.OPERATOR, f"/approvals/{approval}")
    first = await console.visit(Role.TENANT_ADMIN, f"/approvals/{approval}")
    await first.click("button >> text=Approve")
    await expect(first.locator("main .status")).to_have_text("approved")
    await late.click("button >> text=Reject")
    await expect(late.locator(".fault")).to_contain_text("was approved by")
    await expect(late.locator("button >> text=Reject")).to_have_count(0)


async def test_a_viewer_reads_approvals_and_answers_none(console: Console) -> None:
    async with console.transaction() as tx:
        approval = await given.open_approval(tx, form=FORM)
        others = await given.open_approval(tx, tenant=given.OTHER)
    shown = (await console.read(Role.VIEWER, f"/approvals/{approval}")).text
    assert "Your role may not answer this approval." in shown
    assert ">Approve<" not in shown
    assert ">Approve<" in (await console.read(Role.OPERATOR, f"/approvals/{approval}")).text
    assert "There is no approval" in (await console.read(Role.TENANT_ADMIN, f"/approvals/{others}")).text


async def test_everybody_can_use_them(console: Console) -> None:
    async with console.transaction() as tx:
        approval = await given.open_approval(tx, form=FORM)
        plain = await given.open_approval(tx)
        now = datetime.now(UTC)
        await given.set_approval(tx, plain, escalate="late", escalate_at=now, escalated_at=now)
        await given.set_approval(tx, plain, status="expired", description="long " * 200)
    for width, theme in ((WIDE, "dark"), (NARROW, "light")):
        page = await console.visit(
            Role.OPERATOR if width == WIDE else Role.SUPER_ADMIN,
            "/approvals?status=any",
            width=width,
            theme=theme,  # type: ignore[arg-type]
        )
        await accessible(page)
        for path in (f"/approvals/{approval}", f"/approvals/{plain}"):
            await page.goto(f"/console{path}")
            await accessible(page)
