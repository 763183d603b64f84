"""Charts: what is drawn, and what is shown of the bar under the cursor."""

import re

import pytest
from playwright.async_api import Page, expect

from tests import given
from tests.console.visiting import NARROW, Console, accessible

pytestmark = pytest.mark.thorough

# The last with a value: an hour without runs may have begun since.
LAST_BAR = """() => {
    const chart = document.querySelector('[data-chart]').chart, over = chart.over.getBoundingClientRect();
    const [times, ...rows] = chart.data, last = times.findLastIndex((_, at) => rows.some((row) => row[at]));
    return [over.left + chart.valToPos(times[last], 'x'), over.top + over.height / 2];
}"""


async def fill(console: Console) -> None:
    async with console.transaction() as tx:
        await given.ended_job(tx, "succeeded")
        await given.ended_job(tx, "failed")
        await given.ended_job(tx, "failed")
        await given.count_in_one_minute(tx)


async def test_bars_stand_on_each_other(console: Console) -> None:
    await fill(console)
    page = await console.visit()

    data = await page.evaluate(
        "document.querySelector('[data-chart]').chart.data.slice(1).map(row => Math.max(...row))"
    )

    assert data == [3, 1]  # failed on top of succeeded, drawn first


async def test_the_outermost_bars_and_labels_are_whole(console: Console) -> None:
    await fill(console)
    for path in ("/usage", "/overview"):
        page = await console.visit(path=path, width=NARROW)

        around, room, label = await page.evaluate("""() => {
            const { chart } = document.querySelector('[data-chart]'), [times] = chart.data, { min, max } = chart.scales.x;
            const pen = document.createElement('canvas').getContext('2d');
            pen.font = '12px system-ui';
            return [
                [times[0] - min, max - times.at(-1)],
                chart.width - (chart.bbox.left + chart.bbox.width) / devicePixelRatio,
                pen.measureText('10:00 PM').width,
            ];
        }""")

        assert min(around) > 0
        assert room >= label / 2


async def test_the_bar_under_the_cursor_says_its_time_and_values(console: Console) -> None:
    await fill(console)
    page = await console.visit(path="/usage")
    await point_at_last_bar(page)
    readout = page.locator("[data-chart] .readout").first
    await expect(readout.locator("div")).to_have_text(
        [re.compile(r"^\w+ \d+, \d\d:00 [AP]M$"), "succeeded 1", "failed 2"]
    )
    await accessible(page)
    await page.mouse.move(5, 5)
    await expect(readout).to_be_hidden()

    await given.set_user(console, hour_cycle="h23")
    await page.reload()
    await point_at_last_bar(page)
    await expect(readout.locator("div").first).to_have_text(re.compile(r"^\w+ \d+, \d\d:00$"))
    await page.goto("/console/usage?by=day")
    await point_at_last_bar(page)
    await expect(readout.locator("div").first).to_have_text(re.compile(r"^\w+ \d+$"))


async def point_at_last_bar(page: Page) -> None:
    x, y = await page.evaluate(LAST_BAR)
    await page.mouse.move(x, y)
