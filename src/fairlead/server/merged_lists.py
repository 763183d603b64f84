"""Lists of a super admin over all cells: pages merged by their order, with a cursor that has a position in each cell."""

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.actions import tenants
from fairlead.db.tx import Tx
from fairlead.model.access import GLOBAL_TENANT_ID, Tenant
from fairlead.model.limits import LimitUse
from fairlead.model.page import Page, invalid_cursor
from fairlead.server.all_cells import CellReply
from fairlead.server.auth import Caller
from fairlead.server.views import Listing, Parameters

T = TypeVar("T")
Q = TypeVar("Q", bound="Query")

# Positions: None for a cell whose list has ended; a cell without one is read from the beginning.
Positions = Mapping[str, str | None]


class Query(Protocol):
    """The parameters of a list."""

    limit: int
    cursor: str | None

    def model_copy(self, *, update: Mapping[str, Any]) -> Self: ...


class ListPlace(Parameters):
    """The place of a page in a list."""

    limit: int
    cursor: str | None = None


class Order(NamedTuple, Generic[T]):
    """The order of a list: the key of a row, its cursor, and the key of a cursor (None: a cursor is a mere number)."""

    key: Callable[[T], Any]
    cursor: Callable[[T], str]
    place: Callable[[str], Any] | None
    descending: bool = False


class Part(NamedTuple, Generic[T]):
    """A page of one cell: the rows, and the cursor of the next page."""

    items: Sequence[T]
    next_cursor: str | None


def by_id(*, newest_first: bool = False) -> Order[Any]:
    """The order of rows by their ids."""
    return Order(lambda row: row.id, lambda row: str(row.id), UUID, newest_first)


def by_name(name: str) -> Order[Any]:
    """The order of rows by a text."""
    return Order(lambda row: getattr(row, name), lambda row: str(getattr(row, name)), str)


class _CellPart(NamedTuple, Generic[T]):
    part: Part[T]
    # tenants whose rows another cell has
    absent: frozenset[UUID]


async def list_all(
    caller: Caller, query: Q, read: Callable[[Tx, Q], Awaitable[Page[T]]], order: Order[T]
) -> Listing[T]:
    """A page of a list: in the caller's cell, or, for a super admin without a tenant, of all cells."""

    async def read_part(tx: Tx, asked: Q) -> Part[T]:
        found = await read(tx, asked)
        return Part(found, None if found.last is None else order.cursor(found.last))

    found = await read_merged(caller, query, read_part, order)
    return Listing(found.items, found.next_cursor)


async def read_merged(
    caller: Caller, query: Q, read: Callable[[Tx, Q], Awaitable[Part[T]]], order: Order[T]
) -> Part[T]:
    """`list_all` for reads that know their own cursors."""
    if not caller.is_for_all_cells:
        async with caller.transaction() as tx:
            return await read(tx, query)
    positions = {} if query.cursor is None else _decode(query.cursor)

    async def read_cell(tx: Tx, cell: str) -> _CellPart[T]:
        if cell in positions and positions[cell] is None:
            return _CellPart(Part([], None), frozenset())
        asked = query.model_copy(update={"cursor": positions.get(cell)})
        absent = await tenants.list_absent(tx)
        is_home = caller.fl.cells.by_name[cell].is_home
        # each cell has the shared objects; those of the home cell are the originals
        return _CellPart(await read(tx, asked), absent if is_home else absent | {GLOBAL_TENANT_ID})

    answers = await caller.ask_cells(read_cell)
    return _merge(answers, positions, query.limit, order)


def _merge(
    answers: Sequence[CellReply[_CellPart[T]]], positions: Positions, limit: int, order: Order[T]
) -> Part[T]:
    there = {answer.cell: answer.value for answer in answers if answer.value is not None}
    ends = [end for one in there.values() if (end := _find_end(one.part, order)) is not None]
    # a cell with more rows may have some that come before those of the others
    end = None if not ends else (max if order.descending else min)(ends)
    rows = [(order.key(row), cell, row) for cell, one in there.items() for row in one.part.items]
    rows.sort(key=lambda one: one[0], reverse=order.descending)
    if end is not None:
        rows = [one for one in rows if (one[0] >= end if order.descending else one[0] <= end)]
    taken = rows[:limit]
    after: dict[str, str | None] = dict(positions)
    for cell, one in there.items():
        count = sum(1 for _, where, _ in taken if where == cell)
        if count == len(one.part.items):
            after[cell] = one.part.next_cursor
        elif count:
            after[cell] = order.cursor(one.part.items[count - 1])
    items = [_name_cell(row, cell) for _, cell, row in taken if _tenant_of(row) not in there[cell].absent]
    is_over = all(cell in after and after[cell] is None for cell in there)
    return Part(items, None if is_over else _encode(after))


def _name_cell(row: T, cell: str) -> T:
    return replace(row, cell=cell) if isinstance(row, Tenant | LimitUse) else row


def _find_end(part: Part[T], order: Order[T]) -> Any:
    """The key at which a part ends, if more rows follow."""
    if part.next_cursor is None:
        return None
    if order.place is not None:
        return order.place(part.next_cursor)
    return order.key(part.items[-1]) if part.items else None


def _tenant_of(row: object) -> UUID | None:
    if isinstance(row, tuple):  # with its number
        row = row[-1]
    found: UUID | None = row.id if isinstance(row, Tenant) else getattr(row, "tenant_id", None)
    return found


def _encode(positions: Positions) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(positions)).decode().rstrip("=")


def _decode(cursor: str) -> dict[str, str | None]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(text, type=dict[str, str | None])
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise invalid_cursor() from None


async def sum_cells(
    caller: Caller,
    work: Callable[[Tx], Awaitable[T]],
    combine: Callable[[Sequence[T]], T],
    *,
    as_system: bool = False,
) -> T:
    """The figures of the caller's cell, or, for a super admin without a tenant, those of all cells combined."""
    if not caller.is_for_all_cells:
        async with caller.transaction(as_system=as_system) as tx:
            return await work(tx)
    answers = await caller.ask_cells(partial(_ignore_name, work))
    return combine([answer.value for answer in answers if answer.value is not None])


async def read_cells(caller: Caller, work: Callable[[Tx], Awaitable[T]]) -> list[tuple[str, T]]:
    """The answers of the cells by name; without cells, one without a name."""
    if not caller.is_for_all_cells:
        async with caller.transaction() as tx:
            return [("", await work(tx))]
    answers = await caller.ask_cells(partial(_ignore_name, work))
    return [(answer.cell, answer.value) for answer in answers if answer.value is not None]


async def list_absent(caller: Caller, tx: Tx) -> frozenset[UUID]:
    """The tenants whose rows another cell has; without cells there are none, and no query."""
    return await tenants.list_absent(tx) if caller.is_for_all_cells else frozenset()


def merge_newest(pages: Sequence[Part[T]], limit: int, order: Order[T]) -> Part[T]:
    """Pages of several cells as one, for lists whose cursors mean the same in each cell."""
    ends = [end for one in pages if (end := _find_end(one, order)) is not None]
    rows = sorted((row for one in pages for row in one.items), key=order.key, reverse=order.descending)
    if ends:
        end = (max if order.descending else min)(ends)
        rows = [row for row in rows if (order.key(row) >= end if order.descending else order.key(row) <= end)]
    if len(rows) > limit:
        return Part(rows[:limit], order.cursor(rows[limit - 1]))
    return Part(rows, str(end) if ends else None)


async def _ignore_name(work: Callable[[Tx], Awaitable[T]], tx: Tx, _: str) -> T:
    return await work(tx)
