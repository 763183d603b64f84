"""The console while much happens: what it fetches is bounded, and nothing moves under the cursor."""

import asyncio
import gzip

import pytest
from playwright.async_api import Request, expect

from fairlead import Context, Fairlead
from fairlead.model.job import NewJob
from fairlead.server.console import assets
from tests import given
from tests.console.visiting import Console
from tests.working import working

pytestmark = pytest.mark.thorough

JOBS = 3_000


async def test_a_page_stays_usable_while_thousands_of_jobs_go_through(console: Console) -> None:
    fl = Fairlead(settings=console.world.fl.settings, actor="tester")

    @fl.job(key="busy")
    async def busy(ctx: Context) -> None:
        """Nothing."""

    async with fl:
        await _see_many_go_through(console, fl)


async def _see_many_go_through(console: Console, fl: Fairlead) -> None:
    first = await given.queued_job(console)
    page = await console.visit()
    await expect(page.locator("[data-live-state=live]")).to_be_visible()
    fetched: list[Request] = []

    def fetch(request: Request) -> None:
        fetched.append(request)

    page.on("request", fetch)
    box = await page.locator(f"#job-{first}").bounding_box()
    loop = asyncio.get_running_loop()
    begun = loop.time()

    await fl.enqueue_many([NewJob(definition="busy", tenant=given.TENANT) for _ in range(JOBS)])
    async with working(fl, concurrency=500):
        await page.keyboard.press("?")
        await expect(page.locator("#keys")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator(".new")).to_have_text("100+ new")
        assert await page.locator(f"#job-{first}").bounding_box() == box, "the row has moved"
        await expect(page.locator(".level.succeeded strong")).to_have_text(f"{JOBS:,}")
    page.remove_listener("request", fetch)
    assert await page.locator(f"#job-{first}").bounding_box() == box, "the row has moved"
    assert len(fetched) <= loop.time() - begun + 3, "more than one look a second"


def test_everything_a_page_loads_is_small() -> None:
    total = sum(
        len(gzip.compress(one.read_bytes()))
        for one in assets.static_folder().iterdir()
        if one.is_file() and one.name.endswith((".js", ".css"))
    )
    assert total <= 150 * 1024


def test_whose_work_is_in_it_is_said() -> None:
    said = {one.name for one in assets.static_folder().joinpath("licences").iterdir()}
    assert said == {"htmx.txt", "lucide.txt", "uplot.txt"}
