"""CSV (RFC 4180) for spreadsheets, without cells that run as formulas."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

# A download has at most this many rows.
MOST_ROWS = 100_000
# A spreadsheet reads a cell with such a beginning as a formula; some skip spaces, and some read full-width signs so, too.
_FORMULA = re.compile("[\t\r\n]|[\\s\x00-\x1f\u200b\ufeff]*[=+@\uff1d\uff0b\uff0d\uff20-]")


def format_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The column names, then a line for each row."""
    return format_rows([columns]) + format_rows(rows)


def format_rows(rows: Iterable[Sequence[object]]) -> str:
    """A line for each row."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\r\n")
    lines.writerows([_format_cell(value) for value in row] for row in rows)
    return written.getvalue()


def _format_cell(value: Any) -> object:
    """A value that a spreadsheet does not read as a formula."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, list | tuple | set | frozenset):
        value = ", ".join(str(one) for one in value)
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return value
