"""The report of a run, in Markdown and JSON."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fairlead.chaos.checks import FAMILIES
from fairlead.chaos.checks.check_run import MEANINGS, RunResult
from fairlead.errors import InvalidInput

BEGIN = "<!-- fairlead chaos: the last run begins here -->"
END = "<!-- fairlead chaos: the last run ends here -->"
# Results that belong to no family of queries.
_OTHERS = "The run as a whole"


def render_json(result: RunResult) -> str:
    """The result as a JSON document."""
    return msgspec.json.encode(result).decode()


def write_report(file: Path, result: RunResult, *, day: datetime | None = None) -> None:
    """Replace the part of a page between the markers by the report of a run."""
    text = file.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InvalidInput(
            f"{file} has no place for the report. Put these two lines into it:\n{BEGIN}\n{END}"
        )
    file.write_text(f"{before}{BEGIN}\n\n{render_markdown(result, day=day)}\n{END}{after}", encoding="utf-8")


def render_markdown(result: RunResult, *, day: datetime | None = None) -> str:
    """The result as Markdown, without a heading of the page."""
    return "\n".join(_lines(result, day or datetime.now(UTC)))


def _lines(result: RunResult, day: datetime) -> Iterator[str]:
    minutes = result.duration_seconds / 60
    made = result.counts.get("jobs", 0)
    yield f"Run of {day:%Y-%m-%d}, seed {result.seed}, {minutes:.1f} minutes under load."
    yield ""
    yield from _table(("what", "number"), _list_totals(result, made))
    yield ""
    yield "### Faults"
    yield ""
    yield from _table(("kind", "number"), [*result.faults.items(), ("all", sum(result.faults.values()))])
    yield ""
    yield "### Findings"
    yield ""
    yield from _table(("promise", "rules checked", "findings"), _list_promises(result))
    yield ""
    yield from _list_findings(result)
    yield "### What the rules had to check"
    yield ""
    yield from _table(("rule", "number"), _list_work(result.work))
    yield ""
    yield "### Recovery"
    yield ""
    yield "Seconds from the fault until work went on."
    yield ""
    yield from _table(("kind", "until", "times", "p50", "p95", "longest", "bar"), _list_recoveries(result))
    yield ""
    yield "### Versions"
    yield ""
    yield from _table(("what", "version"), result.versions.items())
    if result.left_out:
        yield ""
        yield "### Left out"
        yield ""
        yield from _table(("what", "why"), result.left_out.items())


def _list_totals(result: RunResult, made: int) -> Iterator[tuple[str, str]]:
    yield "jobs", f"{made:,}"
    yield "jobs per second", f"{made / result.duration_seconds:,.1f}" if result.duration_seconds else "–"
    for name, number in sorted(result.counts.items()):
        if name != "jobs":
            yield name, f"{number:,}"


def _list_promises(result: RunResult) -> Iterator[tuple[str, int, int]]:
    rest = dict.fromkeys(result.finding_counts)
    for family in FAMILIES:
        yield family.title, *_sum_up(result, family.queries)
        rest = {name: None for name in rest if name not in family.queries}
    yield _OTHERS, *_sum_up(result, rest)


def _sum_up(result: RunResult, names: Collection[str]) -> tuple[int, int]:
    """How many of these rules had something to check, and how many findings they have together."""
    checked = len(names) - len(set(names).intersection(result.not_checked))
    return checked, sum(result.finding_counts.get(name, 0) for name in names)


def _list_work(work: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for name, number in work.items():
        yield name, f"{number:,}" if number else "not checked"


def _list_findings(result: RunResult) -> Iterator[str]:
    broken = {name: number for name, number in result.finding_counts.items() if number}
    for name, number in broken.items():
        yield f"**{name}** ({number}): {MEANINGS[name]}."
        yield ""
        for one in result.findings:
            if one.name == name:
                yield f"- {one.subject}: {one.text}"
        yield ""


def _list_recoveries(result: RunResult) -> Iterator[tuple[str, ...]]:
    for one in result.recoveries:
        bar = "–" if one.bar is None else f"{one.bar:g}, {'met' if one.is_met else 'missed'}"
        seconds = (one.times.p50, one.times.p95, one.times.longest)
        yield one.kind, one.until, str(one.times.number), *(f"{each:.1f}" for each in seconds), bar


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', '¦') for cell in row)} |"
