"""Rates and limits by key: what is one, what is refused, and that texts survive a round trip."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import DefinitionInvalid, InvalidInput
from fairlead.model.flow import (
    MAX_POINTER,
    MOST_SECONDS,
    MOST_STARTS,
    KeyLimit,
    KeyStrategy,
    Rate,
    describe_rate,
    format_key_limit,
    format_rate,
    parse_rate,
    read_rate,
)
from tests.tables import each_case

pointers = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40).map(
    lambda text: f"/{text}"
)
starts = st.integers(1, MOST_STARTS)
rates = st.builds(Rate, starts, st.integers(1, MOST_SECONDS), st.none() | starts, st.none() | pointers)


@given(rates)
def test_a_rate_survives_being_written_as_text_or_json(rate: Rate) -> None:
    assert parse_rate(format_rate(rate)) == rate
    assert read_rate(msgspec.json.decode(msgspec.json.encode(rate))) == rate
    assert read_rate(rate) is rate


@given(rates)
def test_without_a_burst_as_many_come_at_once_as_a_second_allows(rate: Rate) -> None:
    plain = Rate(rate.limit, rate.per_seconds)
    assert plain.burst is not None
    assert plain.burst >= 1
    assert plain.burst * plain.per_seconds >= plain.limit
    assert plain.burst == 1 or (plain.burst - 1) * plain.per_seconds < plain.limit


@each_case(
    ("text", "rate"),
    [
        ("100/min", Rate(100, 60, 2)),
        ("100/min+20", Rate(100, 60, 20)),
        (" 10/s ", Rate(10, 1, 10)),
        ("1000/15min", Rate(1000, 900, 2)),
        ("1/h", Rate(1, 3600, 1)),
        ("5/2d+5", Rate(5, 172_800, 5)),
        ("100/min+20 cost /tokens", Rate(100, 60, 20, "/tokens")),
        ("1/s  cost  /a b ", Rate(1, 1, 1, "/a b ")),
    ],
)
def test_people_write_rates_as_text(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@each_case(
    "text",
    [
        "",
        "often",
        "100",
        "100/",
        "/min",
        "100/week",
        "100/min+",
        "100/min 20",
        "-1/s",
        "1.5/s",
        "0/s",
        "1/0s",
        "1/s+0",
        "1000001/s",
        "1/31d",
        "1/s+1000001",
        "1/s cost tokens",
        "1/s cost",
        "١/s",
        f"1/s cost /{'x' * MAX_POINTER}",
        "x" * 10_000,
    ],
)
def test_other_texts_are_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_rate(text)
    assert refused.value.faults
    assert len(refused.value.message) < 1000


@each_case(
    ("fields", "path"),
    [
        ({"limit": 0}, "rate.limit"),
        ({"limit": MOST_STARTS + 1}, "rate.limit"),
        ({"limit": True}, "rate.limit"),
        ({"limit": 1, "per_seconds": 0}, "rate.per_seconds"),
        ({"limit": 1, "per_seconds": MOST_SECONDS + 1}, "rate.per_seconds"),
        ({"limit": 1, "per_seconds": None}, "rate.per_seconds"),
        ({"limit": 1, "burst": 0}, "rate.burst"),
        ({"limit": 1, "cost": "tokens"}, "rate.cost"),
        ({"limit": 1, "cost": "/\0"}, "rate.cost"),
    ],
)
def test_rates_out_of_range_name_the_field(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Rate(**fields)
    assert [one.path for one in refused.value.faults] == [path]


@pytest.mark.parametrize("given_value", [5, "100/min", [], {}, {"limit": "1"}, {"limit": 1.5}, {"limit": 0}])
def test_other_values_are_no_rate(given_value: Any) -> None:
    with pytest.raises(InvalidInput):
        read_rate(given_value)


def test_nothing_is_no_rate() -> None:
    assert read_rate(None) is None


@each_case(
    ("rate", "words"),
    [
        (Rate(100, 60), "100 per minute"),
        (Rate(1000, 900), "1,000 per 15 minutes"),
        (Rate(1, 86_400), "1 per day"),
        (Rate(3, 90), "3 per 90 seconds"),
        (Rate(3, 7200), "3 per 2 hours"),
    ],
)
def test_rates_in_words(rate: Rate, words: str) -> None:
    assert describe_rate(rate) == words


key_limits = st.builds(
    KeyLimit,
    pointers,
    st.none() | starts,
    rates,
    st.sampled_from(KeyStrategy),
    st.booleans(),
)


@given(key_limits)
def test_a_limit_by_key_survives_json(limit: KeyLimit) -> None:
    assert msgspec.json.decode(msgspec.json.encode(limit), type=KeyLimit) == limit
    assert format_key_limit(limit).startswith(limit.pointer)


@each_case(
    ("fields", "path"),
    [
        ({"pointer": "customer", "max_running": 1}, "by_key.pointer"),
        ({"pointer": "", "max_running": 1}, "by_key.pointer"),
        ({"pointer": f"/{'x' * MAX_POINTER}", "max_running": 1}, "by_key.pointer"),
        ({"pointer": "/a", "max_running": 0}, "by_key.max_running"),
        ({"pointer": "/a", "max_running": True}, "by_key.max_running"),
        ({"pointer": "/a", "max_running": MOST_STARTS + 1}, "by_key.max_running"),
        ({"pointer": "/a"}, "by_key.rate"),
    ],
)
def test_limits_by_key_out_of_range_name_the_field(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(DefinitionInvalid) as refused:
        KeyLimit(**fields)
    assert [one.path for one in refused.value.faults] == [path]


def test_limits_by_key_in_words() -> None:
    limit = KeyLimit("/customer", max_running=2, rate=Rate(10, 60), fifo=True)
    assert format_key_limit(limit) == "/customer: 2 running, 10/min+1, in order"
