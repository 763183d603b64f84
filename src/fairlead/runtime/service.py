"""The loop of every service: do the work, wait for a wake or an interval; back off on failure; stop between rounds."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from fairlead.errors import FairleadError

log = structlog.get_logger(__name__)

LONGEST_BACKOFF_SECONDS = 10.0
CANCEL_SECONDS = 0.5

# Does one round of work and returns the seconds until the next.
Work = Callable[[], Awaitable[float]]


class Service:
    """A loop that repeats its work until it is stopped; it stops only between rounds."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self._work = work
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Do the next round now."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Repeat the work until `stop` is set."""
        failures = 0
        while not stop.is_set():
            self._wake.clear()
            try:
                pause = await self._work()
                failures = 0
            except Exception as error:  # noqa: BLE001 - the loop must survive any error of its work
                failures += 1
                pause = min(LONGEST_BACKOFF_SECONDS, 0.1 * 2**failures) * random.uniform(0.5, 1)  # noqa: S311
                why = error.message if isinstance(error, FairleadError) else repr(error)
                log.warning("service_failed", service=self.name, why=why, again_in_seconds=round(pause, 2))
            await wait_any(self._wake, stop, seconds=pause)


async def wait_any(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait for the first of these events, for at most `seconds`."""
    if len(events) == 1:  # needs no task
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await events[0].wait()
        return
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


@asynccontextmanager
async def run_services(*services: Service, stop: asyncio.Event | None = None) -> AsyncIterator[None]:
    """Run services during the block. They stop at a safe point at its end, or earlier if `stop` is set; the end sets it."""
    over = stop or asyncio.Event()
    running = [asyncio.create_task(one.run(over), name=f"fairlead-{one.name}") for one in services]
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*running)


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks repeatedly until they end: asyncio.wait_for in Python 3.11 can swallow a cancel."""
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_SECONDS)
