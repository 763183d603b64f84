"""Leases of tenants that move to another cell while their jobs run: they are renewed and ended there."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

import structlog

from fairlead.actions import cells as directory
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.lease_clock import lease_clock
from fairlead.model.cells import HOME
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Change
from fairlead.placement import Placement
from fairlead.runtime.job_source import EndsPostponed, HeldJob, release_unstarted
from fairlead.runtime.log_writer import Append, AppendState, PendingWrite, ProgressUpdate, append_to_database
from fairlead.runtime.store_source import PLANNER, StoreSource
from fairlead.settings import Settings
from fairlead.store import cells, queue, tenants
from fairlead.store.queue import HeartbeatResult

log = structlog.get_logger(__name__)

# A tenant that was moved again and again meanwhile is looked for again at the next heartbeat.
MOST_HOPS = 3
# Between two looks for a lease that is on its way.
LOOK_SECONDS = 0.1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """Where the directory of cells is."""

    url: str = field(repr=False)  # a password may be in it
    settings: Settings
    # whether there are several cells, as far as this process knows
    has_cells: Callable[[], bool]


class MovedLeases:
    """Which leases of a worker are in another cell now; used by several threads."""

    def __init__(self) -> None:
        self.cells: dict[Lease, str] = {}
        # since when a lease is in no cell, as far as was seen
        self.missing_since: dict[Lease, float] = {}
        # leases that were not where their tenants are: they are lost if that is seen again, since a move that was given up
        # puts them back
        self.doubted: set[Lease] = set()

    def __bool__(self) -> bool:
        return bool(self.cells or self.missing_since)

    def forget(self, leases: Iterable[Lease]) -> None:
        """Their attempts have ended."""
        for lease in leases:
            self.cells.pop(lease, None)
            self.missing_since.pop(lease, None)
            self.doubted.discard(lease)


class CellConnections:
    """The databases of other cells, opened in this event loop when they are needed."""

    def __init__(self, place: Directory) -> None:
        self._place = place
        self._databases: dict[str, Database] = {}
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def close(self) -> None:
        """Disconnect."""
        await self._stack.aclose()

    async def open(self, name: str) -> Database:
        """The database of a cell."""
        async with self._opening:
            if name not in self._databases:
                self._databases[name] = await self._connect(name)
            return self._databases[name]

    async def _connect(self, name: str) -> Database:
        settings = replace(self._place.settings, pool_size=2)
        if name == HOME:
            database = Database(self._place.url, settings, session=PLANNER)
        else:
            if HOME not in self._databases:
                self._databases[HOME] = await self._connect(HOME)
            cell = await self._databases[HOME].single(lambda tx: directory.get(tx, name))
            if cell.url is None:  # the home cell with another name
                return self._databases[HOME]
            url = directory.resolve_url(cell.url)
            settings = replace(
                settings,
                database_url=url,
                direct_url=None,
                schema=cell.schema_name,
                citus=cell.is_citus,
            )
            database = Database(url, settings, session=PLANNER)
        return await self._stack.enter_async_context(database)

    async def find_cell(self, tenant_id: UUID) -> str:
        """The cell of a tenant, as the directory has it now."""
        home = await self.open(HOME)
        found = await home.single(lambda tx: cells.locate(tx, [str(tenant_id)]))
        return found[0].cell if found else HOME


class FollowingSource:
    """The source of a cell's worker. It follows the leases of tenants that are moved to other cells."""

    def __init__(
        self,
        own: StoreSource,
        database: Database,
        connections: CellConnections,
        moved: MovedLeases,
        *,
        worker: str,
        place: Directory,
        tenant_of: Callable[[Lease], UUID | None],
    ) -> None:
        self._own = own
        self._database = database
        self._append_here = append_to_database(database)
        self._connections = connections
        self._moved = moved
        self._worker = worker
        self._lease_seconds = database.settings.lease_seconds
        self._has_cells = place.has_cells
        self._tenant_of = tenant_of
        self._sources: dict[str, StoreSource] = {}
        self.crowded, self.opens_in = own.crowded, own.opens_in

    # Claims are of the own cell

    async def claim(self, wanted: int) -> list[HeldJob]:
        """Claim up to `wanted` jobs."""
        held = await self._own.claim(wanted)
        self.crowded, self.opens_in = self._own.crowded, self._own.opens_in
        return held

    async def claim_suspect(self, *, idle: bool | None, free: int | None = None) -> list[HeldJob]:
        """Claim one suspect, or none."""
        return await self._own.claim_suspect(idle=idle, free=free)

    async def suspects_wait(self) -> bool:
        """Whether a suspect waits that this worker could claim if it were idle."""
        return await self._own.suspects_wait()

    # Leases may be in other cells

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        """Renew leases where they are. Leases that are missing from the result are lost."""
        if not self._moved:
            alive = await self._own.heartbeat(leases)
            if len(alive) == len(leases) or not self._has_cells():
                return alive
        else:
            alive = await self._renew_here([one for one in leases if one not in self._moved.cells])
            self._note_found(one for one, beat in alive.items() if beat.renewed)
        gone = [one for one in leases if one not in alive and one not in self._moved.cells]
        alive |= dict.fromkeys(await self._find(gone), HeartbeatResult(renewed=False))
        for name, some in self._group(leases).items():
            alive |= await self._renew_in(name, some)
        return alive

    async def _renew_here(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        if not leases:
            return {}
        try:
            return await self._own.heartbeat(leases)
        except FairleadError as error:  # leases in other cells must be renewed all the same
            log.warning("heartbeat_failed", leases=len(leases), why=error.message)
            return dict.fromkeys(leases, HeartbeatResult(renewed=False))

    async def _renew_in(self, name: str, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        try:
            alive = await (await self._source(name)).heartbeat(leases)
        except FairleadError as error:
            log.warning("heartbeat_failed", leases=len(leases), cell=name, why=error.message)
            return dict.fromkeys(leases, HeartbeatResult(renewed=False))
        self._note_found(alive)
        gone = [one for one in leases if one not in alive]
        return alive | dict.fromkeys(await self._find(gone, name), HeartbeatResult(renewed=False))

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write outcomes of attempts where their leases are; raises EndsPostponed for leases that are on their way."""
        if not self._moved and not self._has_cells():
            return await self._own.finish(ends)
        steps = self._own.list_of_runs(lease for lease, _ in ends)
        done, left = await _finish(self._own, [end for end in ends if end[0] not in self._moved.cells])
        if len(done) + len(left) == len(ends):
            return _require_all(done, left)
        gone = [
            lease
            for lease, _ in ends
            if lease.job_id not in done and lease not in left and lease not in self._moved.cells
        ]
        on_their_way = set(await self._find(gone))
        for name, some in self._group(lease for lease, _ in ends).items():
            on_their_way |= await self._finish_in(name, [end for end in ends if end[0] in some], steps, done)
        postponed = left | {one for one in on_their_way if one.job_id not in done}
        self._moved.forget(lease for lease, _ in ends if lease not in postponed)
        return _require_all(done, postponed)

    async def give_back_unstarted(self, held: Sequence[HeldJob]) -> None:
        """Return jobs to the queue where their leases are, and those of claims whose answers the worker has not read."""
        await self._own.release_unread()
        if held:
            await self.finish([(one.lease, release_unstarted(one)) for one in held])

    async def _finish_in(
        self,
        name: str,
        ends: Sequence[tuple[Lease, Change]],
        steps: set[Lease],
        done: dict[UUID, JobStatus],
    ) -> set[Lease]:
        """Write outcomes in another cell, and add them to `done`; the leases whose outcomes must be written later."""
        try:
            source = await self._source(name)
            source.note_of_runs(steps.intersection(lease for lease, _ in ends))
            written, left = await _finish(source, ends)
        except FairleadError as error:
            log.warning("finish_postponed", jobs=len(ends), cell=name, why=error.message)
            return {lease for lease, _ in ends}
        done |= written
        gone = [lease for lease, _ in ends if lease.job_id not in written and lease not in left]
        return left | set(await self._find(gone, name))

    async def reach(self, lease: Lease, work: Callable[[Tx], Awaitable[T | None]]) -> T | None:
        """Do `work` in the cell where the lease is; None if it is lost. `work` returns None where the lease is not."""
        while True:
            name = self._moved.cells.get(lease) or None
            database = self._database if name is None else await self._connections.open(name)
            done = await database.reach(work)
            if done is not None:
                return done
            if not self._has_cells() or not await self._find([lease], name):
                return None
            if (self._moved.cells.get(lease) or None) == name:
                await asyncio.sleep(LOOK_SECONDS)

    async def store_progress(self, steps: list[ProgressUpdate]) -> None:
        """Store the progress of attempts where their leases are; progress of leases on their way is dropped."""
        here = [step for step in steps if step[0] not in self._moved.cells]
        stored = await self._database.single(lambda tx: queue.store_progress(tx, here)) if here else set()
        gone = [step[0] for step in here if step[0].job_id not in stored]
        if gone and self._has_cells():
            await self._find(gone)
        for name, some in self._group(step[0] for step in steps).items():
            moved = [step for step in steps if step[0] in some]
            database = await self._connections.open(name)
            await database.single(lambda tx, moved=moved: queue.store_progress(tx, moved))  # type: ignore[misc]

    async def append(self, writes: Sequence[PendingWrite]) -> list[AppendState]:
        """Store chunks of output where the leases are."""
        states: dict[Lease, AppendState] = {}
        await self._append_in(self._append_here, _select(writes, self._moved.cells, inside=False), states)
        if self._has_cells():
            closed = [lease for lease, state in states.items() if state is AppendState.CLOSED]
            states |= dict.fromkeys(await self._find(closed), AppendState.BUSY)
        leases = [one.said.held.lease for one in writes]
        for name, some in self._group(leases).items():
            append = append_to_database(await self._connections.open(name))
            await self._append_in(append, _select(writes, some), states)
        return [states[lease] for lease in leases]

    async def _append_in(
        self, append: Append, writes: Sequence[PendingWrite], states: dict[Lease, AppendState]
    ) -> None:
        if writes:
            leases = [one.said.held.lease for one in writes]
            states |= dict(zip(leases, await append(writes), strict=True))

    # Where leases are

    def _group(self, leases: Iterable[Lease]) -> dict[str, list[Lease]]:
        """The leases that are in other cells, by cell."""
        groups: dict[str, list[Lease]] = {}
        for lease in leases:
            if name := self._moved.cells.get(lease):
                groups.setdefault(name, []).append(lease)
        return groups

    async def _source(self, name: str) -> StoreSource:
        if name not in self._sources:
            self._sources[name] = StoreSource(
                await self._connections.open(name),
                worker=self._worker,
                lease_seconds=self._lease_seconds,
                patient=False,
            )
        return self._sources[name]

    def _note_found(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._moved.missing_since.pop(lease, None)
            self._moved.doubted.discard(lease)

    async def _find(self, leases: Sequence[Lease], cell: str | None = None) -> list[Lease]:
        """Find leases that are not in their cell any more (None: this cell); returns those that may still be somewhere.

        A lease is looked for during one lease time. Then it is lost, as one of a tenant that has not moved.
        """
        found: list[Lease] = []
        places: dict[UUID, str | None] = {}
        for lease in leases:
            tenant_id = self._tenant_of(lease)
            since = self._moved.missing_since.setdefault(lease, lease_clock())
            if tenant_id is None or lease_clock() - since > self._lease_seconds:
                self._moved.forget([lease])
                continue
            if tenant_id not in places:
                places[tenant_id] = await self._place_of(tenant_id, cell)
            place = places[tenant_id]
            if place == (cell or "") and lease in self._moved.doubted:
                self._moved.forget([lease])
                continue
            if place == (cell or ""):
                self._moved.doubted.add(lease)
                found.append(lease)
                continue
            if place is not None and self._moved.cells.get(lease) != place:
                log.info("lease_followed", job_id=str(lease.job_id), cell=place or None)
                self._moved.cells[lease] = place
            found.append(lease)
        return found

    async def _place_of(self, tenant_id: UUID, cell: str | None) -> str | None:
        """The cell in which a tenant lives now ('' is this one); None if it is on its way, or that is not known."""
        name = cell
        try:
            for _ in range(MOST_HOPS):
                database = self._database if name is None else await self._connections.open(name)
                placement = await database.single(lambda tx: tenants.read_placement(tx, tenant_id))
                if placement == Placement.HERE:
                    return name or ""
                if placement in (Placement.LEAVING, Placement.ARRIVING):
                    return None
                name = await self._connections.find_cell(tenant_id)
        except FairleadError as error:
            log.warning("lease_not_followed", tenant_id=str(tenant_id), why=error.message)
        return None


async def _finish(
    source: StoreSource, ends: Sequence[tuple[Lease, Change]]
) -> tuple[dict[UUID, JobStatus], set[Lease]]:
    """The statuses of the jobs whose attempts were ended, and the leases whose outcomes must be written later."""
    if not ends:
        return {}, set()
    try:
        return await source.finish(ends), set()
    except EndsPostponed as error:
        return error.done, set(error.left)


def _require_all(done: dict[UUID, JobStatus], left: set[Lease]) -> dict[UUID, JobStatus]:
    if left:
        raise EndsPostponed(
            done, list(left), "another transaction holds them, or their tenants are being moved"
        )
    return done


def _select(
    writes: Sequence[PendingWrite], leases: Iterable[Lease], *, inside: bool = True
) -> list[PendingWrite]:
    names = set(leases)
    return [one for one in writes if (one.said.held.lease in names) is inside]
