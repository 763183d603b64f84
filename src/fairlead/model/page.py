"""One page of a list."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from fairlead.errors import Fault, InvalidInput

T = TypeVar("T")
U = TypeVar("U")


class Page(list[T]):
    """Rows of a list, and whether more rows follow.

    A page can be shorter than requested and still not be the last: its size in bytes is limited, too.
    """

    def __init__(self, rows: Iterable[T] = (), *, more: bool = False) -> None:
        super().__init__(rows)
        self.more = more

    @property
    def last(self) -> T | None:
        """The last row, if another page follows; else None."""
        return self[-1] if self.more else None

    def map(self, change: Callable[[T], U]) -> "Page[U]":
        """The page with `change` applied to each row."""
        return Page((change(one) for one in self), more=self.more)

    def with_rows(self, rows: Iterable[U]) -> "Page[U]":
        """The page with these rows instead."""
        return Page(rows, more=self.more)


def invalid_cursor() -> InvalidInput:
    return InvalidInput(
        "The cursor is invalid: use next_cursor of the previous page.", [Fault("cursor", "not valid")]
    )
