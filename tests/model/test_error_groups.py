"""Errors folded to kinds."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from fairlead.model.error_groups import LONGEST_PATTERN, NO_ERROR, FailedJob, group_errors, pattern


@pytest.mark.parametrize(
    ("error", "folded"),
    [
        ("TimeoutError: gave up after 30.5 s", "TimeoutError: gave up after <n> s"),
        ("KeyError: order 0b0b6f9d-5dbb-46c9-bfe1-ff6e4e469e0f is gone", "KeyError: order <id> is gone"),
        ("OSError: at 0x7f3a91", "OSError: at <n>"),
        ("Bad: 9f86d081884c7d659a2feaa0c55ad015 differs", "Bad: <id> differs"),
        ("Bad: first line\nsecond line 2", "Bad: first line"),
        ("\n  Bad: 1,234 rows \n", "Bad: <n> rows"),
        ("ValueError: effaced facade", "ValueError: effaced facade"),
        (None, NO_ERROR),
        ("  ", NO_ERROR),
    ],
)
def test_what_differs_from_job_to_job_is_folded(error: str | None, folded: str) -> None:
    assert pattern(error) == folded


def test_a_long_line_is_cut() -> None:
    assert len(pattern("x" * 5000)) == LONGEST_PATTERN


def test_groups_know_their_jobs_and_their_last() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    troubles = [
        FailedJob(uuid4(), tenant, key, start + timedelta(minutes=number), f"E: {number}")
        for number, (tenant, key) in enumerate([("b", "x"), ("a", "y"), ("a", "x")])
    ]

    largest, other = group_errors(troubles)

    assert (largest.definition_key, largest.pattern, largest.count) == ("x", "E: <n>", 2)
    assert (largest.first_at, largest.last_at) == (start, start + timedelta(minutes=2))
    assert largest.example == troubles[2]
    assert largest.tenants == {"a", "b"}
    assert (other.definition_key, other.job_ids) == ("y", [troubles[1].job_id])
    assert largest.mark != other.mark
