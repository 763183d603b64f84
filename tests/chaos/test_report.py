"""The report of a run, and the page that publishes it."""

import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from fairlead.chaos.checks import FAMILIES
from fairlead.chaos.checks.check_run import INCONSISTENT, MEANINGS, RunResult
from fairlead.chaos.checks.family import Violation
from fairlead.chaos.checks.recovery import RecoveryTime
from fairlead.chaos.checks.report import BEGIN, END, render_json, render_markdown, write_report
from fairlead.chaos.spread import Spread
from fairlead.errors import InvalidInput

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
DAY = datetime(2026, 3, 4, tzinfo=UTC)
CLEAN = RunResult(
    seed=42,
    duration_seconds=1200.0,
    findings=[],
    finding_counts=dict.fromkeys(MEANINGS, 0),
    work=dict.fromkeys(MEANINGS, 1200),
    counts={"jobs": 120_000, "attempts lost": 321},
    faults={"kill_worker": 200, "kill_postgres": 20},
    recoveries=[
        RecoveryTime("kill_worker", "the next attempt", Spread(200, 6.0, 8.5, 9.0, 9.5), 11.0),
        RecoveryTime("kill_postgres", "the next attempt", Spread(20, 2.0, 9.0, 12.0, 12.0), 10.0),
        RecoveryTime("kill_server", "the next call", Spread(9, 0.1, 0.2, 0.2, 0.2)),
    ],
    versions={"Fairlead": "0.1.0", "PostgreSQL": "16.4"},
    left_out={"disk_full": "not permitted | here"},
)
BROKEN = msgspec.structs.replace(
    CLEAN,
    findings=[Violation("job_lost", "call 7", "expected job 8, found none")],
    finding_counts={**CLEAN.finding_counts, "job_lost": 25},
)


def test_a_report_has_the_run_its_faults_and_its_recoveries() -> None:
    text = render_markdown(CLEAN, day=DAY)

    assert "Run of 2026-03-04, seed 42, 20.0 minutes under load." in text
    assert "| jobs | 120,000 |\n| jobs per second | 100.0 |" in text
    assert "| kill_worker | 200 |\n| kill_postgres | 20 |\n| all | 220 |" in text
    assert "| kill_worker | the next attempt | 200 | 6.0 | 8.5 | 9.5 | 11, met |" in text
    assert "| kill_postgres | the next attempt | 20 | 2.0 | 9.0 | 12.0 | 10, missed |" in text
    assert "| kill_server | the next call | 9 | 0.1 | 0.2 | 0.2 | – |" in text
    assert "| disk_full | not permitted ¦ here |" in text
    assert "| PostgreSQL | 16.4 |" in text


def test_a_report_names_each_promise_with_its_findings() -> None:
    clean, broken = (render_markdown(one, day=DAY) for one in (CLEAN, BROKEN))

    for family in FAMILIES:
        assert f"| {family.title} | {len(family.queries)} | 0 |" in clean
    assert f"| {FAMILIES[0].title} | {len(FAMILIES[0].queries)} | 25 |" in broken
    assert "**job_lost** (25): An acknowledged job is not in the tables." in broken
    assert "- call 7: expected job 8, found none" in broken
    assert "**job_lost**" not in clean


def test_every_rule_counts_in_one_row_of_the_report() -> None:
    rows = re.findall(r"^\| .+ \| (\d+) \| \d+ \|$", render_markdown(CLEAN, day=DAY), re.MULTILINE)

    assert sum(map(int, rows)) == len(MEANINGS)
    assert INCONSISTENT in MEANINGS


def test_a_report_says_how_much_each_rule_had_to_check() -> None:
    family = FAMILIES[0]
    name = next(iter(family.queries))
    idle = msgspec.structs.replace(CLEAN, work={**CLEAN.work, name: 0})

    text, short = (render_markdown(one, day=DAY) for one in (CLEAN, idle))

    assert f"| {name} | 1,200 |" in text
    assert f"| {name} | not checked |" in short
    assert f"| {family.title} | {len(family.queries) - 1} | 0 |" in short


def test_json_has_the_whole_result() -> None:
    assert msgspec.json.decode(render_json(BROKEN), type=RunResult) == BROKEN


def test_a_report_replaces_the_part_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nan earlier report\n{END}\n\nafter\n", encoding="utf-8")

    write_report(page, BROKEN, day=DAY)
    write_report(page, CLEAN, day=DAY)

    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# Title\n\n{BEGIN}\n\nRun of 2026-03-04")
    assert text.endswith(f"{END}\n\nafter\n")
    assert "an earlier report" not in text
    assert text.count("Run of") == 1


def test_a_page_without_markers_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n", encoding="utf-8")

    with pytest.raises(InvalidInput, match="Put these two lines into it"):
        write_report(page, CLEAN)

    assert page.read_text(encoding="utf-8") == "# Title\n"


def test_the_page_has_a_place_for_the_report(tmp_path: Path) -> None:
    copy = tmp_path / "reliability.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")

    write_report(copy, CLEAN, day=DAY)

    assert "seed 42" in copy.read_text(encoding="utf-8")


def test_the_page_says_of_each_promise_whether_a_run_checks_it() -> None:
    rows = re.findall(r"^\| (I\d+) \| .+ \| (yes|no) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    promises = dict(rows)
    # I11 is measured: the recovery times have its bars
    checked = {name for family in FAMILIES for name in re.findall(r"\bI\d+\b", family.title)} | {"I11"}

    assert len(promises) == len(rows)
    assert list(promises) == sorted(promises, key=lambda name: int(name[1:]))
    assert {name for name, answer in promises.items() if answer == "yes"} == checked
