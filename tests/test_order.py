"""How a run of all tests is laid out."""

from collections.abc import Iterable

import pytest

from tests.order import LONG, deal, is_long


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("long", "short"), [(0, 0), (0, 5), (5, 0), (3, 100), (90, 10)])
def test_every_test_is_dealt_once(processes: int, long: int, short: int) -> None:
    everything = [*range(-long, 0), *range(short)]
    assert sorted(deal(everything[:long], everything[long:], processes)) == everything


def test_every_second_process_begins_with_long_tests_and_the_others_with_none() -> None:
    ordered = deal(["long"] * 4, ["short"] * 16, processes=4)
    slices = [ordered[start : start + 5] for start in range(0, 20, 5)]
    assert [_counts(one) for one in slices] == [2, 0, 2, 0]
    assert all(one[:2] == ["long"] * 2 for one in (slices[0], slices[2]))


def _counts(slice_: Iterable[str]) -> int:
    return sum(one == "long" for one in slice_)


def test_what_is_said_to_be_long_exists(pytestconfig: pytest.Config) -> None:
    assert [name for name in LONG if not (pytestconfig.rootpath / name).exists()] == []
    assert is_long("tests/acceptance/test_dev.py::test_one")
    assert not is_long("tests/test_order.py::test_one")
