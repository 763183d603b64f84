"""The two speeds of the suite: what `make test` runs, and what only `make thorough` runs.

A test is in `make test` unless it, or its whole module, has the mark `thorough`. A test with the mark `deeper` is in both, with
more cases in `make thorough`: it asks `THOROUGH` or `examples` how many.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

THOROUGH = "THOROUGH" in os.environ
FAST_MARKS = "not thorough"
THOROUGH_MARKS = "thorough or deeper"
_WHOLE_MODULE = re.compile(rb"^pytestmark = \[?\s*pytest\.mark\.thorough\b", re.MULTILINE)
_SOME_TESTS = re.compile(rb"\bmark\.(thorough|deeper)\b|\bmostly_thorough\(")


def examples(count: int) -> int:
    """As many examples in `make thorough`, and an eighth of them otherwise."""
    return count if THOROUGH else max(1, count // 8)


def mostly_thorough(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """Cases of `parametrize`: only the first ones are in `make test`."""
    return [
        case if place < fast else pytest.param(case, marks=pytest.mark.thorough)
        for place, case in enumerate(cases)
    ]


def has_no_test_for(marks: str, module: Path) -> bool:
    """Whether a run with these marks takes no test of the module, as its text says: then it need not be imported."""
    if module.suffix != ".py" or not module.name.startswith("test_"):
        return False
    if marks == FAST_MARKS:
        return _WHOLE_MODULE.search(module.read_bytes()) is not None
    return marks == THOROUGH_MARKS and _SOME_TESTS.search(module.read_bytes()) is None
