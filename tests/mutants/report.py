"""The verdicts on mutants, as a table for people and as JSON."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.mutants.catching import Verdict
from tests.mutants.mutant import Mutant

BEGIN = "<!-- make mutants: the table begins here -->"
END = "<!-- make mutants: the table ends here -->"


def render_markdown(mutants: Sequence[Mutant], verdicts: Sequence[Verdict]) -> str:
    """How many were caught, and a row for each mutant."""
    caught = sum(1 for one in verdicts if one.finding)
    lines = [
        f"{caught} of {len(verdicts)} mutants were caught.",
        "",
        "| mutant | breaks | what is wrong | caught by |",
        "|---|---|---|---|",
    ]
    for mutant, verdict in zip(mutants, verdicts, strict=True):
        lines.append(
            f"| `{mutant.name}` | {', '.join(mutant.breaks)} | {mutant.wrong} | {_describe(verdict)} |"
        )
    return "\n".join(lines) + "\n"


def _describe(verdict: Verdict) -> str:
    if not verdict.finding:
        return "**not caught**"
    return f"{verdict.caught_by}: `{shorten(verdict.finding)}`"


def shorten(finding: str) -> str:
    """The names of the findings, or of the test without its folder."""
    name = finding.partition(": ")[0]
    return re.sub(r"\[.*\]$", "", name.rpartition("/")[2])


def render_json(mutants: Sequence[Mutant], verdicts: Sequence[Verdict]) -> bytes:
    """The same for programs."""
    rows = [
        {"breaks": mutant.breaks, "wrong": mutant.wrong, **msgspec.structs.asdict(verdict)}
        for mutant, verdict in zip(mutants, verdicts, strict=True)
    ]
    document = {"caught": sum(1 for one in verdicts if one.finding), "total": len(verdicts), "mutants": rows}
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


def write_report(file: Path, mutants: Sequence[Mutant], verdicts: Sequence[Verdict]) -> None:
    """Replace the table of mutants in a page."""
    replace_part(file, BEGIN, END, render_markdown(mutants, verdicts))


def replace_part(file: Path, first: str, last: str, table: str) -> None:
    """Replace the part of a page between the marks."""
    page = file.read_text(encoding="utf-8")
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise SystemExit(f"{file} has no place for the table. Put these two lines into it:\n{first}\n{last}")
    file.write_text(f"{before}{first}\n\n{table}\n{last}{after}", encoding="utf-8")
