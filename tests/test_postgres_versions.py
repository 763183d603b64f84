"""The page of the PostgreSQL versions, and that CI runs on all of them."""

import re
from pathlib import Path

import pytest

from tests import postgres_versions
from tests.postgres_versions import (
    PAGE,
    SUITES,
    SUPPORTED,
    Counts,
    is_unexplained,
    make_row,
    make_unrun_row,
    read_counts,
    read_rows,
    render,
    run_version,
)

CI = Path(__file__).parents[1] / ".github" / "workflows" / "ci.yml"
REPORT = """<testsuites><testsuite>
<testcase classname="tests.db.test_x" name="good"/>
<testcase classname="tests.db.test_x" name="bad"><failure message="no"/></testcase>
<testcase classname="tests.db.test_x" name="bad"><error message="teardown"/></testcase>
<testcase classname="tests.db.test_x" name="left"><skipped message="later"/></testcase>
</testsuite></testsuites>"""


def test_the_page_has_a_row_for_each_supported_version() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert render(read_rows(page)) == page, "run: make postgres-versions"
    assert tuple(read_rows(page)) == SUPPORTED
    assert [row for row in read_rows(page).values() if is_unexplained(row)] == []


def test_ci_runs_on_each_supported_version() -> None:
    matrix = re.search(r"postgresql: \[(.*)\]", CI.read_text(encoding="utf-8"))

    assert matrix is not None
    assert tuple(map(int, re.findall(r"\d+", matrix[1]))) == SUPPORTED


def test_a_run_replaces_only_the_row_of_its_version() -> None:
    rows = {17: make_row("17.10", Counts(7, 0, 1)), 18: make_row("18.1", Counts(9, 0, 0))}

    again = read_rows(render(rows)) | {18: make_row("18.2", Counts(8, 1, 0))}

    assert again[17] == rows[17]
    assert "| 18.2 | 8 | 1 | 0 |" in render(again)
    assert f"| {SUPPORTED[0]} | not run |" in render(again)


def test_a_version_without_a_run_needs_a_reason() -> None:
    assert [is_unexplained(row) for row in read_rows(render({})).values()] == [True] * len(SUPPORTED)
    assert not is_unexplained(make_unrun_row(17, "its programs could not be downloaded"))
    assert not is_unexplained(make_row("17.10", Counts(7, 0, 1)))


def test_a_version_that_cannot_be_had_gets_its_reason_and_keeps_an_earlier_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find_programs(_: int) -> Path:
        raise RuntimeError("npm view: no answer from https://registry.test")

    monkeypatch.setattr(postgres_versions, "find_programs", find_programs)
    rows = {17: make_row("17.10", Counts(7, 0, 1)), 18: make_unrun_row(18)}
    before = dict(rows)

    assert not any(run_version(major, SUITES, rows) for major in (16, 17, 18))
    assert rows[17] == before[17]
    for major in (16, 18):
        assert not is_unexplained(rows[major])
        assert "registry" not in rows[major]


def test_a_test_that_fails_twice_counts_once() -> None:
    assert read_counts(REPORT) == Counts(1, 1, 1, ("tests.db.test_x.bad",))
