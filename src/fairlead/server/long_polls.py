"""Long polls of workers and agents: one limit for each caller, and one LISTEN connection that wakes all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fairlead.db.listen import Listener
from fairlead.library.app import Fairlead
from fairlead.server.concurrency_limits import ConcurrencyLimit


class LongPolls:
    """The requests of this process that wait. The connection is open while there is at least one."""

    def __init__(self, fl: Fairlead, limit: ConcurrencyLimit) -> None:
        self._fl = fl
        self.limit = limit
        self._listener: Listener | None = None
        self._subscribers = 0

    @asynccontextmanager
    async def wake_at(self, *payloads: str) -> AsyncIterator[asyncio.Event]:
        """An event that each notification with one of these payloads sets."""
        woken = asyncio.Event()
        async with self.subscribe(lambda payload: woken.set() if payload in payloads else None):
            yield woken

    @asynccontextmanager
    async def subscribe(self, subscriber: Callable[[str], None]) -> AsyncIterator[None]:
        """Call `subscriber` with each notification during the block."""
        listener = self._listener
        if listener is None:
            listener = self._listener = Listener(
                self._fl.direct_url, self._fl.settings.schema, citus=self._fl.settings.citus
            )
            await listener.__aenter__()
        self._subscribers += 1
        try:
            with listener.subscribe(subscriber):
                yield
        finally:
            self._subscribers -= 1
            if not self._subscribers:
                self._listener = None
                await listener.__aexit__()
