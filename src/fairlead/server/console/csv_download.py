"""Lists as CSV downloads, sent page by page."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, TypeVar

from fastapi.responses import StreamingResponse

from fairlead.db.tx import Tx
from fairlead.model.page import Page
from fairlead.model.spreadsheet import MOST_ROWS, format_csv, format_rows
from fairlead.server.auth import Readmission
from fairlead.server.console.visit import Visit

C = TypeVar("C")

# Rows of a query.
PAGE_ROWS = 500

# The columns of a list by name, each with the function that takes its value from a row.
Columns = Mapping[str, Callable[[Any], object]]
# Fetches the rows after a cursor, or the first ones: the rows, and the cursor of the next page if there is one.
FetchPage = Callable[[Tx, C | None], Awaitable[tuple[Sequence[Any], C | None]]]


def fields(*names: str) -> Columns:
    """Columns that have the names of the rows' fields."""
    return {name: attrgetter(name) for name in names}


async def download_csv(
    visit: Visit, name: str, columns: Columns, fetch: FetchPage[C], *, most: int = MOST_ROWS
) -> StreamingResponse:
    """The rows of a list; after the most that a download has, a last line says that there are more.

    Each page has its own transaction: a slow download does not hold one open. It breaks off when the visitor's sign-in ends.
    """
    readmission = Readmission(visit.current_request)

    async def fetch_page(cursor: C | None) -> tuple[Sequence[Any], C | None]:
        async with visit.transaction() as tx:
            return await fetch(tx, cursor)

    # before the first byte, so that an error has its own response
    rows, cursor = await fetch_page(None)

    async def text() -> AsyncIterator[str]:
        nonlocal rows, cursor
        yield format_csv(list(columns), [])
        left = most
        while True:
            yield format_rows([read(row) for read in columns.values()] for row in rows[:left])
            if len(rows) > left or (cursor is not None and len(rows) == left):
                yield format_rows([[f"Only the first {most:,} rows: use filters to get the others."]])
                return
            left -= len(rows)
            if cursor is None:
                return
            await readmission.check()
            rows, cursor = await fetch_page(cursor)

    whose = visit.tenant_slug or "all"
    filename = f"{name}-{whose}-{datetime.now(UTC):%Y-%m-%d}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{filename}"'}
    return StreamingResponse(text(), media_type="text/csv; charset=utf-8", headers=headers)


def page_by_id(found: Page[Any]) -> tuple[Sequence[Any], Any]:
    """A page of a list that continues after the id of its last row."""
    return found, None if found.last is None else found.last.id
