from typing import Any

import pytest
from hypothesis import given, strategies

from fairlead import Backoff, JobStatus, can_retry
from fairlead.errors import DefinitionInvalid, InvalidInput
from fairlead.model.job import TRANSITIONS, may_move
from tests.tables import each_case

# The three policies that users brought with them: (policy, delay of the n-th failure, n from 0).
POLICIES = [
    (Backoff(10, 2, 3600, 0), [10, 10, 20, 40, 80]),
    (Backoff(1, 2, 60, 0), [1, 1, 2, 4, 8, 16, 32, 60, 60]),
    (Backoff(2, 2, 3600, 0), [2, 2, 4]),
]


@each_case(("policy", "delays"), POLICIES)
def test_delays_grow_by_the_factor_up_to_the_cap(policy: Backoff, delays: list[float]) -> None:
    assert [policy.delay(n) for n in range(len(delays))] == delays


@given(strategies.integers(0, 10**9), strategies.floats(0, 1), strategies.floats(1, 100))
def test_no_number_of_failures_breaks_the_cap(failures: int, jitter: float, factor: float) -> None:
    assert 0 <= Backoff(10, factor, 3600, jitter).delay(failures) <= 3600 * (1 + jitter)


@each_case(
    ("status", "attempts", "limit", "expected"),
    [
        (JobStatus.SUCCEEDED, 0, 5, False),
        (JobStatus.RUNNING, 0, 5, False),
        (JobStatus.FAILED, 4, 5, True),
        (JobStatus.FAILED, 5, 5, False),
        (JobStatus.QUEUED, 0, 1, True),
    ],
)
def test_who_may_be_tried_again(status: JobStatus, attempts: int, limit: int, *, expected: bool) -> None:
    assert can_retry(status, attempts, limit) is expected


@each_case(
    ("word", "expected"), [("success", False), ("succeeded", False), ("running", False), ("failed", True)]
)
def test_a_status_may_be_told_by_its_word(word: str, *, expected: bool) -> None:
    assert can_retry(word, 0) is expected


@each_case("word", ["sucess", "", None, 1, ["failed"]])
def test_a_word_that_is_no_status_is_refused(word: Any) -> None:
    with pytest.raises(InvalidInput, match="dead_letter") as refused:
        can_retry(word, 0)
    assert refused.value.faults[0].path == "status"


@each_case("field", ["base_seconds", "factor", "cap_seconds", "jitter"])
@each_case("value", ["x", None, float("nan"), True, -1, [], 10**9])
def test_a_backoff_that_is_no_number_in_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(DefinitionInvalid) as refused:
        Backoff(**{field: value})
    assert [fault.path for fault in refused.value.faults] == [f"backoff.{field}"]


def test_only_a_person_moves_a_job_out_of_a_terminal_status() -> None:
    assert TRANSITIONS.keys() == set(JobStatus)
    for old in JobStatus:
        for new in JobStatus:
            if old.terminal and may_move(old, new):
                assert (new, old != JobStatus.SUCCEEDED) == (JobStatus.QUEUED, True)
