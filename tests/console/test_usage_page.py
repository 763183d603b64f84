"""Usage, in a real browser and as a table."""

import itertools
from datetime import UTC, datetime, timedelta

from playwright.async_api import expect

from fairlead.model.access import Role
from fairlead.server.console.pages.usage import as_csv, charted
from fairlead.store.usage import Flow
from tests import given
from tests.console.visiting import NARROW, WIDE, Console, accessible

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


def flow(**fields: object) -> Flow:
    plain = {
        "definition_key": "greet",
        "starts_at": NOW.replace(minute=0),
        "succeeded": 0,
        "failed": 0,
        "dead_letter": 0,
        "canceled": 0,
    }
    return Flow(**(plain | fields))  # type: ignore[arg-type]


def test_hours_without_jobs_are_drawn_too_and_none_is_below_nothing() -> None:
    at, good, bad = charted(
        [
            flow(succeeded=3, dead_letter=1),
            flow(definition_key="other", succeeded=2, failed=1),
            flow(starts_at=NOW.replace(minute=0) - timedelta(hours=24), succeeded=-1),
        ],
        NOW,
    )

    assert {later - sooner for sooner, later in itertools.pairwise(at)} == {3600}
    assert (good[-2], bad[-2], sum(good), sum(bad), len(at)) == (5, 2, 5, 2, 27)


def test_a_table_holds_no_formulas() -> None:
    text = as_csv(
        [flow(definition_key=key, canceled=-1) for key in ("=1+1", "+a", "-b", "@c", "\td", "fine")]
    )

    heading, *lines = text.splitlines()
    assert heading == "definition_key,starts_at,succeeded,failed,dead_letter,canceled"
    assert [line.split(",")[0] for line in lines] == ["'=1+1", "'+a", "'-b", "'@c", "'\td", "fine"]
    assert lines[-1] == "fine,2026-03-01T12:00:00+00:00,0,0,0,-1"


async def test_a_viewer_sees_what_ends_and_takes_it_home(console: Console) -> None:
    page = await console.visit(Role.VIEWER, "/usage")
    await expect(page.locator("text=No job ended in the last 24 hours")).to_be_visible()
    await expect(page.locator("[data-live-state=live]")).to_be_visible()

    async with console.transaction() as tx:
        for status in ("succeeded", "succeeded", "dead_letter", "failed"):
            await given.ended_job(tx, status)
        await given.ended_job(tx, "canceled", definition="anything")
        await given.ended_job(tx, "succeeded", tenant=given.OTHER)

    await expect(page.locator(".plot canvas")).to_be_visible()
    await expect(page.locator(".plot")).to_have_attribute(
        "aria-label", "2 jobs succeeded and 2 failed in the last 24 hours"
    )
    await expect(page.locator("#of-1")).to_contain_text("50.0 %")
    await expect(page.locator("#of-2")).to_contain_text("anything")
    await page.click("text=day")
    await expect(page.locator("h2:has-text('By day')")).to_be_visible()
    async with page.expect_download() as coming:
        await page.click("text=CSV")
    taken = await coming.value
    answer = await page.request.get(taken.url)
    assert taken.suggested_filename.startswith(f"usage-{given.TENANT}-")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    lines = (await answer.text()).splitlines()
    assert [line.split(",")[0] for line in lines] == ["definition_key", "anything", "greet"]
    assert lines[2].endswith(",2,1,1,0")


async def test_everybody_can_use_the_figures(console: Console) -> None:
    async with console.transaction() as tx:
        await given.ended_job(tx, "failed")
    await accessible(await console.visit(path="/usage", width=WIDE))
    await accessible(await console.visit(Role.SUPER_ADMIN, "/usage", width=NARROW, theme="dark"))
