"""Pages with a limit in bytes: the database measures the rows before it sends them.

As Python objects, JSON takes up to 25 times its size as text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fairlead.db.tx import Tx, convert_row
from fairlead.model.page import Page

Row = TypeVar("Row")

MOST_PAGE_BYTES = 2_097_152

# A compressed value of a few hundred bytes may be a quarter of a megabyte.
_WEIGHT = (
    "coalesce(case when pg_column_compression(q.{0}) is null then pg_column_size(q.{0}) "
    "else octet_length(q.{0}::text) end, 0)"
)
# With an empty path, `#>` returns the value without compression. To make it text would take fifty times as long.
_JSON_WEIGHT = _WEIGHT.replace("octet_length(q.{0}::text)", "pg_column_size(q.{0} #> '{{}}')")


async def fetch_page(
    tx: Tx,
    row: type[Row],
    query: str,
    values: Mapping[str, Any],
    *,
    limit: int,
    weighed: Sequence[str] = (),
    weighed_json: Sequence[str] = (),
) -> Page[Row]:
    """The first rows of a query that has a `limit`: at most `limit`, cut where they exceed MOST_PAGE_BYTES; at least one.

    `weighed` names the columns that can be large, `weighed_json` those of the type jsonb.
    """
    found = await tx.dicts(
        _bound_query(query, weighed, weighed_json),
        {**values, "limit": limit + 1, "page_most": MOST_PAGE_BYTES},
    )
    more = bool(found) and found[0]["page_rows"] > min(len(found), limit)
    return Page((convert_row(row, values) for values in found[:limit]), more=more)


def _bound_query(query: str, weighed: Sequence[str], weighed_json: Sequence[str]) -> str:
    """The query with its rows cut where they exceed the bytes; `page_rows` is their number before the cut."""
    parts = [_WEIGHT.format(name) for name in weighed] + [_JSON_WEIGHT.format(name) for name in weighed_json]
    weight = " + ".join(parts)
    return (  # the query and the names are ours
        "select * from (select p.*, sum(p.page_bytes) over (rows unbounded preceding) - p.page_bytes as page_before, "  # noqa: S608
        f"count(*) over () as page_rows from (select q.*, {weight} as page_bytes from (\n{query.rstrip('; ')}\n) q) p) p "
        "where p.page_before < %(page_most)s"
    )
