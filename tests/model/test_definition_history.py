"""How two versions of a definition differ."""

from datetime import UTC, datetime
from typing import Any

from fairlead.model.definition_history import (
    MOST_LINES,
    DefinitionVersion,
    LineChange,
    compare_versions,
    diff_specs,
)


def changed(older: Any, newer: Any) -> list[tuple[str, str]]:
    lines = diff_specs(older, newer)
    assert lines is not None
    return [(one.change, one.text.strip()) for one in lines if one.change is not LineChange.SAME]


def test_equal_versions_have_no_lines() -> None:
    assert diff_specs({"a": 1}, {"a": 1}) == []


def test_a_difference_names_the_lines_that_were_removed_and_added() -> None:
    assert changed({"kind": "function", "timeout": 5}, {"kind": "function", "timeout": 60}) == [
        ("removed", '"timeout": 5'),
        ("added", '"timeout": 60'),
    ]


def test_lines_far_from_a_change_are_left_out() -> None:
    many = {f"field_{number:02}": number for number in range(30)}

    lines = diff_specs(many, many | {"field_02": 0, "field_27": 0})

    assert lines is not None
    assert [one.change for one in lines].count(LineChange.GAP) == 1
    assert len(lines) < 15


def test_an_enormous_schema_is_not_compared() -> None:
    assert diff_specs({}, {"enum": list(range(MOST_LINES))}) is None


def test_each_version_is_compared_with_the_one_before() -> None:
    versions = [
        DefinitionVersion(
            version=n, spec={"n": n}, changed_by="ada", changed_at=datetime(2026, 1, n, tzinfo=UTC)
        )
        for n in (7, 4, 1)
    ]

    found = compare_versions(versions)

    assert [(one.version.version, one.before) for one in found] == [(7, 4), (4, 1), (1, None)]
    assert found[2].lines is None
