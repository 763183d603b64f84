"""Waiting, in asynchronous tests, for what happens by itself."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SECONDS = 30.0


async def eventually(look: Callable[[], T | None], what: str, *, seconds: float = SECONDS) -> T:
    """Poll until `look` answers something true, or fail saying what was waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")
