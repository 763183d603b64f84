"""Shared by all tests of the console: see visiting.py for what a Console offers."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import expect

from tests.console.visiting import Browsing, Console, browsing, served
from tests.server.world import world_on
from tests.waiting import SECONDS

# What is there is seen at once.
expect.set_options(timeout=SECONDS * 1000)


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browsing]:
    """One browser for all tests of this process; each page of a test has a context to itself."""
    try:
        async with browsing() as opened:
            yield opened
    except PlaywrightError as error:
        if "Executable doesn't exist" not in str(error):
            raise
        pytest.skip("needs Chromium: make tools")


@pytest.fixture
async def console(database_url: str, browser: Browsing) -> AsyncIterator[Console]:
    """The console over a database of the test's own."""
    async with world_on(database_url) as world, served(world, browser) as opened:
        yield opened
