from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, strategies

from fairlead.errors import FairleadError, PayloadNotJson, PayloadTooDeep, PayloadTooLarge
from fairlead.model import payload
from fairlead.model.payload import encode, json_pointer
from tests.tables import each_case

readable = strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
json_values = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-(2**1000), 2**1000)
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | readable,
    lambda inner: strategies.lists(inner) | strategies.dictionaries(readable, inner),
    max_leaves=20,
)


@given(json_values)
def test_plain_json_passes_unchanged(value: Any) -> None:
    kept, text = encode(value)

    assert kept == value
    assert msgspec.json.decode(text) == value


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    at: datetime


def test_values_with_one_obvious_json_form_are_converted() -> None:
    moment = datetime(2026, 2, 16, 10, 30, tzinfo=UTC)
    kept, _ = encode({"id": UUID(int=1), "c": Colour.RED, "p": Point(1, moment), "d": Decimal("1.50")})

    assert kept == {
        "id": "00000000-0000-0000-0000-000000000001",
        "c": "red",
        "p": {"x": 1, "at": "2026-02-16T10:30:00Z"},
        "d": "1.50",
    }


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@each_case(
    ("value", "path"),
    [
        ({"a": float("nan")}, "/a"),
        ({"a": [1, float("inf")]}, "/a/1"),
        ({"a": {"b": "x\x00y"}}, "/a/b"),
        ({"a": "\ud800"}, "/a"),
        ({"a/b": {"c~d": {1, 2}}}, "/a~1b/c~0d"),
        ({1: "x"}, ""),
        ({"a\x00": 1}, ""),
        ({"a": b"bytes"}, "/a"),
        ({"a": object()}, "/a"),
        ({"a": 2**1025}, "/a"),
        ({"a": Decimal("nan")}, "/a"),
        ({"a": 1 + 2j}, "/a"),
    ],
)
def test_what_postgresql_cannot_keep_is_refused_with_its_place(value: Any, path: str) -> None:
    with pytest.raises(PayloadNotJson) as refused:
        encode(value)
    assert refused.value.faults[0].path == path


def test_depth_is_bounded_also_where_a_value_contains_itself() -> None:
    assert encode(nested(64))[0] == nested(64)
    with pytest.raises(PayloadTooDeep):
        encode(nested(65))
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(PayloadTooDeep):
        encode({"loop": loop})


def many(value: Any) -> Any:
    """The value among so many others that they are checked level by level."""
    return [*[0] * 100, value]


@given(json_values | strategies.floats() | strategies.text() | strategies.binary())
def test_a_value_among_many_is_kept_or_refused_as_it_is_alone(value: Any) -> None:
    def outcome(tried: Any) -> Any:
        try:
            return encode(tried)[0]
        except FairleadError as refusal:
            return type(refusal)

    alone, among_others = outcome([value]), outcome(many(value))
    assert among_others == (alone if isinstance(alone, type) else [*[0] * 100, *alone])


def test_a_deep_value_is_walked_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = list[int]()
    check = payload._is_surely_plain

    def noting(value: Any, depth: int) -> bool:
        walks.append(depth)
        return check(value, depth)

    monkeypatch.setattr(payload, "_is_surely_plain", noting)
    value: Any = 2**70  # plain, but only its own check says so
    for _ in range(58):
        value = many(value)

    assert encode(value)[0] == value
    assert len(walks) == 1


def test_a_large_value_that_contains_itself_several_times_is_refused() -> None:
    """Its levels double without end."""
    loop: dict[str, Any] = dict.fromkeys(map(str, range(40)), 0)
    loop |= {"a": loop, "b": loop}
    with pytest.raises(PayloadTooDeep):
        encode(loop)


def test_size_is_bounded_to_the_byte() -> None:
    fits = {"a": "x" * (262_144 - len('{"a":""}'))}
    assert len(encode(fits)[1]) == 262_144
    with pytest.raises(PayloadTooLarge):
        encode({"a": fits["a"] + "x"})


@given(strategies.recursive(strategies.binary() | strategies.floats() | strategies.text(), strategies.lists))
def test_whatever_comes_is_either_kept_or_refused(value: Any) -> None:
    try:
        kept, text = encode(value)
    except FairleadError:
        return
    assert msgspec.json.decode(text) == kept


def test_pointers_escape_as_the_standard_says() -> None:
    assert json_pointer(["a/b", "~", 0]) == "/a~1b/~0/0"
