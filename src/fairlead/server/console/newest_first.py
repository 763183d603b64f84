"""Lists that do not move while they are read: newer items wait behind a button."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec
from fastapi import Request

from fairlead.model.page import Page
from fairlead.server.console.forms import uuid_of

# Newer items are counted up to this number.
MOST_NEW = 20


class HasOrderedId(Protocol):
    """An item of a list; newer items have greater ids."""

    @property
    def id(self) -> UUID: ...


T = TypeVar("T", bound=HasOrderedId)


class NewestPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, newest first."""

    items: Sequence[T]
    # the first item at the first load: the page sends it when it refreshes
    top: UUID | None
    # how many items are newer than `top`
    new: int
    cursor: UUID | None
    next_cursor: UUID | None

    def facts(self) -> dict[str, Any]:
        """The template's variables."""
        facts = {"top": self.top, "new": self.new, "cursor": self.cursor, "next_cursor": self.next_cursor}
        return facts | {"most_new": MOST_NEW}


async def fetch_newest(
    request: Request, rows: int, fetch: Callable[[UUID | None, int], Awaitable[Page[T]]]
) -> NewestPage[T]:
    """The page for the URL; `fetch` returns up to a number of items before an id."""
    given = request.query_params
    cursor, top = uuid_of(given.get("cursor")), uuid_of(given.get("top"))
    new, before = 0, cursor
    if cursor is None and top is not None:
        before = UUID(int=min(top.int + 1, (1 << 128) - 1))
        new = sum(one.id > top for one in await fetch(None, MOST_NEW))
    items = await fetch(before, rows)
    if cursor is None and top is None and items:
        top = items[0].id
    return NewestPage(
        items, None if cursor else top, new, cursor, None if items.last is None else items.last.id
    )
