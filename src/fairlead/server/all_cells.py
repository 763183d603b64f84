"""Reads that a super admin makes in all cells at once. Without a directory there is only one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import structlog

from fairlead.db.database_errors import translate_error
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import CellUnreachable, DatabaseBusy, DatabaseUnreachable, FairleadError, Refused
from fairlead.library.app import Fairlead

log = structlog.get_logger(__name__)

T = TypeVar("T")

# A merged response waits this long for a cell.
PATIENCE_SECONDS = 5.0


class CellReply(NamedTuple, Generic[T]):
    """What one cell answered; `value` is None and `is_missing` is true if it cannot be reached."""

    cell: str
    fl: Fairlead
    value: T | None
    is_missing: bool = False


async def ask_cells(
    fl: Fairlead, acting: TransactionIdentity, work: Callable[[Tx, str], Awaitable[T]]
) -> list[CellReply[T]]:
    """Run `work` in a transaction of each cell, at the same time, with the cell's name; home comes first."""

    async def ask(name: str) -> CellReply[T]:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                member = await fl.cells.member(name)
        except (FairleadError, TimeoutError) as error:
            return _miss(name, fl, error)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), member.database.transaction(acting) as tx:
                return CellReply(name, member, await work(tx, name))
        except Refused:
            raise
        except Exception as error:
            if member is fl and isinstance(error, TimeoutError):
                raise _slow_error(name) from error
            if not _is_unreachable(error, member.database.url) or member is fl:
                raise
            return _miss(name, member, error)

    await fl.cells.refresh()
    names = sorted(fl.cells.by_name, key=lambda name: (not fl.cells.by_name[name].is_home, name))
    if not names:
        async with fl.database.transaction(acting) as tx:
            return [CellReply("", fl, await work(tx, ""))]
    return list(await asyncio.gather(*map(ask, names)))


def missing_cells(answers: Sequence[CellReply[T]]) -> list[str]:
    """The names of the cells that did not answer."""
    return [answer.cell for answer in answers if answer.is_missing]


def unreachable_error(cells: Sequence[str] = ()) -> CellUnreachable:
    """The error for a request that needs a cell that cannot be reached; tenants are not told its name."""
    which = f"The cell {', '.join(cells)}" if cells else "The database of this tenant"
    return CellUnreachable(
        f"{which} cannot be reached. Try again in {CellUnreachable.retry_after} seconds; the server's log says why."
    )


def _slow_error(cell: str) -> DatabaseBusy:
    return DatabaseBusy(
        f"The database of the cell {cell!r} did not answer within {PATIENCE_SECONDS:g} seconds. Try again in a moment."
    )


def _is_unreachable(error: Exception, url: str) -> bool:
    known = translate_error(error, url)
    return isinstance(known or error, DatabaseUnreachable | TimeoutError)


def _miss(name: str, fl: Fairlead, error: Exception) -> CellReply[T]:
    log.warning("cell_missing", cell=name, why=str(error) or type(error).__name__)
    return CellReply(name, fl, None, is_missing=True)
