"""A filter selects events for a trigger. It is declarative JSON; matching never raises and runs no code."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from fairlead.errors import Fault, FilterInvalid, PayloadNotJson, PayloadTooDeep, PayloadTooLarge
from fairlead.model.definition import MAX_FAULTS
from fairlead.model.payload import encode, json_pointer
from fairlead.model.template.path import MISSING, Flaw, Path, look_up, parse_path

MAX_CONDITIONS = 100
MAX_DEPTH = 64
MAX_BYTES = 65_536
ANY = "any"

Where = tuple[str | int, ...]


class Condition(msgspec.Struct, frozen=True):
    """The tests for the value at one path."""

    path: Path
    tests: tuple[tuple[str, Any], ...]

    def holds(self, data: Any) -> bool:
        value = look_up(self.path, data)
        return all(_OPERATORS[name].holds(value, operand) for name, operand in self.tests)


class Filter(msgspec.Struct, frozen=True):
    """Conditions that must all hold, and alternatives of which at least one must match. `parse_filter` creates it."""

    conditions: tuple[Condition, ...] = ()
    alternatives: tuple["Filter", ...] = ()

    def matches(self, data: Any) -> bool:
        """Whether an event with this data passes the filter."""
        if not all(condition.holds(data) for condition in self.conditions):
            return False
        return not self.alternatives or any(one.matches(data) for one in self.alternatives)


def parse_filter(document: Any) -> Filter:
    """Parse a filter from JSON; FilterInvalid has the path of each fault."""
    reading = _FilterReader()
    result = reading.filter(_copy_json(document), ())
    if reading.faults:
        raise _invalid(reading.faults)
    return result


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0, but not true and not "1"."""
    if _is_number(one) or _is_number(other):
        return _is_number(one) and _is_number(other) and bool(one == other)
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return one.keys() == other.keys() and all(is_same_json(one[key], other[key]) for key in one)
    if type(one) is list:
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return type(one) in (str, bool, type(None)) and bool(one == other)


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


class _Operator(msgspec.Struct, frozen=True):
    holds: Callable[[Any, Any], bool]
    takes: Callable[[Any], bool] = lambda _: True
    expected: str = "a JSON value"


def _comparison(compare: Callable[[Any, Any], bool]) -> _Operator:
    return _Operator(
        lambda value, operand: _is_number(value) and bool(compare(value, operand)), _is_number, "a number"
    )


_OPERATORS = {
    "eq": _Operator(is_same_json),
    "ne": _Operator(lambda value, operand: not is_same_json(value, operand)),
    "in": _Operator(
        lambda value, operand: any(is_same_json(value, one) for one in operand),
        lambda operand: type(operand) is list,
        "a list",
    ),
    "prefix": _Operator(
        lambda value, operand: type(value) is str and value.startswith(operand),
        lambda operand: type(operand) is str,
        "a string",
    ),
    "exists": _Operator(
        lambda value, operand: (value is not MISSING) is operand,
        lambda operand: type(operand) is bool,
        "true or false",
    ),
    "gt": _comparison(lambda value, operand: value > operand),
    "gte": _comparison(lambda value, operand: value >= operand),
    "lt": _comparison(lambda value, operand: value < operand),
    "lte": _comparison(lambda value, operand: value <= operand),
}


class _FilterReader:
    def __init__(self) -> None:
        self.count = 0
        self.faults: list[Fault] = []

    def filter(self, document: Any, where: Where) -> Filter:
        if type(document) is not dict:
            self.refuse(where, "a filter must be an object of paths and conditions")
            return Filter()
        conditions = [
            self.condition(key, says, (*where, key)) for key, says in document.items() if key != ANY
        ]
        alternatives = self.alternatives(document[ANY], (*where, ANY)) if ANY in document else ()
        return Filter(tuple(one for one in conditions if one), alternatives)

    def alternatives(self, filters: Any, where: Where) -> tuple[Filter, ...]:
        if type(filters) is not list or not filters:
            self.refuse(
                where, 'must be a list of one or more filters; write a field called any as "\\"any\\""'
            )
            return ()
        return tuple(self.alternative(one, (*where, index)) for index, one in enumerate(filters))

    def alternative(self, document: Any, where: Where) -> Filter:
        self.count_condition(where)
        return self.filter(document, where)

    def condition(self, key: str, says: Any, where: Where) -> Condition | None:
        self.count_condition(where)
        try:
            path = parse_path(key)
        except Flaw as flaw:
            self.refuse(where, flaw.message)
            return None
        return Condition(path, self.tests(says, where))

    def tests(self, says: Any, where: Where) -> tuple[tuple[str, Any], ...]:
        if type(says) is not dict:
            return (("eq", says),)
        if not says:
            self.refuse(where, f"must have one or more of {', '.join(_OPERATORS)}")
        for name, operand in says.items():
            if name not in _OPERATORS:
                self.refuse(
                    (*where, name),
                    f'is none of {", ".join(_OPERATORS)}; to compare with an object, write {{"eq": …}}',
                )
            elif not _OPERATORS[name].takes(operand):
                self.refuse((*where, name), f"must be {_OPERATORS[name].expected}")
        return tuple(says.items())

    def count_condition(self, where: Where) -> None:
        self.count += 1
        if self.count > MAX_CONDITIONS:
            self.refuse(where, f"a filter has at most {MAX_CONDITIONS} conditions and alternatives")
            raise _invalid(self.faults)

    def refuse(self, where: Where, message: str) -> None:
        self.faults.append(Fault(json_pointer(where), message))
        if len(self.faults) == MAX_FAULTS:
            raise _invalid(self.faults)


def _copy_json(document: Any) -> Any:
    """A copy of the document in plain JSON."""
    try:
        return msgspec.json.decode(encode(document, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)[1])
    except (PayloadNotJson, PayloadTooDeep, PayloadTooLarge) as error:
        raise _invalid(error.faults) from None


def _invalid(faults: Sequence[Fault]) -> FilterInvalid:
    first = faults[0]
    return FilterInvalid(f"The filter is not valid: {first.path or '/'}: {first.message}.", faults)
