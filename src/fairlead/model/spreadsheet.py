"""Tables for spreadsheets: CSV as RFC 4180 has it, and nothing in it that one would run."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime

# What a spreadsheet would take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A line for each row, under the names of the columns."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\r\n")
    lines.writerow(columns)
    lines.writerows([_cell(value) for value in row] for row in rows)
    return written.getvalue()


def _cell(value: object) -> object:
    """A value that a spreadsheet reads as what it is: never as a formula."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
