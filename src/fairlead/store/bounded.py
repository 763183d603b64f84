"""Pages that are bounded in bytes: their rows are weighed by the database, before any of them comes here.

As Python objects, JSON takes up to 25 times its size as text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_PAGE_BYTES = 2_097_152

# What is compressed is weighed as text: a few hundred bytes on disk may be a quarter of a megabyte.
_WEIGHT = (
    "coalesce(case when pg_column_compression(q.{0}) is null then pg_column_size(q.{0}) "
    "else octet_length(q.{0}::text) end, 0)"
)


@dataclass(frozen=True, slots=True)
class Bounded:
    """A query whose rows, in its order, end where they have too many bytes; the first always comes.

    The rows say in `page_rows` how many there were.
    """

    query: str
    weighed: Sequence[str]

    @property
    def text(self) -> str:
        weight = " + ".join(_WEIGHT.format(name) for name in self.weighed)
        return (  # the query and the names are ours
            "select * from (select p.*, sum(p.page_bytes) over (rows unbounded preceding) - p.page_bytes as page_before, "  # noqa: S608
            f"count(*) over () as page_rows from (select q.*, {weight} as page_bytes from (\n{self.query}\n) q) p) p "
            "where p.page_before < %(page_most)s"
        )

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {**given, "page_most": MOST_PAGE_BYTES}
