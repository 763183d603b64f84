import math
from typing import Any

import pytest
from hypothesis import given, strategies

from fairlead.errors import FilterInvalid
from fairlead.model.template.filter import is_same_json, parse_filter
from tests.anything import Hostile, HostileDict, HostileStr, json_of, json_values, junk, scalars, unhurried
from tests.tables import each_case

EVENT = {
    "provider": {"kind": "dropbox", "id": 7},
    "size": 1.0,
    "big": 2**70,
    "flag": True,
    "nothing": None,
    "tags": ["a", {"b": [1]}],
    "any": "thing",
    "a.b": 1,
    "nan": math.nan,
    "inf": math.inf,
}


def matches(document: Any, data: Any = EVENT) -> bool:
    return parse_filter(document).matches(data)


@each_case(
    "document",
    [
        {},
        {"provider.kind": "dropbox"},
        {"provider.kind": "dropbox", "provider.id": 7},
        {"size": 1},
        {"flag": True},
        {"nothing": None},
        {"tags.0": "a"},
        {"tags.1.b.0": 1.0},
        {"tags": ["a", {"b": [1.0]}]},
        {'"a.b"': 1},
        {"provider": {"eq": {"id": 7.0, "kind": "dropbox"}}},
        {"provider.id": {"ne": 8, "in": [1, 7], "gte": 7, "lte": 7, "exists": True}},
        {"provider.id": {"gt": 6.5, "lt": 7.5}},
        {"big": {"gt": 1e20}},
        {"inf": {"gt": 2**1000}},
        {"provider.kind": {"prefix": "drop"}},
        {"provider.kind": {"prefix": ""}},
        {"nothing": {"exists": True}},
        {"none": {"exists": False}},
        {"none": {"ne": 1}},
        {"provider.kind": {"ne": None}},
        {"flag": {"ne": 1}},
        {"nan": {"ne": 1}},
        {"any": [{"flag": False}, {"flag": True}]},
        {"any": [{}]},
        {"any": [{"any": [{"flag": False}, {"size": 1}]}], "size": 1},
        {'"any"': "thing"},
    ],
)
def test_an_event_that_meets_every_condition_matches(document: Any) -> None:
    assert matches(document)


@each_case(
    "document",
    [
        {"provider.kind": "dropbox", "provider.id": 8},
        {"flag": 1},
        {"size": True},
        {"size": "1"},
        {"provider.id": "7"},
        {"nothing": False},
        {"nothing": ""},
        {"tags": ["a"]},
        {"tags": {"eq": {}}},
        {"provider": {"eq": {"id": 7}}},
        {"provider.id": {"in": []}},
        {"flag": {"in": [1, "true"]}},
        {"provider.id": {"gt": 7}},
        {"provider.id": {"gte": 6, "lt": 7}},
        {"provider.kind": {"gt": 0}},
        {"flag": {"gte": 0}},
        {"provider.id": {"prefix": "7"}},
        {"provider.kind": {"prefix": "Drop"}},
        {"nothing": {"exists": False}},
        {"none": None},
        {"none": {"eq": None}},
        {"none": {"in": [None]}},
        {"none": {"prefix": ""}},
        {"none": {"exists": True}},
        {"none": {"lt": 1}},
        {"none": {"ne": 1, "exists": True}},
        {"nan": {"gt": 0}},
        {"nan": {"lte": 0}},
        {"any": [{"flag": False}, {"size": 2}]},
        {"any": [{"flag": True}], "size": 2},
        {'"any"': "other"},
    ],
)
def test_an_event_that_fails_one_condition_does_not(document: Any) -> None:
    assert not matches(document)


def test_a_missing_path_fails_all_but_two_conditions() -> None:
    operands: dict[str, Any] = {"eq": None, "ne": None, "in": [None], "prefix": "", "exists": False}
    operands |= dict.fromkeys(("gt", "gte", "lt", "lte"), 0)

    assert {name for name, operand in operands.items() if matches({"none": {name: operand}})} == {
        "ne",
        "exists",
    }


@each_case(
    ("document", "path"),
    [
        ([], ""),
        (None, ""),
        ("flag", ""),
        ({"": 1}, "/"),
        ({"a b": 1}, "/a b"),
        ({"a/b": 1}, "/a~1b"),
        ({"a": {}}, "/a"),
        ({"a": {"regex": "x"}}, "/a/regex"),
        ({"a": {"eq": 1, "x": 2}}, "/a/x"),
        ({"a": {"in": "abc"}}, "/a/in"),
        ({"a": {"prefix": 1}}, "/a/prefix"),
        ({"a": {"exists": 1}}, "/a/exists"),
        ({"a": {"gt": True}}, "/a/gt"),
        ({"a": {"lte": "1"}}, "/a/lte"),
        ({"a": {"gt": None}}, "/a/gt"),
        ({"any": "thing"}, "/any"),
        ({"any": []}, "/any"),
        ({"any": [{"a": 1}, 3]}, "/any/1"),
        ({"any": [{"a": {"gt": "x"}}]}, "/any/0/a/gt"),
        ({"a": float("nan")}, "/a"),
        ({"a": object()}, "/a"),
    ],
)
def test_a_filter_that_cannot_be_is_refused_with_where(document: Any, path: str) -> None:
    with pytest.raises(FilterInvalid) as refused:
        parse_filter(document)
    assert [fault.path for fault in refused.value.faults] == [path]


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(FilterInvalid) as refused:
        parse_filter({"a b": 1, "c": {"gt": "x", "lt": "y"}})
    assert [fault.path for fault in refused.value.faults] == ["/a b", "/c/gt", "/c/lt"]


def test_filters_are_bounded() -> None:
    deep: Any = {"a": 1}
    for _ in range(40):
        deep = {"any": [deep]}
    assert matches({f"f{n}": {"exists": False} for n in range(100)})
    too_much: list[Any] = [
        {f"f{n}": 1 for n in range(101)},
        {"any": [{}] * 101},
        {"any": [{f"f{n}": 1} for n in range(51)]},
        {"a": "x" * 65_536},
        deep,
    ]
    for document in too_much:
        with pytest.raises(FilterInvalid):
            parse_filter(document)


def test_a_filter_does_not_change_with_the_document_it_was_made_of() -> None:
    document: dict[str, Any] = {"a": {"in": [1]}}
    made = parse_filter(document)
    document["a"]["in"].append(2)

    assert not made.matches({"a": 2})


def strict(value: Any) -> Any:
    """An oracle of equality: the kind of each value beside it."""
    match value:
        case bool() | None | str():
            return (type(value).__name__, value)
        case dict():
            return ("object", {key: strict(item) for key, item in value.items()})
        case list():
            return ("list", [strict(item) for item in value])
    return ("number", value)


alike = json_of(strategies.sampled_from([0, 1, 0.0, 1.0, True, False, None, "", "1"]))


@unhurried
@given(alike, alike)
def test_equality_is_that_of_json(one: Any, other: Any) -> None:
    assert is_same_json(one, other) == (strict(one) == strict(other))
    assert is_same_json(one, one)


conditions = strategies.dictionaries(
    strategies.sampled_from(["eq", "ne", "in", "prefix", "exists", "gt", "gte", "lt", "lte"]),
    json_values | strategies.lists(scalars) | strategies.floats() | strategies.booleans(),
    max_size=3,
)
keys = strategies.sampled_from(["a", "b", "a.b", "0", '"a.b"', "any", '"any"']) | junk
filters = strategies.dictionaries(keys, json_values | conditions, max_size=4)
documents = (
    filters | strategies.fixed_dictionaries({"any": strategies.lists(filters, max_size=3)}) | json_values
)
datas = json_of(scalars | strategies.floats())


@unhurried
@given(documents, datas)
def test_whatever_is_written_is_refused_or_tells_yes_or_no(document: Any, data: Any) -> None:
    try:
        made = parse_filter(document)
    except FilterInvalid:
        return
    assert made.matches(data) in (True, False)


@unhurried
@given(conditions, strategies.sampled_from([Hostile, HostileDict, HostileStr]))
def test_nothing_in_an_event_is_ever_called(says: Any, kind: type) -> None:
    try:
        made = parse_filter({"any": [{"a": says}, {"a.b": says}, {"l.0": says}]})
    except FilterInvalid:
        return
    made.matches({"a": kind(), "l": [kind()]})
    made.matches(kind())
