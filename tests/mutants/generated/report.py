"""What became of the versions: lines, a table for people, and JSON."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.mutants.generated.session import UNSURE, Result
from tests.mutants.generated.versions import EQUIVALENT, Version, read_equivalent
from tests.mutants.report import replace_part

BEGIN = "<!-- make mutants, generated: the table begins here -->"
END = "<!-- make mutants, generated: the table ends here -->"


def is_caught(result: Result) -> bool:
    """Whether a test failed with the version, and passed again without it."""
    return bool(result.finding) and not result.finding.startswith(UNSURE)


def list_wrong(results: Sequence[Result]) -> list[Result]:
    """Those that survived without a reason, and those that were caught although they are expected to survive."""
    return [one for one in results if is_caught(one) == (one.name in read_equivalent())]


def describe(result: Result) -> str:
    """A line for people."""
    if not result.finding:
        return f"{result.name}: SURVIVED {result.passed} tests"
    return f"{result.name}: {result.finding}"


def summarise(results: Sequence[Result]) -> str:
    """How many were caught, and what is wrong."""
    known = read_equivalent()
    tried = [one for one in results if one.name not in known]
    caught, functions = sum(map(is_caught, tried)), {_function_of(one) for one in tried}
    lines = [f"{caught} of {len(tried)} wrong versions of {len(functions)} stored functions were caught."]
    for one in list_wrong(results):
        if one.name in known:
            lines.append(f"{one.name} was caught: remove it from {EQUIVALENT.name}.")
        else:
            lines.append(f"{describe(one)}")
    return "\n".join(lines)


def render_markdown(versions: Sequence[Version], results: Sequence[Result]) -> str:
    """How many were caught, by rule, and a row for each that was not."""
    known = read_equivalent()
    rules = {one.name: one.rule for one in versions}
    tried = Counter(rules[one.name] for one in results if one.name not in known)
    caught = Counter(rules[one.name] for one in results if one.name not in known and is_caught(one))
    lines = [summarise(results).partition("\n")[0], "", "| rule | versions | caught |", "|---|---|---|"]
    lines += [f"| {rule} | {number} | {caught[rule]} |" for rule, number in sorted(tried.items())]
    wrong = {one.name: one.wrong.replace("|", "\\|") for one in versions}
    rows = [
        f"| `{one.name}` | {wrong[one.name]} | {known.get(one.name, '**a gap**')} |"
        for one in results
        if not is_caught(one)
    ]
    if rows:
        lines += ["", "| survived | the change | why |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def render_json(versions: Sequence[Version], results: Sequence[Result]) -> bytes:
    """The same for programs."""
    wrong = {one.name: one.wrong for one in versions}
    rows = [{"wrong": wrong[one.name], **msgspec.structs.asdict(one)} for one in results]
    return msgspec.json.format(msgspec.json.encode(rows)) + b"\n"


def write_report(file: Path, versions: Sequence[Version], results: Sequence[Result]) -> None:
    """Replace the part of a page between the marks."""
    replace_part(file, BEGIN, END, render_markdown(versions, results))


def _function_of(result: Result) -> str:
    return result.name.partition(".")[0]
