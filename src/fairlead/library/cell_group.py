"""Serves all cells of the directory in one process: each in its own task, from when it is added until it is removed."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, Protocol, Self, TypeVar

import structlog

from fairlead.actions.cells import CELLS
from fairlead.db.listen import POLL
from fairlead.errors import FairleadError
from fairlead.library.cell_rounds import CellRounds
from fairlead.library.cells import Cells, Member
from fairlead.runtime.service import Service, cancel_and_wait, wait_any

log = structlog.get_logger(__name__)

M = TypeVar("M", bound=Member)

# How often the list is read, in case a notification was lost; never if there is only one cell.
LOOK_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0
# How often a cell that stays away is logged.
LOG_SECONDS = 300.0
# How long loops that are stopped may need to end their round.
GRACE_SECONDS = 10.0


class ServedCell:
    """A cell that is served: `over` is set when that must end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.over = asyncio.Event()
        # set when the cell was removed from the directory: what runs may end first
        self.removed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class CellGroup(Generic[M]):
    """Serves every cell except home. A cell that is away is tried again after a pause, and does not delay the others."""

    def __init__(self, cells: Cells[M], serve: Callable[[M, ServedCell], Awaitable[None]]) -> None:
        """`serve` serves a cell until its `over` is set."""
        self._cells = cells
        self._serve = serve
        self._rounds = Service("cell_rounds", CellRounds(cells))
        self._served: dict[str, ServedCell] = {}
        self._wake = asyncio.Event()
        self._connections = 0

    def hear(self, payload: str) -> None:
        """Handle a notification of the home cell."""
        if payload == POLL:
            self._connections += 1
        if payload in ("gate", CELLS):
            self._rounds.wake()
        # the list was read when this process began; after a new connection, notifications may be missing
        if payload == CELLS or (payload == POLL and self._connections > 1):
            self._wake.set()

    @asynccontextmanager
    async def run(self, stop: asyncio.Event, *, grace_seconds: float) -> AsyncIterator[None]:
        """Serve the cells during the block, until `stop` is set; cells that need longer to end than the grace are left.

        A block that fails sets no `stop`: it is the caller's, who may try again.
        """
        self._start_and_stop()
        keeping = asyncio.create_task(self._keep(stop), name="fairlead-cells")
        rounds = asyncio.create_task(self._rounds.run(stop), name="fairlead-cell-rounds")
        try:
            yield
        finally:
            await cancel_and_wait(keeping, rounds)
            await self._end_all(grace_seconds)

    async def _keep(self, stop: asyncio.Event) -> None:
        """Follow the list of cells until `stop` is set."""
        while not stop.is_set():
            await wait_any(self._wake, stop, seconds=LOOK_SECONDS if self._cells else None)
            self._wake.clear()
            if stop.is_set():
                break
            try:
                await self._cells.refresh()
            except FairleadError as error:
                log.warning("cells_not_read", why=error.message)
            self._start_and_stop()
            self._rounds.wake()
        self._begin_to_end()

    def _begin_to_end(self) -> None:
        for served in self._served.values():
            served.over.set()

    def _start_and_stop(self) -> None:
        names = {name for name, cell in self._cells.by_name.items() if not cell.is_home}
        for name in [name for name in self._served if name not in names]:
            log.info("cell_left", cell=name)
            self._served[name].removed.set()
        self._served = {
            name: one for name, one in self._served.items() if one.task is None or not one.task.done()
        }
        for name in sorted(names - self._served.keys()):
            one = self._served[name] = ServedCell(name)
            one.task = asyncio.create_task(self._keep_serving(one), name=f"fairlead-cell-{name}")

    async def _keep_serving(self, one: ServedCell) -> None:
        pause, logged_at = FIRST_PAUSE_SECONDS, -LOG_SECONDS
        with structlog.contextvars.bound_contextvars(cell=one.name):
            while not one.over.is_set() and not one.removed.is_set():
                try:
                    member = await self._cells.member(one.name)
                    if logged_at > 0:
                        log.warning("cell_is_back")
                    pause, logged_at = FIRST_PAUSE_SECONDS, -LOG_SECONDS
                    await self._serve(member, one)
                except Exception as error:  # noqa: BLE001 - the cell must be served again after any error
                    why = error.message if isinstance(error, FairleadError) else repr(error)
                    if time.monotonic() - logged_at >= LOG_SECONDS:
                        log.warning("cell_away", why=why)
                        logged_at = time.monotonic()
                await wait_any(one.over, one.removed, seconds=pause * random.uniform(0.8, 1.2))  # noqa: S311
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._wake.set()  # a cell with the same name may have been added meanwhile

    async def _end_all(self, grace_seconds: float) -> None:
        self._begin_to_end()
        tasks = [one.task for one in self._served.values() if one.task is not None]
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=grace_seconds)
        if left:
            log.warning("cells_left_unfinished", cells=sorted(task.get_name() for task in left))
            await cancel_and_wait(*left)


# Serves one cell during a block, and calls the function with each notification of that cell.
Serve = Callable[[M, Callable[[str], object]], AbstractAsyncContextManager[None]]


class HomeMember(Member, Protocol):
    """The member of the home cell, which knows the others."""

    @property
    def cells(self) -> Cells[Self]: ...


H = TypeVar("H", bound=HomeMember)


@asynccontextmanager
async def serve_cells(home: H, serve: Serve[H]) -> AsyncIterator[None]:
    """Serve all cells during the block."""

    async def serve_one(member: H, cell: ServedCell) -> None:
        async with serve(member, lambda _: None):
            await wait_any(cell.over, cell.removed)

    over = asyncio.Event()
    group = CellGroup(home.cells, serve_one)
    async with serve(home, group.hear), group.run(over, grace_seconds=GRACE_SECONDS):
        yield
