"""What no file and no table of a run may have: secrets in plain form, and errors of an upgrade."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fairlead.chaos.load.secret_values import MARK
from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

SECRET = "secret"  # noqa: S105 - a kind of trace
UPGRADE = "upgrade"
_MARK = MARK.encode()
# Processes that refuse the database, and what PostgreSQL says of plans and functions that were replaced.
_UPGRADE = re.compile(
    rb"schema_outdated|process_outdated|cached plan|cache lookup failed|function [^ ]+ does not exist"
    rb"|UndefinedFunction|FeatureNotSupported|InternalError"
)


async def find_traces(tx: Tx, folders: Iterable[Path]) -> list[tuple[str, str]]:
    """The kind and the place of each."""
    return [*_read_files(folders), *await _read_tables(tx)]


def _read_files(folders: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for file in (one for folder in folders for one in sorted(folder.glob("*")) if one.is_file()):
        with file.open("rb") as lines:
            for line in lines:
                if _MARK in line:
                    yield SECRET, f"{file.parent.name}/{file.name}"
                if found := _UPGRADE.search(line):
                    yield UPGRADE, f"{file.parent.name}/{file.name}: {found[0].decode(errors='replace')}"


async def _read_tables(tx: Tx) -> Sequence[tuple[str, str]]:
    """Rows of any table of Fairlead with a secret, also in binary columns."""
    found = list[tuple[str, str]]()
    for (table,) in await tx.values(sql.tables):
        rows = await tx.values(sql.rows.replace("fairlead.a_table", f"fairlead.{table}"), {"mark": MARK})
        found += [(SECRET, f"table {table}")] * len(rows)
    errors = await tx.values(sql.errors, {"errors": _UPGRADE.pattern.decode()})
    return [*found, *((UPGRADE, place) for (place,) in errors)]
