"""The versions of a definition, and how two of them differ, line by line."""

import difflib
import json
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

# More lines than these take too long to compare.
MOST_LINES = 2000
# Equal lines around a change.
CONTEXT = 2


class DefinitionVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as it was when it was changed to this version."""

    version: int
    spec: Any
    changed_by: str | None
    changed_at: datetime


class LineChange(StrEnum):
    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    # equal lines that are left out
    GAP = "gap"


class DiffLine(msgspec.Struct, frozen=True):
    change: LineChange
    text: str


class VersionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A version, and its difference from the one before; None: it is the first, or too long to compare."""

    version: DefinitionVersion
    before: int | None
    lines: list[DiffLine] | None


_CHANGES = {" ": LineChange.SAME, "+": LineChange.ADDED, "-": LineChange.REMOVED, "@": LineChange.GAP}


def diff_specs(older: Any, newer: Any) -> list[DiffLine] | None:
    """The lines that differ, with a few equal ones around them; None if there are too many to compare."""
    before, after = _as_lines(older), _as_lines(newer)
    if max(len(before), len(after)) > MOST_LINES:
        return None
    # without the two lines that name the files
    found = list(difflib.unified_diff(before, after, n=CONTEXT, lineterm=""))[2:]
    lines = [DiffLine(_CHANGES[line[0]], "" if line[0] == "@" else line[1:]) for line in found]
    # the first gap is before the first change
    return lines[1:]


def compare_versions(versions: Sequence[DefinitionVersion]) -> list[VersionChange]:
    """Each version and its difference from the one before; the newest first, as given."""
    pairs = zip(versions, [*versions[1:], None], strict=True)
    return [
        VersionChange(
            version=newer,
            before=None if older is None else older.version,
            lines=None if older is None else diff_specs(older.spec, newer.spec),
        )
        for newer, older in pairs
    ]


def _as_lines(spec: Any) -> list[str]:
    return json.dumps(spec, indent=2, ensure_ascii=False, sort_keys=True).splitlines()
