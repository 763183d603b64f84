"""A family of checks: named queries, each of which finds the violations of one rule."""

import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

# The most violations of one rule that are described; all of them are counted.
TOLD = 20
_MEANING = re.compile(r"\A((?:--[^\n]*\n)+)")


class Violation(msgspec.Struct, frozen=True):
    """A rule that the run broke: the rule's stable name, the job, call or instant concerned, and what was found."""

    name: str
    subject: str
    text: str


class CheckFamily(msgspec.Struct, frozen=True):
    """Rules about one promise. `meanings` says in a sentence what a violation of each name is."""

    title: str
    meanings: Mapping[str, str]
    queries: Mapping[str, str]


class FamilyResult(msgspec.Struct, frozen=True):
    """The violations that a family found: how many of each name, and the first of them."""

    counts: dict[str, int]
    violations: list[Violation]


def read_family(module: str, title: str) -> CheckFamily:
    """The family whose queries are in `x.sql` beside `x.py`; the comment that a query begins with is its meaning."""
    found: SimpleNamespace = queries_beside(module)
    return CheckFamily(
        title,
        {name: _read_meaning(query) for name, query in vars(found).items()},
        dict(vars(found)),
    )


def _read_meaning(query: str) -> str:
    """The first sentence of the comment."""
    comment = _MEANING.match(query)
    if comment is None:
        raise ValueError(f"A query without a comment: {query[:80]}")
    text = " ".join(line.removeprefix("--").strip() for line in comment[1].splitlines())
    return text.partition(". ")[0].rstrip(".")


async def run_family(tx: Tx, family: CheckFamily, values: Mapping[str, Any]) -> FamilyResult:
    """Run the queries of a family. Each row is a violation: its subject and its text."""
    counts: dict[str, int] = {}
    told: list[Violation] = []
    for name, query in family.queries.items():
        rows = await tx.values(query, values)
        counts[name] = len(rows)
        told += list_violations(name, rows)
    return FamilyResult(counts, told)


def list_violations(name: str, rows: Sequence[tuple[Any, ...]]) -> list[Violation]:
    """The first violations of a name."""
    return [Violation(name, str(subject), text) for subject, text in rows[:TOLD]]
