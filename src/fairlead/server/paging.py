"""Pages by cursor: where a page ended is where the next begins."""

import re
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from pydantic import Field

from fairlead.errors import Fault, InvalidInput
from fairlead.model.page import Page
from fairlead.model.payload import unreadable
from fairlead.server.views import ListOf, Parameters, View

T = TypeVar("T")
V = TypeVar("V", bound=View)

MAX_PAGE = 1000
_NUMBER = re.compile(r"[0-9]{1,9}")


class PageQuery(Parameters):
    """A page of a list."""

    limit: int = Field(100, ge=1, le=MAX_PAGE)
    cursor: str | None = Field(None, max_length=1000)

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

    @property
    def after_number(self) -> int:
        """The number that the page before ended with; 0 for the first."""
        if self.cursor is not None and not _NUMBER.fullmatch(self.cursor):
            raise _not_ours()
        return int(self.cursor or 0)


def page_of(view: type[V], found: Page[T], at: Callable[[T], object]) -> ListOf[V]:
    """A page as it is answered; `at` gives what the next one comes after."""
    return ListOf(items=[view.of(one) for one in found], next_cursor=cursor_of(found, at))


def cursor_of(found: Page[T], at: Callable[[T], object]) -> str | None:
    """What the next page comes after; None where there is none."""
    return None if found.last is None else str(at(found.last))


def _not_ours() -> InvalidInput:
    return InvalidInput(
        "The cursor is invalid: use next_cursor of the previous page.", [Fault("cursor", "not valid")]
    )
