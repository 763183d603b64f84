"""Pages by cursor."""

import re
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from pydantic import Field

from fairlead.model.page import Page, invalid_cursor
from fairlead.model.payload import find_storage_flaw
from fairlead.server.views import Listing, Parameters

T = TypeVar("T")

MAX_PAGE = 1000
_NUMBER = re.compile(r"[0-9]{1,9}")


class PageQuery(Parameters):
    """A page of a list."""

    limit: int = Field(100, ge=1, le=MAX_PAGE)
    cursor: str | None = Field(None, max_length=1000)

    @property
    def after(self) -> str:
        """The last name of the previous page; empty for the first page."""
        if self.cursor is not None and find_storage_flaw(self.cursor):
            raise invalid_cursor()
        return self.cursor or ""

    @property
    def after_id(self) -> UUID | None:
        """The last id of the previous page."""
        try:
            return None if self.cursor is None else UUID(self.cursor)
        except ValueError:
            raise invalid_cursor() from None

    @property
    def after_number(self) -> int:
        """The last number of the previous page; 0 for the first page."""
        if self.cursor is not None and not _NUMBER.fullmatch(self.cursor):
            raise invalid_cursor()
        return int(self.cursor or 0)


def list_page(found: Page[T], at: Callable[[T], object]) -> Listing[T]:
    """The response for a page of records; `at` gives a record's cursor."""
    return Listing(found, cursor_of(found, at))


def cursor_of(found: Page[T], at: Callable[[T], object]) -> str | None:
    """The cursor of the next page; None for the last page."""
    return None if found.last is None else str(at(found.last))
