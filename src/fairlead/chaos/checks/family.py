"""A family of checks: named queries, each of which finds the violations of one rule.

The comment of a query has two parts: what a violation of the rule means, and what the rule had to check in the run, as the
`from` clause of a count: `-- work: pg_temp.tries where status = 'lost'`. A rule whose count is 0 has proven nothing. With
`-- work of NAME: …` that is to be expected unless the load has NAME: a definition, or the tenant that attacks.
"""

import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

# The most violations of one rule that are described; all of them are counted.
TOLD = 20
_RULE = re.compile(
    r"(?P<meaning>(?:--[^\n]*\n)+?)-- work(?: of (?P<of>[\w.]+))?: (?P<work>[^\n]*\n(?:--[^\n]*\n)*)(?P<query>.*)",
    re.DOTALL,
)


class Violation(msgspec.Struct, frozen=True):
    """A rule that the run broke: the rule's stable name, the job, call or instant concerned, and what was found."""

    name: str
    subject: str
    text: str


class RuleWork(msgspec.Struct, frozen=True):
    """What a rule has to check: the `from` clause of its count, and which part of the load brings it, if only one does."""

    source: str
    of: str | None


class CheckFamily(msgspec.Struct, frozen=True):
    """Rules about one promise. `meanings` says in a sentence what a violation of each name is."""

    title: str
    meanings: Mapping[str, str]
    queries: Mapping[str, str]
    works: Mapping[str, RuleWork]


class FamilyResult(msgspec.Struct, frozen=True):
    """The violations that a family found: how many of each name, and the first of them."""

    counts: dict[str, int]
    violations: list[Violation]


def read_family(module: str, title: str) -> CheckFamily:
    """The family whose queries are in `x.sql` beside `x.py`."""
    found: SimpleNamespace = queries_beside(module)
    rules = {name: _read_rule(name, text) for name, text in vars(found).items()}
    return CheckFamily(
        title,
        # the first sentence
        {name: _read_comment(rule["meaning"]).partition(". ")[0].rstrip(".") for name, rule in rules.items()},
        {name: rule["query"] for name, rule in rules.items()},
        {name: RuleWork(_read_comment(rule["work"]), rule["of"]) for name, rule in rules.items()},
    )


def _read_rule(name: str, text: str) -> re.Match[str]:
    rule = _RULE.fullmatch(text)
    if rule is None:
        raise ValueError(f"The rule {name} does not begin with what it means and a line '-- work: …'.")
    return rule


def _read_comment(lines: str) -> str:
    return " ".join(line.removeprefix("--").strip() for line in lines.splitlines())


async def run_family(tx: Tx, family: CheckFamily, values: Mapping[str, Any]) -> FamilyResult:
    """Run the queries of a family. Each row is a violation: its subject and its text."""
    counts: dict[str, int] = {}
    told: list[Violation] = []
    for name, query in family.queries.items():
        rows = await tx.values(query, values)
        counts[name] = len(rows)
        told += list_violations(name, rows)
    return FamilyResult(counts, told)


async def count_work(tx: Tx, family: CheckFamily, values: Mapping[str, Any]) -> dict[str, int]:
    """How much each rule of a family had to check."""
    counts = (f"select '{name}', count(*) from {work.source}" for name, work in family.works.items())  # noqa: S608
    return dict(await tx.values("\nunion all ".join(counts), values))


def list_violations(name: str, rows: Sequence[tuple[Any, ...]]) -> list[Violation]:
    """The first violations of a name."""
    return [Violation(name, str(subject), text) for subject, text in rows[:TOLD]]
