"""The worst-case cost of validating with a JSON Schema, computed without compiling it.

A schema of 3 kB can require 2^40 checks: forty definitions, each of which refers to the next twice. The compiled
validator runs them without returning to Python, so no timeout can stop it. This bound is computed first, over the
definitions and not over their expansion, and holds for every instance:

- A part of a schema is applied to one place of an instance at a time. Applied once, it applies the parts of `allOf`,
  `anyOf`, `oneOf`, `not`, `if`, `then`, `else`, `dependentSchemas` and `$ref` to the same place, at most once each. These
  references have no cycle (one would never end, and is refused), so the cost at a place is a sum over parts, children first.
- `unevaluatedProperties` and `unevaluatedItems` check again, for each of those parts, whether it holds, and which values it covers.
- The other keywords lead to a place one level down: for a property that is at most one of `properties` and
  `additionalProperties`, and any of `patternProperties`; items likewise. So the cost at a place of depth d is a sum over costs at
  depth d - 1, also where definitions are recursive.

- `uniqueItems` looks up each item by a hash that is equal for numbers with the same float: n such numbers are all
  compared with each other.

With V, the most at any place, an instance of n values costs at most n × V; matching regular expressions costs states × characters.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from fairlead.model.pattern_cost import CEILING, count_states
from fairlead.model.payload import json_pointer

# For one place of an instance. One check takes about 25 ns.
MOST_CHECKS = 100_000
# Compiling `unevaluated…` expands all references, at about 10 µs each; a state of a pattern takes about 2 µs.
MOST_WRITTEN_OUT = 20_000
MOST_STATES = 100_000
# The limit of this computation: parts × levels.
MOST_STEPS = 100_000
DEEPEST = 64

# Keywords that cost more than one check, in checks; measured with the slowest instances.
_NUMBERS = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
_BOUND_CHECKS, _FRACTION_BOUND_CHECKS = 5, 200
_MULTIPLE_CHECKS, _FRACTION_MULTIPLE_CHECKS = 500, 2500
_VALUE_CHECKS, _FRACTION_CHECKS = 40, 1000
# numbers with many digits before or after the point
_LONG_CHECKS = 8000
UNIQUE_CHECKS = 64
_PATTERN_CHECKS = 5

_ONE_IN_PLACE = ("not", "if", "then", "else")
_SEVERAL_IN_PLACE = ("allOf", "anyOf", "oneOf")
_NAMED_IN_PLACE = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


class TooCostly(Exception):
    """The validation cost of a schema exceeds the limit; `where` is a JSON pointer to the costly part."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where
        self.message = message


class SchemaCost(msgspec.Struct, frozen=True):
    """The highest cost at one place of an instance that is nested at most `deepest` levels."""

    checks: int
    states: int
    # None: any depth
    deepest: int | None = None
    # whether items are compared with each other somewhere
    unique: bool = False


class _Part(msgspec.Struct):
    where: str
    checks: int = 1
    states: int = 0
    in_place: list[int] = msgspec.field(default_factory=list)
    # parts one level down: one of `one_…` applies, and all of `all_…`
    one_property: list[int] = msgspec.field(default_factory=list)
    all_properties: list[int] = msgspec.field(default_factory=list)
    one_item: list[int] = msgspec.field(default_factory=list)
    all_items: list[int] = msgspec.field(default_factory=list)
    unevaluated: bool = False
    leads_down: bool = False


def compute_cost(schema: Any) -> SchemaCost:
    """The cost of a schema (an object, true or false); TooCostly names the part to change."""
    if not isinstance(schema, dict):
        return SchemaCost(checks=1, states=0)
    parts = _SchemaReader(schema).parts()
    ordered = _sort_children_first(parts)
    if sum(part.states for part in parts) > MOST_STATES:
        worst = max(parts, key=lambda part: part.states)
        raise TooCostly(worst.where, "its patterns are too long: repeat less often with {n}")
    _check_written_out(parts, ordered)
    checks = _cost_by_level(parts, ordered, [part.checks for part in parts])
    patterned = any(part.states for part in parts)
    states = _cost_by_level(parts, ordered, [part.states for part in parts]) if patterned else [0]
    unique = any(one.get("uniqueItems") for _, one in _iterate_objects(schema))
    return replace(_bound_cost(parts, ordered, checks, states), unique=unique)


def _bound_cost(
    parts: Sequence[_Part], ordered: Sequence[int], checks: Sequence[int], states: Sequence[int]
) -> SchemaCost:
    """The cost within the limits; for a recursive schema perhaps only up to a depth of the instance."""
    affordable = [
        max(level) <= MOST_CHECKS for level in zip(checks, [*states, *[0] * len(checks)], strict=False)
    ]
    if all(affordable):
        half = len(checks) // 2
        grows = len(checks) > DEEPEST and max(checks[half:]) > max(checks[:half])
        return SchemaCost(max(checks), max(states), DEEPEST if grows else None)
    deepest = affordable.index(False) - 1
    if len(checks) <= DEEPEST or deepest < 1:
        raise TooCostly(
            _first_costly(parts, ordered),
            f"one value may take {_format_count(max(*checks, *states))} checks, and the limit is {MOST_CHECKS}: refer to "
            "each definition less often, and use fewer alternatives inside one another",
        )
    return SchemaCost(max(checks[: deepest + 1]), max(states[: deepest + 1]), deepest)


def _first_costly(parts: Sequence[_Part], ordered: Sequence[int]) -> str:
    """The innermost part that costs too much by itself, where there is one."""
    whole = _cost_in_place(parts, ordered, [part.checks for part in parts])
    return next((parts[number].where for number in ordered if whole[number] > MOST_CHECKS), "")


def _format_count(count: int) -> str:
    return f"more than {CEILING}" if count >= CEILING else str(count)


def _cost_by_level(parts: Sequence[_Part], ordered: Sequence[int], own: Sequence[int]) -> list[int]:
    """The highest cost at one place for each depth, until no part applies."""
    levels, here, steps = list[int](), list(own), 0
    while True:
        level = _cost_in_place(parts, ordered, here)
        levels.append(level[0])
        steps += len(parts)
        if not any(level) or len(levels) > DEEPEST:
            return levels
        if steps > MOST_STEPS:
            raise TooCostly("", "it is too large and too deeply nested, or recursive: remove definitions")
        here = [_cost_below(part, level) if part.leads_down else 0 for part in parts]


def _cost_in_place(parts: Sequence[_Part], ordered: Sequence[int], here: Sequence[int]) -> list[int]:
    """The cost of each part, including all parts that it applies to the same place."""
    whole, looked_at = [0] * len(parts), [0] * len(parts)
    for number in ordered:
        below = parts[number].in_place
        if not below and not parts[number].unevaluated:
            whole[number] = looked_at[number] = here[number]
            continue
        cost = here[number] + sum(whole[other] for other in below)
        looked_at[number] = min(CEILING, cost + sum(looked_at[other] for other in below))
        whole[number] = min(CEILING, cost + (2 * looked_at[number] if parts[number].unevaluated else 0))
    return whole


def _cost_below(part: _Part, level: Sequence[int]) -> int:
    """The cost of a part one level down."""
    properties = max((level[one] for one in part.one_property), default=0) + sum(
        level[one] for one in part.all_properties
    )
    items = max((level[one] for one in part.one_item), default=0) + sum(level[one] for one in part.all_items)
    return min(CEILING, max(properties, items))


def _check_written_out(parts: Sequence[_Part], ordered: Sequence[int]) -> None:
    sizes = _cost_in_place(parts, ordered, [1] * len(parts))
    written = [(sizes[number], part.where) for number, part in enumerate(parts) if part.unevaluated]
    if sum(size for size, _ in written) > MOST_WRITTEN_OUT:
        raise TooCostly(
            max(written)[1],
            "unevaluatedProperties and unevaluatedItems look through too many references: use additionalProperties or "
            "items, or refer to fewer definitions",
        )


def _sort_children_first(parts: Sequence[_Part]) -> list[int]:
    """The parts, each after those that it applies to the same place; a cycle of these is refused."""
    ordered, open_, done = list[int](), set[int](), set[int]()
    for first in range(len(parts)):
        stack = [(first, iter(parts[first].in_place))] if first not in done else []
        open_.add(first)
        while stack:
            number, others = stack[-1]
            for other in others:
                if other in open_ and other not in done:
                    raise TooCostly(
                        parts[other].where, "it refers to itself for the same value, which never ends"
                    )
                if other not in done:
                    open_.add(other)
                    stack.append((other, iter(parts[other].in_place)))
                    break
            else:
                stack.pop()
                if number not in done:
                    done.add(number)
                    ordered.append(number)
    return ordered


class _SchemaReader:
    """Finds the parts of a schema: each object once, however many references it has."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._numbers: dict[int, int] = {}
        self._found: list[tuple[dict[str, Any], _Part]] = []
        self._anchors: dict[str, list[tuple[str, dict[str, Any]]]] | None = None

    def parts(self) -> list[_Part]:
        self._number(self._root, "")
        at = 0
        while at < len(self._found):  # _read appends to it
            self._read(*self._found[at])
            at += 1
        return [part for _, part in self._found]

    def _number(self, schema: dict[str, Any], where: str) -> int:
        if id(schema) not in self._numbers:
            if where and isinstance(schema.get("$id"), str):
                raise TooCostly(
                    where, "$id is allowed at the top only: use $defs and #/$defs/… to refer to parts"
                )
            self._numbers[id(schema)] = len(self._found)
            self._found.append((schema, _Part(where)))
        return self._numbers[id(schema)]

    def _read(self, schema: dict[str, Any], part: _Part) -> None:
        part.checks = len(schema) + sum(_keyword_cost(name, value) for name, value in schema.items()) + 1
        part.unevaluated = any(name in schema for name in _UNEVALUATED)
        part.states = _count_schema_states(schema)
        part.in_place = [
            *self._number_members(schema, part, _ONE_IN_PLACE),
            *self._number_entries(schema, part, _SEVERAL_IN_PLACE),
            *self._number_entries(schema, part, _NAMED_IN_PLACE),
            *self._number_references(schema, part),
        ]
        part.one_property = [
            *self._number_entries(schema, part, ("properties",)),
            *self._number_members(schema, part, ("additionalProperties",)),
        ]
        part.all_properties = [
            *self._number_entries(schema, part, ("patternProperties",)),
            *self._number_members(schema, part, ("propertyNames", "unevaluatedProperties")),
        ]
        part.one_item = [
            *self._number_entries(schema, part, ("prefixItems",)),
            *self._number_members(schema, part, ("items", "additionalItems")),
        ]
        part.all_items = self._number_members(schema, part, ("contains", "unevaluatedItems"))
        part.leads_down = bool(part.one_property or part.all_properties or part.one_item or part.all_items)

    def _number_members(self, schema: dict[str, Any], part: _Part, names: Iterable[str]) -> list[int]:
        return [
            self._number(schema[name], f"{part.where}/{name}")
            for name in names
            if isinstance(schema.get(name), dict)
        ]

    def _number_entries(self, schema: dict[str, Any], part: _Part, names: Iterable[str]) -> list[int]:
        return [
            self._number(one, f"{part.where}/{name}{json_pointer([key])}")
            for name in names
            for key, one in _entries(schema.get(name))
            if isinstance(one, dict)
        ]

    def _number_references(self, schema: dict[str, Any], part: _Part) -> Iterator[int]:
        for name in _REFERENCES:
            if isinstance(reference := schema.get(name), str):
                where, target = self._resolve_reference(reference, f"{part.where}/{name}")
                if isinstance(target, dict):
                    yield self._number(target, where)

    def _resolve_reference(self, reference: str, where: str) -> tuple[str, Any]:
        """The part of this schema that a reference names."""
        document, _, fragment = reference.partition("#")
        if document and document != str(self._root.get("$id", "")).rstrip("#"):
            raise TooCostly(where, f"{reference[:200]!r} is not in this schema: refer to #/$defs/… only")
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            return self._find_anchor(fragment, where)
        value: Any = self._root
        for step in fragment.split("/")[1:]:
            value = self._step(value, step.replace("~1", "/").replace("~0", "~"))
            if value is None:
                raise TooCostly(where, f"there is no {reference[:200]!r} in this schema")
            if isinstance(value, dict) and isinstance(value.get("$id"), str):
                raise TooCostly(
                    where, "$id is allowed at the top only: use $defs and #/$defs/… to refer to parts"
                )
        return fragment, value

    def _step(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return value.get(name)
        if isinstance(value, list | tuple) and name.isdecimal() and int(name) < len(value):
            return value[int(name)]
        return None

    def _find_anchor(self, name: str, where: str) -> tuple[str, Any]:
        if self._anchors is None:
            self._anchors = {}
            for at, one in _iterate_objects(self._root):
                for anchor in (one.get("$anchor"), one.get("$dynamicAnchor")):
                    if isinstance(anchor, str):
                        self._anchors.setdefault(anchor, []).append((at, one))
        found = self._anchors.get(name, [])
        if len(found) != 1:
            raise TooCostly(where, f"there are {len(found)} anchors {name[:200]!r} in this schema, not one")
        return found[0]


def _entries(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _iterate_objects(root: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        where, value = stack.pop()
        if isinstance(value, dict):
            yield where, value
        stack.extend((where + json_pointer([key]), one) for key, one in _entries(value))


def _keyword_cost(name: str, value: Any) -> int:
    """The cost of a keyword beyond one check."""
    if name in ("enum", "const"):
        return _comparison_cost(value)
    if name in _NUMBERS:
        return _FRACTION_BOUND_CHECKS if isinstance(value, float) else _BOUND_CHECKS
    if name == "multipleOf":
        return (
            _MULTIPLE_CHECKS if isinstance(value, int) else _fraction_cost(value, _FRACTION_MULTIPLE_CHECKS)
        )
    if name == "uniqueItems":
        return UNIQUE_CHECKS if value else 0
    if name == "patternProperties":
        return _PATTERN_CHECKS * len(value) if isinstance(value, dict) else 0
    return (
        len(value)
        if name in ("required", "dependentRequired", "type") and isinstance(value, dict | list | tuple)
        else 0
    )


def _comparison_cost(value: Any) -> int:
    """The cost of enum or const: text, integers, true, false and null are hashed; other values are compared part by part."""
    total, stack = 0, [value]
    while stack:
        one = stack.pop()
        if isinstance(one, float):
            total += _fraction_cost(one, _FRACTION_CHECKS)
        elif isinstance(one, dict | list | tuple):
            total += _VALUE_CHECKS
            stack.extend(one.values() if isinstance(one, dict) else one)
        else:
            total += 1
    return total


def _fraction_cost(value: Any, usual: int) -> int:
    return usual if isinstance(value, float) and 1e-6 <= abs(value) <= 1e15 else _LONG_CHECKS


def _count_schema_states(schema: dict[str, Any]) -> int:
    patterns = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
    named = schema.get("patternProperties")
    return sum(count_states(one) for one in (*patterns, *(named if isinstance(named, dict) else ())))
