"""The one loop: do the work, then wait for a wake or an interval; back off when it fails; stop at a safe point."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from fairlead.errors import FairleadError

log = structlog.get_logger(__name__)

LONGEST_BACKOFF_SECONDS = 10.0

# Does one round of work and says in how many seconds the next is due.
Work = Callable[[], Awaitable[float]]


class Service:
    """A loop that does its work again and again until it is stopped, never in the middle of a round."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self._work = work
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Do the next round now."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until `stop` is set."""
        failures = 0
        while not stop.is_set():
            self._wake.clear()
            try:
                pause = await self._work()
                failures = 0
            except Exception as error:  # noqa: BLE001 - a loop that ends would be missed only when it is needed
                failures += 1
                pause = min(LONGEST_BACKOFF_SECONDS, 0.1 * 2**failures) * random.uniform(0.5, 1)  # noqa: S311
                why = error.message if isinstance(error, FairleadError) else repr(error)
                log.warning("service_failed", service=self.name, why=why, again_in_seconds=round(pause, 2))
            await wait_any(self._wake, stop, seconds=pause)


async def wait_any(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait for the first of these events, or for so long."""
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
