"""Usage, in a real browser and as a table."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import expect

from fairlead.model.access import Role
from fairlead.model.usage import UsageFigures
from fairlead.server.console.pages.usage import build_charts
from tests import given
from tests.console.visiting import Console, accessible_in_each_look

pytestmark = pytest.mark.thorough

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_steps_in_which_nothing_ran_are_drawn_too() -> None:
    starts = [NOON + timedelta(hours=n) for n in range(24)]
    found = build_charts(
        starts,
        {starts[3].timestamp(): UsageFigures(runs=4, succeeded=3, retried=1, run_ms=90_000, cost_cents=5)},
    )

    at, good, bad = found["runs"].rows
    assert {later - sooner for sooner, later in itertools.pairwise(at)} == {3600}
    assert (good[3], bad[3], sum(good), sum(bad), len(at)) == (3, 1, 3, 1, 24)
    assert (found["run_time"].unit, found["run_time"].rows[1][3]) == ("minutes", 1.5)
    assert found["cost"].rows[1][3] == 0.05


async def test_a_viewer_sees_what_ends_and_takes_it_home(console: Console) -> None:
    page = await console.visit(Role.VIEWER, "/usage")
    await expect(page.locator("text=No runs in the last 24 hours")).to_be_visible()
    await expect(page.locator("[data-live-state=live]")).to_be_visible()

    async with console.transaction() as tx:
        for status in ("succeeded", "succeeded", "dead_letter", "failed"):
            await given.ended_job(tx, status)
        await given.ended_job(tx, "canceled", definition="anything")
        await given.ended_job(tx, "succeeded", tenant=given.OTHER)
        await given.count_in_one_minute(tx)

    await expect(page.locator(".plot canvas")).to_have_count(3)
    await expect(page.locator(".plot").first).to_have_attribute(
        "aria-label", "2 runs succeeded and 2 failed in the last 24 hours"
    )
    await expect(page.locator(".cards")).to_contain_text("0.35")
    await expect(page.locator("#of-1")).to_contain_text("50.0 %")
    await expect(page.locator("#of-2")).to_contain_text("anything")
    await accessible_in_each_look(page)
    await page.click("text=30 days")
    await expect(page.locator("h2:has-text('Runs by day')")).to_be_visible()
    async with page.expect_download() as coming:
        await page.click("text=CSV")
    taken = await coming.value
    answer = await page.request.get(taken.url)
    assert taken.suggested_filename.startswith(f"usage-{given.TENANT}-")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    lines = (await answer.text()).splitlines()
    assert [line.split(",")[2] for line in lines] == ["definition_key", "anything", "greet"]
    assert lines[2].endswith(",greet,4,2,1,1,0,0,0,80,12,28")
