"""What must be in view in the windows of small laptops."""

import pytest
from playwright.async_api import Page, expect

from fairlead.actions import error_groups
from fairlead.model.access import Role
from tests import given
from tests.console.visiting import Console, accessible

pytestmark = pytest.mark.thorough

LAPTOP = 1280
# The right edge of a column's cell in the first row, and the left edge of the buttons that may cover it or of the frame's end.
EDGES = """([table, name]) => {
    const found = document.querySelector(table), column = [...found.tHead.rows[0].cells].findIndex((cell) => cell.innerText.trim() === name);
    const row = found.tBodies[0].rows[0], last = row.querySelector("td.acts"), cell = row.cells[column];
    const inner = cell.firstElementChild || cell;
    return [inner.getBoundingClientRect().right, last ? last.getBoundingClientRect().left : found.closest(".scroll").getBoundingClientRect().right];
}"""


async def require_in_view(page: Page, table: str, column: str) -> None:
    right, limit = await page.evaluate(EDGES, [table, column])
    assert right <= limit + 1, f"{column} ends at {right}, and {limit} is the end of the view"


async def test_what_matters_in_lists(console: Console) -> None:
    async with console.transaction() as tx:
        await given.failed_job(tx, "No " * 200)
        await error_groups.fold_failures(tx)
        await given.trigger(tx, label="Nightly report", cron_expr="30 2 * * *", timezone="America/New_York")
    page = await console.visit(Role.SUPER_ADMIN, "/jobs", width=LAPTOP)

    # the duration of jobs
    await require_in_view(page, "table.jobs", "Duration")
    await expect(page.locator("th", has_text="Priority")).to_be_hidden()
    await page.goto(f"/console/jobs?tenant={given.TENANT}")
    await require_in_view(page, "table.jobs", "Duration")
    await expect(page.locator("th", has_text="Priority")).to_be_hidden()

    # whether tenants are paused
    await page.goto("/console/tenants")
    await require_in_view(page, "table.tenants", "Processing")

    # the state of triggers with exact times
    await page.goto("/console/triggers")
    await page.click("[data-times-toggle]")
    await require_in_view(page, "table.triggers", "State")

    # the search of errors is one line
    await page.goto("/console/errors")
    tops = await page.locator("main form.filters :is(select, button)").evaluate_all(
        "all => all.map((one) => Math.round(one.getBoundingClientRect().top))"
    )
    assert len(set(tops)) == 1


async def test_the_account_and_sign_out(console: Console) -> None:
    page = await console.visit(Role.SUPER_ADMIN, "/system", width=LAPTOP)
    for height in (800, 500):
        await page.set_viewport_size({"width": LAPTOP, "height": height})
        await page.reload()

        for part in (".who a", "[data-theme-toggle]", "form[action$='/sign-out'] button"):
            await expect(page.locator(part)).to_be_in_viewport(ratio=1)
        # the link of this page is not behind them
        link, foot = page.locator("#nav li [aria-current]"), page.locator(".foot")
        box, below = await link.bounding_box(), await foot.bounding_box()
        assert box is not None
        assert below is not None
        assert box["y"] + box["height"] <= below["y"] + 1
    await accessible(page, whole=True)
