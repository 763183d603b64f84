"""CSV (RFC 4180) for spreadsheets, without cells that run as formulas."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime

# A spreadsheet reads a cell with such a beginning as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def format_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The column names, then a line for each row."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\r\n")
    lines.writerow(columns)
    lines.writerows([_format_cell(value) for value in row] for row in rows)
    return written.getvalue()


def _format_cell(value: object) -> object:
    """A value that a spreadsheet does not read as a formula."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value
