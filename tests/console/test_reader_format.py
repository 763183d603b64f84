"""Times and numbers of single pages, in the reader's zone and format."""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from fairlead.server.console.number_format import format_number, thousands_separator
from tests import given
from tests.console.test_common_parts import reader
from tests.console.visiting import NARROW, Console, accessible
from tests.tables import each_case

GERMAN: dict[str, Any] = {"locale": "de-DE", "timezone_id": "Asia/Tokyo"}


@each_case(
    ("language", "text"),
    [
        ("en-GB,en;q=0.9", "1,234,567.50"),
        ("de-DE", "1.234.567,50"),
        ("de-CH,de;q=0.9", "1\u2019234\u2019567.50"),
        ("fr", "1\u202f234\u202f567,50"),
        ("", "1,234,567.50"),
    ],
)
def test_numbers_have_the_marks_of_the_language(language: str, text: str) -> None:
    assert format_number(1234567.5, thousands_separator(language), 2) == text


async def test_usage_is_in_the_readers_format_and_the_tenants_zone(console: Console) -> None:
    async with console.transaction() as tx:
        await given.ended_job(tx, "failed")
        await given.set_counts(tx, run_ms=2500)
    async with reader(console, "/usage?by=month", **GERMAN) as page:
        await expect(page.locator("#of-1")).to_contain_text("100,0 %")
        await expect(page.locator("#of-1")).to_contain_text("2,5 s")
        await expect(page.locator(".when time")).to_have_text(re.compile(r"^\S+ \d{4}$"))
    await given.set_counts(console, run_ms=20)


@pytest.mark.thorough
async def test_the_filter_of_the_audit_log_is_in_the_readers_zone(console: Console) -> None:
    async with reader(console, "/audit", **GERMAN) as page:
        before = page.locator("label:has([name=before])")
        await expect(before).to_contain_text("Before (Asia/Tokyo)")
        await before.locator("[type=datetime-local]").fill("2026-03-02T05:00:00")
        await page.click("text=Search")

        await expect(page).to_have_url(re.compile(r"before=2026-03-01T20%3A00%3A00"))
        await expect(before.locator("[type=datetime-local]")).to_have_value(re.compile("^2026-03-02T05:00"))


@pytest.mark.thorough
async def test_times_of_a_schedule_name_their_zone(console: Console) -> None:
    made = await given.trigger(console, cron_expr="0 3 * * *", timezone="Europe/Berlin")
    async with reader(console, f"/triggers/{made.id}", **GERMAN) as page:
        row = page.locator(".runs tbody tr").first
        await expect(row.locator("td").nth(0)).to_contain_text(re.compile("03:00(?!:)"))
        await expect(row.locator("td").nth(1)).to_contain_text(re.compile("1[01]:00"))
        await page.set_viewport_size({"width": NARROW, "height": 800})
        await accessible(page)
