"""Functions registered to run periodically: a worker for exactly those (definition, tenant) pairs, and their scheduler."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from fairlead.db.database import Database
from fairlead.handlers.registry import Registry
from fairlead.handlers.threads import Threads
from fairlead.runtime.execution import ExecutionServices
from fairlead.runtime.service import Service
from fairlead.runtime.trigger_loops import run_triggers
from fairlead.runtime.worker_attempt import Start
from fairlead.runtime.worker_process import WorkerPlan, WorkerProcess

CONCURRENCY = 20


class Periodic:
    """The functions registered in this process, and their loop, which runs from the first registration until canceled."""

    def __init__(
        self,
        start: Callable[[Registry, ExecutionServices], Start],
        threads: Callable[[], Threads],
        version: str,
    ) -> None:
        self._start = start
        self._threads = threads
        self._version = version
        self._reserved: set[tuple[UUID, str]] = set()
        self._loop: PeriodicLoop | None = None

    def reserve(self, tenant_id: UUID, key: str) -> bool:
        """Reserve a pair for a registration, until `release`; False if it is registered or reserved."""
        if (tenant_id, key) in self._reserved or (tenant_id, key) in self:
            return False
        self._reserved.add((tenant_id, key))
        return True

    def release(self, tenant_id: UUID, key: str) -> None:
        """End the reservation: the registration was made, or failed."""
        self._reserved.discard((tenant_id, key))

    def __contains__(self, whose: tuple[UUID, str]) -> bool:
        """Whether this tenant has a function of this key here."""
        return self._loop is not None and whose in self._loop.served

    def add(
        self, database: Database, *, tenant_id: UUID, definition_id: UUID, key: str, fn: Callable[..., Any]
    ) -> None:
        """Run the tenant's jobs of this definition with a function; jobs that are already ready start now."""
        if self._loop is None:
            self._loop = PeriodicLoop(database, self._start, self._threads, self._version)
        self._loop.add(tenant_id, definition_id, key, fn)

    def drop(self, *, tenant_id: UUID, key: str) -> None:
        """Stop claiming the tenant's jobs of this definition."""
        if self._loop is not None:
            self._loop.drop(tenant_id, key)

    async def cancel(self) -> None:
        """Stop, and forget the functions; running jobs have the worker's drain time to end."""
        loop, self._loop = self._loop, None
        if loop is not None:
            await loop.end()


class PeriodicLoop:
    """A worker for the added pairs, and a scheduler; restarted after a pause when it fails."""

    def __init__(
        self,
        database: Database,
        start: Callable[[Registry, ExecutionServices], Start],
        threads: Callable[[], Threads],
        version: str,
    ) -> None:
        self.served: dict[tuple[UUID, str], UUID] = {}
        self._database = database
        self._registry = Registry()
        self._start = start
        self._threads = threads
        self._version = version
        # the worker reads these before every claim and every heartbeat
        self._pairs: list[tuple[UUID, UUID]] = []
        self._keys: list[str] = []
        self._stop = asyncio.Event()
        self._process: WorkerProcess | None = None
        self._task = asyncio.create_task(
            Service("periodic", self._work).run(self._stop), name="fairlead-periodic"
        )

    def add(self, tenant_id: UUID, definition_id: UUID, key: str, fn: Callable[..., Any]) -> None:
        """Serve another pair."""
        self._registry.add_for(tenant_id, key, fn)
        self.served[tenant_id, key] = definition_id
        self._publish_pairs()
        if self._process is not None and self._process.worker is not None:
            self._process.worker.wake()

    def drop(self, tenant_id: UUID, key: str) -> None:
        """Stop claiming a pair's jobs. Its function stays: a claim in progress may still return one."""
        self.served.pop((tenant_id, key), None)
        self._publish_pairs()

    def _publish_pairs(self) -> None:
        self._pairs[:] = [(definition_id, tenant_id) for (tenant_id, _), definition_id in self.served.items()]
        # with the tenant, since this worker does not serve the key for other tenants
        self._keys[:] = sorted(f"{key} {tenant_id}" for tenant_id, key in self.served)

    async def end(self) -> None:
        """Stop at a safe point."""
        self._stop.set()
        await self._task

    async def _work(self) -> float:
        database = self._database
        settings = database.settings
        self._process = WorkerProcess(
            WorkerPlan(
                url=database.url,
                settings=settings,
                start=lambda report: self._start(self._registry, report),
                threads=self._threads(),
                served=[],
                served_pairs=self._pairs,
                keys=self._keys,
                concurrency=CONCURRENCY,
                version=self._version,
            )
        )
        # a separate event, since a worker that fails sets its stop event
        over = asyncio.Event()
        passing_on = asyncio.create_task(_forward_stop(self._stop, over))
        try:
            async with run_triggers(database, settings.direct_url or database.url):
                await self._process.run(over)
        finally:
            passing_on.cancel()
        if not self._stop.is_set():
            raise RuntimeError(
                "the worker of registered functions stopped: too many of its threads are stuck"
            )
        return 0.0


async def _forward_stop(first: asyncio.Event, second: asyncio.Event) -> None:
    await first.wait()
    second.set()
