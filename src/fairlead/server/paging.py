"""Pages by cursor: where a page ended is where the next begins."""

from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from pydantic import Field

from fairlead.errors import Fault, InvalidInput
from fairlead.model.payload import unreadable
from fairlead.server.views import ListOf, Parameters, View

T = TypeVar("T")
V = TypeVar("V", bound=View)

MAX_PAGE = 1000


class PageQuery(Parameters):
    """A page of a list."""

    limit: int = Field(100, ge=1, le=MAX_PAGE)
    cursor: str | None = Field(None, max_length=1000)

    @property
    def one_more(self) -> int:
        """How many to fetch: one more than is shown tells whether there is a next page."""
        return self.limit + 1

    @property
    def after(self) -> str:
        """The name that the page before ended with; empty for the first."""
        if self.cursor is not None and unreadable(self.cursor):
            raise _not_ours()
        return self.cursor or ""

    @property
    def after_id(self) -> UUID | None:
        """The id that the page before ended with."""
        try:
            return None if self.cursor is None else UUID(self.cursor)
        except ValueError:
            raise _not_ours() from None

    def page(self, view: type[V], found: Sequence[T], at: Callable[[T], object]) -> ListOf[V]:
        """What was fetched as a page; `at` gives what the next one comes after."""
        items = [view.of(one) for one in found[: self.limit]]
        more = len(found) > self.limit
        return ListOf(items=items, next_cursor=str(at(found[self.limit - 1])) if more else None)


def _not_ours() -> InvalidInput:
    return InvalidInput(
        "The cursor is invalid: use next_cursor of the previous page.", [Fault("cursor", "not valid")]
    )
