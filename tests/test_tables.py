"""A table of cases in one test hides no fault, and names each."""

import pytest

from tests.tables import each_case

NUMBERS = [(1, 1), (1, 2), (0, 0)]


@each_case(("first", "second"), NUMBERS)
def divides(first: int, second: int) -> None:
    assert second / first == 1


@each_case(("first", "second"), lambda: NUMBERS, ids=["alike", "apart", "nothing"])
async def divides_later(first: int, second: int) -> None:
    assert second / first == 1


@each_case("text", ["raises"])
def refuses(text: str) -> None:
    with pytest.raises(ValueError, match="never"):
        pass


@each_case("text", [])
def tries_nothing(text: str) -> None:
    pass


def test_every_wrong_case_is_named_with_its_line_and_its_fault() -> None:
    with pytest.raises(AssertionError) as caught:
        divides()

    heading, apart, *_, nothing = str(caught.value).splitlines()
    assert heading == "2 of 3 are wrong:"
    assert apart.startswith("1, 2, line 12: assert (2 / 1) == 1")
    assert nothing == "0, 0, line 12: ZeroDivisionError: division by zero"


async def test_every_wrong_case_of_an_asynchronous_test_is_named() -> None:
    with pytest.raises(AssertionError, match=r"2 of 3 are wrong:\napart, (?s:.)*\nnothing, line 17: Zero"):
        await divides_later()


def test_what_pytest_itself_finds_wrong_is_a_fault_too() -> None:
    with pytest.raises(AssertionError, match=r"1 of 1 are wrong:\n'raises', .* DID NOT RAISE"):
        refuses()


def test_a_table_without_cases_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="no case was tried"):
        tries_nothing()
