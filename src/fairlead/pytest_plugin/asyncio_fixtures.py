"""The fixture that opens an asynchronous Fairlead in the tests of pytest-asyncio; loaded where that plugin is."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio


@pytest_asyncio.fixture
async def _open_on_asyncio(fairlead_app: Any, _fairlead_options: dict[str, Any]) -> AsyncIterator[Any]:
    from fairlead import test_database  # noqa: PLC0415 - pytest loads this module in every run

    async with test_database.fairlead(fairlead_app, **_fairlead_options) as fl:
        yield fl
