"""Move tenants between cells. A move that was interrupted at any step goes on from there, in any process.

The steps of a move: close the tenant's gate in the source, wait for what runs, copy its rows, write into the directory that
the tenant lives in the target, open the gate there, remove the rows from the source. One process at a time does them, under
a lock that PostgreSQL frees when the process dies.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

import structlog

from fairlead.actions import cells as directory
from fairlead.actions import tenant_moves as actions
from fairlead.db.session_lock import SessionLock, hold_session_lock
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseBusy, FairleadError, MoveBlocked, MoveRefused
from fairlead.library.app import Fairlead
from fairlead.model.tenant_move import REVERSIBLE, CopyProgress, MoveStep, OpenTransaction, TenantMove

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 5.0
WAIT_SECONDS = 30.0
LOOK_SECONDS = 0.1
# How long the source's tenant waits for a lock at a time: others may wait for it meanwhile.
LOCK_SECONDS = 0.5
# Transactions that have not touched a table of Fairlead are waited for only this long: their next statement sees the gate.
STATEMENT_SECONDS = 1.0
# How often processes look for moves whose process has died.
FINISH_SECONDS = 10.0

T = TypeVar("T")
Tell = Callable[[TenantMove, CopyProgress | None], None]


class _AnotherStep(Exception):
    """The move is no longer at the step of this process."""


async def move_tenant(
    fl: Fairlead,
    tenant: str,
    *,
    target: str,
    drain_seconds: float = DRAIN_SECONDS,
    wait_seconds: float = WAIT_SECONDS,
    tell: Tell | None = None,
) -> TenantMove:
    """Move a tenant to a cell, or go on with a move there that was interrupted; returns when the tenant has moved.

    Running jobs may end for `drain_seconds`; then their leases move, too. Open transactions that have used the tenant's
    rows may stay open for `wait_seconds`: then, as after any other error, the move is taken back.
    """
    plan = await fl.database.transact(lambda tx: actions.plan(tx, fl.principal, tenant, target=target))
    await fl.cells.refresh()
    source, aim = await fl.cells.member(plan.cell), await fl.cells.member(target)

    async def compare(here: Tx) -> None:
        async with aim.database.transaction_beside() as there:
            await actions.require_same_schema(here, there)
            await actions.require_same_keys(here, there, plan.tenant_id)

    await source.database.transact(compare)
    move = await fl.database.transact(lambda tx: actions.begin(tx, fl.principal, tenant, target=target))
    await TenantMover(fl, drain_seconds=drain_seconds, wait_seconds=wait_seconds, tell=tell).follow(move)
    entry = await fl.database.single(lambda tx: directory.locate(tx, [str(move.tenant_id)]))
    if not entry or entry[0].epoch < move.epoch:
        raise MoveRefused(f"The move of the tenant {move.slug!r} was taken back by another process.")
    return move


async def cancel_move(fl: Fairlead, tenant: str) -> TenantMove:
    """Take a move back; returns when the tenant can be changed in the source again."""
    move = await fl.database.transact(lambda tx: actions.cancel(tx, fl.principal, tenant))
    await TenantMover(fl).follow(move)
    return move


async def list_moves(fl: Fairlead) -> list[TenantMove]:
    """Moves that have begun and not ended."""
    return await fl.database.transact(lambda tx: actions.list_moves(tx, fl.principal))


async def finish_moves(fl: Fairlead) -> int:
    """Go on with the moves that no process does; how many have ended."""
    ended = 0
    for move in await list_moves(fl):
        try:
            ended += await TenantMover(fl).run(move)
        except FairleadError as error:
            log.warning("move_not_finished", tenant=move.slug, step=move.step.value, why=error.message)
    return ended


@asynccontextmanager
async def run_move_finisher(fl: Fairlead) -> AsyncIterator[None]:
    """During the block, finish moves whose processes have died. Does nothing without cells."""

    async def repeat() -> None:
        while True:
            try:
                if fl.cells:
                    await finish_moves(fl)
            except FairleadError as error:
                log.warning("moves_not_finished", why=error.message)
            await asyncio.sleep(FINISH_SECONDS)

    task = asyncio.create_task(repeat(), name="fairlead-moves")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class TenantMover:
    """Does the steps of moves."""

    def __init__(
        self,
        fl: Fairlead,
        *,
        drain_seconds: float = DRAIN_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        tell: Tell | None = None,
    ) -> None:
        self._fl = fl
        self._drain_seconds = drain_seconds
        self._wait_seconds = wait_seconds
        self._tell = tell
        self._steps: dict[MoveStep, Callable[[TenantMove], Awaitable[None]]] = {
            MoveStep.GATE: self._gate,
            MoveStep.COPY: self._copy,
            MoveStep.FLIP: self._flip,
            MoveStep.OPEN: self._open,
            MoveStep.REMOVE: self._remove,
            MoveStep.REOPEN: self._reopen,
        }

    async def follow(self, move: TenantMove) -> None:
        """Return when the move has ended, whether this process or another one did it."""
        while not await self.run(move):
            await asyncio.sleep(LOOK_SECONDS)
            if await self._read(move) is None:
                return

    async def run(self, move: TenantMove) -> bool:
        """Do the steps that are left; False if another process does them."""
        name = f"{self._fl.settings.schema} tenant move {move.tenant_id}"
        async with hold_session_lock(self._fl.direct_url, name) as lock:
            if lock is None:
                return False
            while (now := await self._read(move)) is not None:
                await self._do_step(now, lock)
        return True

    async def _do_step(self, move: TenantMove, lock: SessionLock) -> None:
        await lock.check()
        if self._tell is not None:
            self._tell(move, None)
        try:
            await self._steps[move.step](move)
        except _AnotherStep:
            return
        except FairleadError as error:
            await self._fail(move, error)
            raise

    async def _fail(self, move: TenantMove, error: FairleadError) -> None:
        """Take the move back if that is possible; what cannot be done now is done by `finish_moves`."""
        log.warning("move_failed", tenant=move.slug, step=move.step.value, why=error.message)
        try:
            await self._home(lambda tx: actions.note_error(tx, move, error.message))
            if move.step in REVERSIBLE and await self._home(lambda tx: actions.take_back(tx, move)):
                now = await self._read(move)
                if now is not None:
                    await self._reopen(now)
        except FairleadError as other:
            log.warning("move_not_taken_back", tenant=move.slug, why=other.message)

    # The steps

    async def _gate(self, move: TenantMove) -> None:
        await self._wait_with_open_gate(move)
        await self._insist(move, actions.close_gate)
        for _ in range(2):  # a transaction that the first time waits for may have measured the room anew
            await self._insist(move, actions.use_up_room)
            await self._wait_for_transactions(move)
        await self._drain(move)
        await self._insist(move, actions.park_leases)
        await self._home(lambda tx: actions.advance(tx, move, MoveStep.COPY))

    async def _insist(self, move: TenantMove, work: Callable[[Tx, TenantMove], Awaitable[object]]) -> None:
        """Run a transaction in the source that may have to wait for the locks of others."""
        source = (await self._fl.cells.member(move.source)).database

        async def attempt(tx: Tx) -> None:
            await tx.wait_for_locks(LOCK_SECONDS)
            await work(tx, move)

        until = time.monotonic() + self._wait_seconds
        while True:
            try:
                return await source.transact(attempt)
            except DatabaseBusy:
                if time.monotonic() > until:
                    raise _build_blocked_error(
                        move, await source.single(actions.list_transactions), self._wait_seconds
                    ) from None
            await self._pause(move)

    async def _wait_with_open_gate(self, move: TenantMove) -> None:
        """Wait for the transactions that would block the move, so that a long one costs the tenant no writes."""
        await self._wait_for_transactions(move, statement_seconds=0.0)

    async def _wait_for_transactions(
        self, move: TenantMove, *, statement_seconds: float = STATEMENT_SECONDS
    ) -> None:
        """Wait for the transactions that run now: they may have read the tenant before its gate was closed."""
        source = (await self._fl.cells.member(move.source)).database
        began = time.monotonic()
        left = await source.single(actions.list_transactions)
        while left:
            holders, waited = [one for one in left if one.holds], time.monotonic() - began
            if not holders and waited >= statement_seconds:
                return
            if holders and waited > self._wait_seconds:
                raise _build_blocked_error(move, holders, self._wait_seconds)
            await self._pause(move)
            left = await source.single(partial(actions.list_transactions, ids=[one.id for one in left]))

    async def _drain(self, move: TenantMove) -> None:
        """Let running jobs end for a while."""
        source = (await self._fl.cells.member(move.source)).database
        until = time.monotonic() + self._drain_seconds
        while await source.single(lambda tx: actions.count_running(tx, move)) and time.monotonic() < until:
            await self._pause(move)
        until += self._wait_seconds
        while limited := await source.single(lambda tx: actions.count_limited(tx, move)):
            if time.monotonic() > until:
                raise MoveBlocked(
                    f"The tenant {move.slug!r} was not moved: {limited} of its running jobs are of definitions with "
                    "max_running, which a move would exceed. Wait longer for them with --wait-seconds."
                )
            await self._pause(move)

    async def _copy(self, move: TenantMove) -> None:
        source = (await self._fl.cells.member(move.source)).database
        target = (await self._fl.cells.member(move.target)).database

        async def copy(into: Tx) -> None:
            async with source.transaction_beside(unhurried=True, snapshot=True) as snapshot:
                await actions.copy_rows(snapshot, into, move, lambda progress: self._note(move, progress))

        await target.transact(copy, unhurried=True)
        await self._home(lambda tx: actions.advance(tx, move, MoveStep.FLIP))

    async def _flip(self, move: TenantMove) -> None:
        await self._home(lambda tx: actions.advance(tx, move, MoveStep.OPEN))

    async def _open(self, move: TenantMove) -> None:
        target = (await self._fl.cells.member(move.target)).database
        await target.transact(lambda tx: actions.open_target(tx, self._fl.principal, move))
        await self._home(lambda tx: actions.advance(tx, move, MoveStep.REMOVE))

    async def _remove(self, move: TenantMove) -> None:
        source = (await self._fl.cells.member(move.source)).database
        await source.transact(lambda tx: actions.leave_source(tx, move), unhurried=True)
        while await source.transact(lambda tx: actions.remove_some(tx, move), unhurried=True):
            pass
        await self._home(lambda tx: actions.finish(tx, self._fl.principal, move))

    async def _reopen(self, move: TenantMove) -> None:
        source = (await self._fl.cells.member(move.source)).database
        await source.transact(lambda tx: actions.reopen_gate(tx, move))
        target = (await self._fl.cells.member(move.target)).database
        await target.transact(lambda tx: actions.clear_target(tx, move))
        while await target.transact(lambda tx: actions.remove_some(tx, move, target=True), unhurried=True):
            pass
        await self._home(lambda tx: actions.finish(tx, self._fl.principal, move))

    async def _read(self, move: TenantMove) -> TenantMove | None:
        return await self._home(lambda tx: actions.read(tx, move))

    async def _home(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        return await self._fl.database.transact(work)

    async def _note(self, move: TenantMove, progress: CopyProgress) -> None:
        if self._tell is not None:
            self._tell(move, progress)
        if not await self._home(lambda tx: actions.note_progress(tx, move, progress)):
            raise _AnotherStep

    async def _pause(self, move: TenantMove) -> None:
        """Wait a moment, unless the move is being taken back."""
        if await self._home(lambda tx: actions.is_canceled(tx, move)):
            raise _AnotherStep
        await asyncio.sleep(LOOK_SECONDS)


def _build_blocked_error(move: TenantMove, left: Sequence[OpenTransaction], seconds: float) -> MoveBlocked:
    pids = sorted(str(one.pid) for one in left if one.holds and one.pid)
    who = f"of the processes {', '.join(pids)} of PostgreSQL" if pids else "that are prepared"
    return MoveBlocked(
        f"The tenant {move.slug!r} was not moved: transactions {who} have been open for {seconds:g} seconds, and may change "
        f"its rows in the cell {move.source!r}. End them (pg_stat_activity, pg_prepared_xacts), or wait longer with "
        "--wait-seconds."
    )
