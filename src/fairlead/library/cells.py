"""The cells of one process: opens their databases when they are needed, and remembers where tenants live."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import structlog

from fairlead.actions import cells as directory
from fairlead.db.database import Database
from fairlead.errors import CellUnknown, FairleadError, Fault, TenantMoved, TenantMoving, TenantUnknown
from fairlead.model.access import Principal
from fairlead.model.cells import Cell

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Writes of a tenant that is being moved wait this long before they are refused.
MOVE_WAIT_SECONDS = 5.0
LOOK_SECONDS = 0.2
# A cell that could not be reached is left alone for this long.
RETRY_CELL_SECONDS = 5.0
MOST_REMEMBERED = 100_000


class Member(Protocol):
    """A cell of this process, with its open database."""

    cell: Cell | None

    @property
    def database(self) -> Database: ...

    async def close(self) -> None: ...


M = TypeVar("M", bound=Member)


class CellAnswer(NamedTuple, Generic[T]):
    """What one cell answered, or why it did not."""

    cell: str
    value: T | None
    error: FairleadError | None


class Cells(Generic[M]):
    """The members of all cells, and the cells of tenants. Without a directory the home cell is the only one."""

    def __init__(self, home: M, principal: Principal, open_cell: Callable[[Cell], Awaitable[M]]) -> None:
        self._home = home
        self._principal = principal
        self._open_cell = open_cell
        self._known: dict[str, Cell] = {}
        self._members: dict[str, M] = {}
        self._away: dict[str, tuple[float, FairleadError]] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        # by the name with which the tenant was asked for, its slug or id; empty: home
        self._cell_names: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether there is a directory, as far as this process knows."""
        return bool(self._known)

    @property
    def home(self) -> M:
        """The member of the home cell."""
        return self._home

    @property
    def by_name(self) -> Mapping[str, Cell]:
        """The cells by name, as they were last read."""
        return self._known

    async def refresh(self) -> None:
        """Read the list of cells."""
        found = await self._home.database.single(lambda tx: directory.list_all(tx, self._principal))
        self._known = {cell.name: cell for cell in found}
        for name in [name for name in self._members if name not in self._known]:
            await self._members.pop(name).close()

    async def close(self) -> None:
        """Disconnect from all cells except home, which its owner closes."""
        members, self._members = self._members, {}
        self._known, self._cell_names = {}, {}
        for member in members.values():
            await member.close()

    async def member(self, name: str) -> M:
        """The member of a cell, opened if it is not open."""
        if name not in self._known:
            await self.refresh()
        cell = self._known.get(name)
        if cell is None:
            raise CellUnknown(
                f"There is no cell {name[:80]!r}. List them with: fairlead cells list",
                [Fault("cell", "unknown")],
            )
        if cell.is_home:
            return self._home
        async with self._opening.setdefault(name, asyncio.Lock()):
            if name not in self._members:
                failed_at, error = self._away.get(name, (-RETRY_CELL_SECONDS, None))
                if error is not None and time.monotonic() - failed_at < RETRY_CELL_SECONDS:
                    raise error
                try:
                    self._members[name] = await self._open_cell(cell)
                except FairleadError as error:
                    self._away[name] = (time.monotonic(), error)
                    raise
                self._away.pop(name, None)
            return self._members[name]

    async def gather(self, work: Callable[[M], Awaitable[T]]) -> list[CellAnswer[T]]:
        """Run `work` in all cells at the same time; a cell that is away answers with its error."""
        await self.refresh()

        async def ask(name: str) -> CellAnswer[T]:
            try:
                return CellAnswer(name, await work(await self.member(name)), None)
            except FairleadError as error:
                return CellAnswer(name, None, error)

        if not self._known:
            return [CellAnswer("", await work(self._home), None)]
        return list(await asyncio.gather(*map(ask, sorted(self._known))))

    def find_known(self, tenant: str) -> M:
        """The member where the tenant was last found, without any query; home if it was found nowhere yet."""
        return self._members.get(self._cell_names.get(tenant, ""), self._home)

    async def find(self, tenant: str) -> M:
        """The member in which a tenant lives, as the directory has it now; home for a tenant without an entry."""
        found = await self._home.database.single(lambda tx: directory.locate(tx, [tenant]))
        member = await self.member(found[0].cell) if found else self._home
        if len(self._cell_names) >= MOST_REMEMBERED:
            self._cell_names.clear()
        self._cell_names[tenant] = "" if member is self._home else found[0].cell
        return member

    async def find_remembered(self, tenant: str) -> M:
        """The member where the tenant was last found, or `find`."""
        return self.find_known(tenant) if tenant in self._cell_names else await self.find(tenant)

    def forget(self, tenant: str) -> None:
        """Ask the directory at the next call."""
        self._cell_names.pop(tenant, None)

    async def is_in(self, tenant: str, member: M) -> bool:
        """Whether a tenant lives in the cell of a member, as the directory has it now; if it has no entry, in home."""
        found = await self._home.database.single(lambda tx: directory.locate(tx, [tenant]))
        cell = self._known.get(found[0].cell) if found else None
        if not found or (cell is not None and cell.is_home):
            return member is self._home
        return member.cell is not None and member.cell.name == found[0].cell

    async def in_cell(self, tenant: str, work: Callable[[M], Awaitable[T]]) -> T:
        """Run `work` in the cell of a tenant. A tenant that has moved is followed once; one on its way is waited for."""
        # a member asks only its own cell, and the home cell follows; what is no name is refused in any cell
        if self._home.cell is not None or not isinstance(tenant, str):
            return await work(self._home)
        member = self.find_known(tenant)
        until = time.monotonic() + MOVE_WAIT_SECONDS
        while True:
            try:
                return await work(member)
            except (TenantMoved, TenantUnknown) as error:
                found = await self.find(tenant)
                if found is member and (isinstance(error, TenantUnknown) or time.monotonic() > until):
                    raise
                if found is member:
                    await asyncio.sleep(LOOK_SECONDS)
                member = found
            except TenantMoving:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(LOOK_SECONDS)

    async def search(self, work: Callable[[M], Awaitable[T]], missing: tuple[type[FairleadError], ...]) -> T:
        """The first answer of `work` that is not a `missing` error, beginning with home: for ids of unknown tenants."""
        if self._home.cell is not None:
            return await work(self._home)
        try:
            return await work(self._home)
        except missing as error:
            await self.refresh()
            away: FairleadError | None = None
            for name, cell in self._known.items():
                if cell.is_home:
                    continue
                try:
                    return await work(await self.member(name))
                except missing:
                    continue
                except FairleadError as failed:
                    log.warning("cell_away", cell=name, why=failed.message)
                    away = failed
            raise (away or error) from error
