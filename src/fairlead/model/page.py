"""A part of a list, in the list's order."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Page(list[T]):
    """Rows of a list, and whether more come after the last of them.

    A page can be shorter than was asked for and still not be the last: it also ends where it has too many bytes.
    """

    def __init__(self, rows: Iterable[T] = (), *, more: bool = False) -> None:
        super().__init__(rows)
        self.more = more

    @property
    def last(self) -> T | None:
        """The row that the next page comes after; None where there is no next page."""
        return self[-1] if self.more else None

    def map(self, change: Callable[[T], U]) -> "Page[U]":
        """The same page with each row changed."""
        return Page((change(one) for one in self), more=self.more)

    def with_rows(self, rows: Iterable[U]) -> "Page[U]":
        """The same page with other rows in place of these, one for each."""
        return Page(rows, more=self.more)
