"""The workers of one process: one for each cell, which share the slots of the process."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, Self, TypeVar

from fairlead.db.database import Database
from fairlead.library.cell_group import CellGroup, ServedCell
from fairlead.library.cells import Cells
from fairlead.model.access import Principal
from fairlead.model.cells import Cell
from fairlead.runtime.moved_leases import Directory
from fairlead.runtime.recycling import Recycling
from fairlead.runtime.schema_watch import watch_schema
from fairlead.runtime.served_definitions import ServedDefinitions
from fairlead.runtime.service import Service, run_services, wait_any
from fairlead.runtime.shared_capacity import SharedCapacity
from fairlead.runtime.store_source import new_worker_id
from fairlead.runtime.worker import STOP_SECONDS
from fairlead.runtime.worker_process import Metering, WorkerPlan, WorkerProcess, open_metrics
from fairlead.settings import Settings

# How often a removed cell's worker is asked whether its last jobs have ended.
LOOK_SECONDS = 0.5


class WorkingMember(Protocol):
    """A Fairlead whose jobs are run: of the home cell, or of another one."""

    cell: Cell | None
    settings: Settings
    principal: Principal

    @property
    def database(self) -> Database: ...

    @property
    def cells(self) -> Cells[Self]: ...

    async def close(self) -> None: ...

    async def _plan_work(self, home: Self, **options: Any) -> tuple[WorkerPlan, ServedDefinitions]: ...


W = TypeVar("W", bound=WorkingMember)


class CellWorkers(Generic[W]):
    """Runs the jobs of all cells in this process until `stop` is set."""

    def __init__(
        self,
        home: W,
        concurrency: int,
        stopping: Callable[[int], object],
        abandon: asyncio.Event,
        recycling: Recycling | None = None,
        *,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._home = home
        self._recycling = recycling
        # of workers of cells that were removed
        self._ended_before = 0
        self._concurrency = concurrency
        self._labels = labels
        self._stopping = stopping
        self._abandon = abandon
        self._capacity = SharedCapacity(concurrency)
        # the same in all cells: a lease that moves to another cell with its tenant is still held by a known worker
        self._worker_id = new_worker_id()
        self._processes: dict[str, WorkerProcess] = {}
        self._metering: Metering | None = None
        self._group = CellGroup(home.cells, self._serve)
        self._directory = Directory(
            url=home.database.url, settings=home.settings, has_cells=lambda: bool(home.cells)
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run jobs until `stop` is set."""
        with open_metrics(self._home.settings) as self._metering:
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
        plan, served = await self._home._plan_work(  # noqa: SLF001 - of the same class
            self._home,
            concurrency=self._concurrency,
            labels=self._labels,
            stopping=self._announce_stopping,
            worker_id=self._worker_id,
            hear=self._hear_home,
            directory=self._directory,
            metering=self._metering,
            cell=self._find_home_name,
            **({} if self._recycling is None else {"describe": self._recycling.describe}),
        )
        process = self._processes[""] = WorkerProcess(plan)
        grace_seconds = plan.settings.drain_seconds + STOP_SECONDS + plan.settings.lease_seconds
        async with (
            watch_schema(self._home.database, stop),
            self._search_for(served, self._home),
            self._group.run(stop, grace_seconds=grace_seconds),
            run_services(*self._build_watch()),
        ):
            await process.run(stop, self._abandon)

    def _find_home_name(self) -> str:
        """The name of the home cell; empty without a directory."""
        return next((cell.name for cell in self._home.cells.by_name.values() if cell.is_home), "")

    def _build_watch(self) -> list[Service]:
        """The service that compares this process with the limits of its recycling, if there are any."""
        recycling = self._recycling
        if recycling is None:
            return []

        async def look() -> float:
            processes = self._processes.values()
            return recycling.look(
                self._ended_before + sum(one.ended for one in processes),
                serving=self._processes[""].worker is not None,
            )

        return [Service("recycling", look)]

    def _hear_home(self, payload: str) -> None:
        self._group.hear(payload)
        self._hear(payload)

    def _hear(self, payload: str) -> None:
        if payload == "cancel":
            for process in self._processes.values():
                process.wake_heartbeat()

    def _announce_stopping(self, running: int) -> None:
        self._stopping(running + sum(one.running for name, one in self._processes.items() if name))

    def _search_for(self, served: ServedDefinitions, member: W) -> AbstractAsyncContextManager[None]:
        return served.keep_searching(member.database, member.principal)

    async def _serve(self, member: W, served_cell: ServedCell) -> None:
        """Run the jobs of a cell until its `over` is set, or until it was removed and its last jobs have ended."""
        plan, served = await member._plan_work(  # noqa: SLF001
            self._home,
            concurrency=self._concurrency,
            labels=self._labels,
            worker_id=self._worker_id,
            capacity=self._capacity,
            hear=self._hear,
            directory=self._directory,
            metering=self._metering,
            cell=lambda: served_cell.name,
        )
        process = self._processes[served_cell.name] = WorkerProcess(plan)
        self._processes[""].share_slots(self._capacity)
        over = asyncio.Event()
        ending = asyncio.create_task(_end_process(process, served_cell, over))
        try:
            async with self._search_for(served, member):
                await process.run(over, self._abandon)
        finally:
            ending.cancel()
            self._ended_before += self._processes.pop(served_cell.name).ended


async def _end_process(process: WorkerProcess, served_cell: ServedCell, over: asyncio.Event) -> None:
    """Set `over` when the process must end."""
    await wait_any(served_cell.over, served_cell.removed)
    if served_cell.removed.is_set():
        process.retire()
        while process.running and not served_cell.over.is_set():
            await wait_any(served_cell.over, seconds=LOOK_SECONDS)
    over.set()
