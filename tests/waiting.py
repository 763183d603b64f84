"""Waiting, in asynchronous tests, for what happens by itself."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairlead.db.tx import Tx
from tests.meter import measure_slowness

T = TypeVar("T")
# Generous, and more so on a slow or busy machine: a wait that is too short tells nothing about the product.
SECONDS = 120.0 * min(measure_slowness(), 5.0)


async def eventually(look: Callable[[], T | None], what: str, *, seconds: float = SECONDS) -> T:
    """Poll until `look` answers something true, or fail saying what was waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


async def until(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """The same for what has to be awaited; it looks less often the longer it takes."""
    deadline, pause = time.monotonic() + SECONDS, 0.01
    while time.monotonic() < deadline:
        if found := await look():
            return found
        await asyncio.sleep(pause)
        pause = min(1.3 * pause, 0.2)
    raise AssertionError(f"waited {SECONDS:.0f} s for {what}")


async def until_somebody_waits(tx: Tx) -> None:
    """Until somebody else waits for a lock that this transaction holds, as far as is known of a test's own server."""
    async with asyncio.timeout(SECONDS):
        while not (await tx.values("select from pg_locks where not granted"))[:1]:
            await asyncio.sleep(0.001)
