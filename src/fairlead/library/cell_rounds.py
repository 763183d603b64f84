"""Rounds over all cells: divide the limits of definitions by demand, and copy definitions and the gate of the system.

One process at a time does a round. A process that is stopped in the middle of one does no harm: see store/allotments.sql.
"""

import asyncio
from collections.abc import Awaitable
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

import structlog

from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.library.cells import Cells, Member
from fairlead.model.allotment import divide
from fairlead.store import allotments
from fairlead.store.allotments import Demand

log = structlog.get_logger(__name__)

M = TypeVar("M", bound=Member)
T = TypeVar("T")

ROUND_SECONDS = 1.0
IDLE_SECONDS = 3600.0
# A cell that does not answer in this time is left out of the round.
ANSWER_SECONDS = 2.0

Grants = dict[tuple[UUID, UUID], int]


class ReachedCell(NamedTuple):
    """A cell that takes part in a round, and what it has of each limited definition."""

    cell_id: UUID
    database: Database
    demand: dict[UUID, Demand]


class CellRounds(Generic[M]):
    """Does a round, if no other process does; returns the seconds until the next."""

    def __init__(self, cells: Cells[M]) -> None:
        self._cells = cells
        # the definitions that each cell has
        self._copied: dict[UUID, str] = {}

    async def __call__(self) -> float:
        """Seconds until the next round."""
        if not self._cells:
            return IDLE_SECONDS
        await self.run_now(after_seconds=ROUND_SECONDS)
        return ROUND_SECONDS

    async def run_now(self, *, after_seconds: float = 0.0) -> None:
        """Do a round, unless it is too early for one; the next one is not before `after_seconds`."""
        home = self._cells.home.database
        number = await home.single(lambda tx: allotments.take_round(tx, seconds=after_seconds))
        if number is not None:
            await self.run_round(home, number)

    async def run_round(self, home: Database, number: int) -> None:
        """Do the round with this number."""
        limits = await home.single(allotments.list_limits)
        fingerprint = await home.single(allotments.read_fingerprint)
        members = await self._list_members()
        reached = await asyncio.gather(
            *(
                self._prepare(home, cell_id, database, list(limits), fingerprint)
                for cell_id, database in members
            )
        )
        if limits:
            cell_ids = [cell.cell_id for cell in self._cells.by_name.values()]
            division = Division(home, number, [one for one in reached if one is not None], cell_ids)
            await division.run(limits)

    async def _list_members(self) -> list[tuple[UUID, Database]]:
        async def open_member(name: str) -> Database | None:
            return await _try(self._open(name), name)

        known = dict(self._cells.by_name)
        databases = await asyncio.gather(*map(open_member, known))
        return [
            (cell.cell_id, database)
            for cell, database in zip(known.values(), databases, strict=True)
            if database is not None
        ]

    async def _open(self, name: str) -> Database:
        return (await self._cells.member(name)).database

    async def _prepare(
        self, home: Database, cell_id: UUID, database: Database, limited: list[UUID], fingerprint: str
    ) -> ReachedCell | None:
        """Copy the definitions if they have changed, and read the demand; None if the cell does not answer."""

        async def prepare() -> ReachedCell:
            if database is not home and self._copied.get(cell_id) != fingerprint:
                said = await home.single(allotments.read_definitions)
                await database.transact(lambda tx: allotments.copy_definitions(tx, said))
                self._copied[cell_id] = fingerprint
            demand = {}
            if limited:
                demand = await database.single(lambda tx: allotments.read_demand(tx, limited))
            return ReachedCell(cell_id, database, demand)

        return await _try(prepare(), str(cell_id))


class Division:
    """Divides the limits between the reached cells; the others keep what they have."""

    def __init__(self, home: Database, number: int, reached: list[ReachedCell], cell_ids: list[UUID]) -> None:
        """`cell_ids` are those of all cells, also of those that are away."""
        self._home = home
        self._cell_ids = cell_ids
        self._number = number
        self._reached = reached

    async def run(self, limits: dict[UUID, int]) -> None:
        """Lower allotments first, then raise others by what is free."""
        grants = await self._home.single(allotments.list_grants)
        targets: Grants = {}
        for definition, total in limits.items():
            targets |= self._choose_targets(definition, total, grants)
        if self._is_divided_so(targets, grants):
            return
        lowered = await self._lower(targets, grants)
        raised = await self._home.transact(lambda tx: self._store(tx, limits, targets, grants, lowered))
        await asyncio.gather(*(self._raise(cell, raised) for cell in self._reached))

    def _choose_targets(self, definition: UUID, total: int, grants: Grants) -> Grants:
        own = {one.cell_id: one.demand[definition] for one in self._reached}
        away = sum(
            number for (of, cell_id), number in grants.items() if of == definition and cell_id not in own
        )
        wanted = {cell_id: one.waiting + one.running for cell_id, one in own.items()}
        parts = divide(total - away, wanted)
        return {(definition, cell_id): part for cell_id, part in parts.items()}

    def _is_divided_so(self, targets: Grants, grants: Grants) -> bool:
        """Whether nothing has to be changed."""
        numbers = {(of, one.cell_id): has.number for one in self._reached for of, has in one.demand.items()}
        return all(grants.get(one) == part == numbers[one] for one, part in targets.items())

    async def _lower(self, targets: Grants, grants: Grants) -> Grants:
        """Lower the allotments of cells that have more than their part; how much each may still use."""
        lowered: Grants = {}

        async def lower_in(cell: ReachedCell) -> None:
            for (definition, cell_id), target in targets.items():
                if cell_id != cell.cell_id or grants.get((definition, cell_id), target + 1) <= target:
                    continue  # without a grant it is not known what runs there
                left = await _try(self._lower_one(cell, definition, target), str(cell_id))
                if left is not None:
                    lowered[definition, cell_id] = left

        await asyncio.gather(*map(lower_in, self._reached))
        return lowered

    async def _lower_one(self, cell: ReachedCell, definition: UUID, target: int) -> int | None:
        return await cell.database.transact(lambda tx: allotments.lower(tx, definition, target, self._number))

    async def _store(
        self, tx: Tx, limits: dict[UUID, int], targets: Grants, before: Grants, lowered: Grants
    ) -> Grants:
        """Note the lowered grants, and raise others by what is free then; what each reached cell may use now.

        Nothing if a later round has begun.
        """
        if not await allotments.hold_round(tx, self._number):
            return {}
        await allotments.forget_grants(tx)
        grants = await allotments.list_grants(tx) | lowered
        for definition, total in limits.items():
            if any((definition, cell_id) not in grants for cell_id in self._cell_ids):
                continue  # a cell without a grant is away: it may run any number
            free = total - sum(number for (of, _), number in grants.items() if of == definition)
            for one in (one for one in targets if one[0] == definition):
                more = min(targets[one] - grants.get(one, 0), free)
                if more > 0:
                    grants[one] = grants.get(one, 0) + more
                    free -= more
        for (definition, cell_id), number in grants.items():
            if before.get((definition, cell_id)) != number:
                await allotments.put_grant(tx, definition, cell_id, number)
        # a cell that still runs more than its part gets no more than its part
        return {one: min(grants[one], part) for one, part in targets.items() if one in grants}

    async def _raise(self, cell: ReachedCell, grants: Grants) -> None:
        async def set_all(tx: Tx) -> None:
            for (definition, cell_id), number in grants.items():
                if cell_id == cell.cell_id and cell.demand[definition].number < number:
                    await allotments.set_higher(tx, definition, number, self._number)
                    tx.notify("ready")

        if any(
            cell_id == cell.cell_id and cell.demand[definition].number < number
            for (definition, cell_id), number in grants.items()
        ):
            await _try(cell.database.transact(set_all), str(cell.cell_id))


async def _try(work: Awaitable[T], cell: str) -> T | None:
    """The result, or None if the cell is away."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await work
    except (FairleadError, TimeoutError) as error:
        log.debug("cell_left_out_of_round", cell=cell, why=str(error))
        return None
