"""Graphs of up to 10,000 steps: laid out on the server, drawn by the browser where it looks."""

import pytest
from hypothesis import given as any_of
from hypothesis import settings
from playwright.async_api import expect

from fairlead.actions import workflows
from fairlead.actions.workflows import RunRequest
from fairlead.server.console.graph_layout import BOX_HEIGHT, BOX_WIDTH, GraphShape, layers_of
from fairlead.server.console.large_graph import LargeLayout, LargeShape, find_layers, lay_out
from tests import given
from tests.acting import act
from tests.console.test_graph_layout import shapes
from tests.console.visiting import NARROW, Console, accessible
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

MANY = 10_000
ALL_SHOWN = f"{MANY:,} of {MANY:,} steps shown"
# A few hundred links, each with a handful of parts, beside what every page has.
MOST_ELEMENTS = 6000


def apart(layout: LargeLayout) -> None:
    """No box on another, and all within the drawing."""
    taken = set(zip(layout.x, layout.y, strict=True))
    assert len(taken) == len(layout.x)
    assert all(0 <= x <= layout.width - BOX_WIDTH for x in layout.x)
    assert all(0 <= y <= layout.height - BOX_HEIGHT for y in layout.y)


@settings(max_examples=60, deadline=None)
@any_of(shapes())
def test_steps_stand_apart_and_after_those_they_wait_for(shape: GraphShape) -> None:
    layout = lay_out(LargeShape.of(shape.before, dict(shape.compensations)))

    assert list(layout.layers) == list(layers_of(shape))
    apart(layout)
    assert all(layout.x[start] + BOX_WIDTH < layout.x[end] for start, end in shape.edges)


def test_a_wide_layer_is_folded_to_the_shape_of_a_screen() -> None:
    layout = lay_out(LargeShape.of([[], *([0] for _ in range(MANY - 2)), list(range(1, MANY - 1))], {}))

    apart(layout)
    assert 1 < layout.width / layout.height < 2.5


def test_layers_that_wait_for_whole_layers_have_few_lines() -> None:
    before = [list(range(place // 100 * 100 - 100, place // 100 * 100)) for place in range(100, MANY)]
    shape = LargeShape.of([*([[]] * 100), *before], {})

    layout = lay_out(shape)

    assert len(shape.groups) == 100
    assert len(layout.hubs) == 99
    assert find_layers(shape)[-1] == 99
    apart(layout)


@pytest.mark.timeout(10 * SECONDS)
async def test_a_run_of_many_steps_is_drawn_zoomed_and_lives(console: Console) -> None:
    steps = [
        {"name": f"s{n}", "definition": "anything", "after": [f"s{n - 100}"] if n >= 100 else []}
        for n in range(MANY)
    ]
    async with console.transaction() as tx:
        asked = RunRequest(tenant=given.TENANT)
        run = await workflows.start_inline(tx, given.TESTER, {"key": "huge", "steps": steps}, asked)
    page = await console.visit(path=f"/workflow-runs/{run.id}")
    told = page.locator("[data-view]")
    await expect(told).to_contain_text(ALL_SHOWN)
    await expect(page.locator(".boxes a")).to_have_count(0)
    assert await page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS

    # by keys, until the steps have names
    await page.locator(".graph.window").focus()
    for _ in range(9):
        await page.keyboard.press("+")
    await expect(page.locator(".boxes a text.name").first).to_be_visible()
    await expect(told).not_to_contain_text(ALL_SHOWN)
    assert await page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS
    await accessible(page)

    # to the first steps, which change their state while the page is open
    for _ in range(400):
        if await page.locator(".boxes a.running").count():
            break
        await page.keyboard.press("ArrowLeft")
    await expect(page.locator(".boxes a.running").first).to_be_visible()
    await act(console, workflows.cancel, given.TESTER, run.id)
    await expect(page.locator(".boxes a.canceled").first).to_be_visible()

    await page.locator(".boxes a").first.focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/step?place=*")
    await page.go_back()
    await expect(told).to_contain_text(ALL_SHOWN)
    await page.set_viewport_size({"width": NARROW, "height": 900})
    await expect(told).to_contain_text(ALL_SHOWN)
    await accessible(page)
    # what every test checks at its end would take longer than the test
    await given.forget_runs(console)
