"""Every schema that is accepted has a bound on what validating with it takes, whatever the instance."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import PayloadInvalid, PayloadTooCostly, SchemaTooCostly
from fairlead.model.definition import check_payload, compile_schema
from fairlead.model.json_extent import extent_of
from fairlead.model.pattern_cost import count_states
from fairlead.model.schema_cost import MOST_CHECKS, TooCostly, compute_cost
from tests.tables import each_case
from tests.thorough import examples
from tests.waiting import SECONDS

# What never ends is seen as a failure, and not as a hanging run.
pytestmark = pytest.mark.timeout(SECONDS)

INTEGER = {"type": "integer"}


def doubling(levels: int, keyword: str = "anyOf", **more: Any) -> dict[str, Any]:
    """2^levels checks in a few bytes for each level."""
    parts = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**parts, f"d{levels}": INTEGER}, "$ref": "#/$defs/d0", **more}


def conditional(levels: int) -> dict[str, Any]:
    parts = {
        f"d{n}": {"if": {"$ref": f"#/$defs/d{n + 1}"}, "then": {"$ref": f"#/$defs/d{n + 1}"}}
        for n in range(levels)
    }
    return {"$defs": {**parts, f"d{levels}": INTEGER}, "$ref": "#/$defs/d0"}


def inside_one_another(levels: int, keyword: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {keyword: [schema], "unevaluatedProperties": INTEGER}
    return schema


def in_properties(levels: int) -> dict[str, Any]:
    """Doubles with the depth of the instance."""
    parts = {
        f"d{n}": {"allOf": [{"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}}] * 2} for n in range(levels)
    }
    return {"$defs": {**parts, f"d{levels}": INTEGER}, "$ref": "#/$defs/d0"}


@each_case(
    "schema",
    [
        *(doubling(40, keyword) for keyword in ("anyOf", "allOf", "oneOf")),
        doubling(14, unevaluatedProperties=False),
        doubling(14, unevaluatedItems=False),
        conditional(40),
        *(inside_one_another(20, keyword) for keyword in ("anyOf", "allOf", "oneOf")),
        in_properties(40),
        {"$ref": "#"},
        {
            "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
            "$ref": "#/$defs/a",
        },
        {"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]},
        {"pattern": "((a{0,100}){0,100}){0,100}"},
        {"patternProperties": {f"^{n}[01]{{1000}}$": {} for n in range(101)}},
        {"$defs": {"a": {"$id": "http://a/"}}, "$ref": "#/$defs/a"},
    ],
)
def test_a_schema_without_a_small_bound_is_refused_before_it_is_compiled(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaTooCostly) as refused:
        compile_schema(schema)
    assert refused.value.code == "schema_too_costly"
    assert refused.value.faults[0].path == "arg_schema"


@each_case(
    "items",
    [
        [2**62 + n for n in range(5000)],
        [2**1000 + n for n in range(800)],
        [[2.0**80], *([2**80 + n] for n in range(800))],
    ],
)
def test_numbers_that_collide_are_not_compared_with_each_other(items: list[Any]) -> None:
    """12,000 of them took half a minute."""
    unique = compile_schema({"properties": {"ids": {"uniqueItems": True}}})
    with pytest.raises(PayloadTooCostly, match="numbers beyond 2\\^53"):
        unique.is_valid({"ids": items}, 100)
    assert compile_schema({"type": "object"}).is_valid({"ids": items})


def test_long_numbers_may_be_unique_where_they_are_few() -> None:
    unique = compile_schema({"properties": {"ids": {"uniqueItems": True}}})
    assert unique.is_valid({"ids": [2**62 + n for n in range(400)]})
    assert unique.is_valid({"ids": list(range(40_000))})
    assert not unique.is_valid({"ids": [1, 2, 1]})


def test_the_refusal_names_a_part_and_what_to_do() -> None:
    with pytest.raises(TooCostly) as refused:
        compute_cost({"properties": {"ok": INTEGER, "bad": {"pattern": "(a{9999}){9999}"}}})
    assert refused.value.where == "/properties/bad"
    with pytest.raises(TooCostly, match="refer to each definition less often") as refused:
        compute_cost(doubling(40))
    assert refused.value.where.startswith("/$defs/d")


def test_a_recursive_schema_is_as_good_as_another() -> None:
    tree = {"$defs": {"n": {"properties": {"kids": {"items": {"$ref": "#/$defs/n"}}}}}, "$ref": "#/$defs/n"}
    assert compute_cost(tree).deepest is None
    payload: dict[str, Any] = {}
    for _ in range(30):
        payload = {"kids": [payload]}
    check_payload(compile_schema(tree), "k", payload)


def test_a_recursive_schema_that_branches_takes_instances_of_a_depth_that_is_affordable() -> None:
    side = {"properties": {"left": {"$ref": "#/$defs/e"}}}
    schema = compile_schema(
        {"$defs": {"e": {"oneOf": [side, side, INTEGER]}}, "properties": {"e": {"$ref": "#/$defs/e"}}}
    )
    deepest = schema.cost.deepest
    assert deepest is not None
    assert deepest > 5

    def nested(depth: int) -> dict[str, Any]:
        value: Any = 1
        for _ in range(depth - 1):
            value = {"left": value}
        return {"e": value}

    with pytest.raises(PayloadInvalid, match="does not fit"):
        check_payload(schema, "k", nested(4))
    with pytest.raises(PayloadTooCostly, match="levels deep") as refused:
        check_payload(schema, "k", nested(60))
    assert refused.value.code == "payload_too_costly"


@each_case(
    ("schema", "payload"),
    [
        (doubling(12, "allOf"), {"a": [1] * 100_000}),
        ({"properties": {"a": {"items": {"enum": [n + 0.5 for n in range(90)]}}}}, {"a": [1.25] * 50_000}),
        (
            {"properties": {"a": {"items": {"enum": [{"a": n} for n in range(900)]}}}},
            {"a": [{"a": 0}] * 50_000},
        ),
        ({"properties": {"a": {"items": {"multipleOf": 1e-300}}}}, {"a": [1e300] * 50_000}),
        ({"properties": {"a": {"pattern": "1[01]{5000}2"}}}, {"a": "10" * 100_000}),
        ({"patternProperties": {"1[01]{5000}2": {}}}, {"10" * 100_000: 1}),
    ],
)
def test_a_payload_that_would_take_too_long_is_refused(
    schema: dict[str, Any], payload: dict[str, Any]
) -> None:
    with pytest.raises(PayloadTooCostly, match="the limit is"):
        check_payload(compile_schema(schema), "k", payload, size=100_000)


def test_errors_are_not_made_by_the_million() -> None:
    """Each holds a copy of the value it is about."""
    schema = compile_schema({"allOf": [{"required": [f"x{n}"]} for n in range(200)]})
    with pytest.raises(PayloadTooCostly, match="too large to report where"):
        check_payload(schema, "k", {"a": [{}] * 5_000})


def test_an_ordinary_schema_takes_the_largest_payload() -> None:
    name = {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9-]{1,63}$"}
    row = {"type": "object", "properties": {"name": name, "size": INTEGER}, "required": ["name"]}
    schema = compile_schema({"type": "object", "properties": {"rows": {"type": "array", "items": row}}})
    check_payload(schema, "k", {"rows": [{"name": "a-name", "size": n} for n in range(8_000)]})


@each_case(
    ("pattern", "states"),
    [
        ("abc", 4),
        ("a{10}", 11),
        ("(ab){10}", 31),
        ("((a{10}){10}){10}", 1111),
        ("[a-z]{5}", 6),
        (r"\{9{2}", 5),
    ],
)
def test_repetitions_are_written_out(pattern: str, states: int) -> None:
    assert count_states(pattern) == states


# Random schemas: the bound against a count


def _schemas(names: list[str]) -> st.SearchStrategy[Any]:
    reference = st.sampled_from(names).map(lambda name: {"$ref": f"#/$defs/{name}"})
    leaf = st.sampled_from([INTEGER, {"type": "object"}, {"const": 1}, True, {}]) | reference

    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        several = st.lists(inner, min_size=1, max_size=3)
        named = st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
        shape = {
            "anyOf": several,
            "allOf": several,
            "oneOf": several,
            "prefixItems": several,
            "properties": named,
            "patternProperties": named,
            "dependentSchemas": named,
            **dict.fromkeys(
                ("not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames"),
                inner,
            ),
            **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), inner),
        }
        return st.fixed_dictionaries({}, optional=shape)

    return st.recursive(leaf, larger, max_leaves=12)


NAMES = ["d0", "d1", "d2", "d3"]
SCHEMAS = st.builds(
    lambda parts, root: {**(root if isinstance(root, dict) else {}), "$defs": parts},
    st.fixed_dictionaries({name: _schemas(NAMES) for name in NAMES}),
    _schemas(NAMES),
)
INSTANCES = st.recursive(
    st.sampled_from([1, "b", None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner),
    max_leaves=20,
)


class Count:
    """Applies every part to every place, never stops early, and counts."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.applied = 0

    def apply(self, schema: Any, value: Any) -> None:
        self.applied += 1
        assert self.applied < 50_000_000, "more than any bound"
        if not isinstance(schema, dict):
            return
        for name in ("anyOf", "allOf", "oneOf"):
            for one in schema.get(name, ()):
                self.apply(one, value)
        for name in ("not", "if", "then", "else"):
            if name in schema:
                self.apply(schema[name], value)
        for one in schema.get("dependentSchemas", {}).values():
            self.apply(one, value)
        if "$ref" in schema:
            self.apply(self.root["$defs"][schema["$ref"].rpartition("/")[2]], value)
        if isinstance(value, dict):
            self.below_object(schema, value)
        elif isinstance(value, list):
            self.below_list(schema, value)

    def below_object(self, schema: dict[str, Any], value: dict[str, Any]) -> None:
        named = schema.get("properties", {})
        for key, item in value.items():
            matching = [one for name, one in schema.get("patternProperties", {}).items() if name in key]
            for one in [*matching, *([named[key]] if key in named else [])]:
                self.apply(one, item)
            if key not in named and not matching and "additionalProperties" in schema:
                self.apply(schema["additionalProperties"], item)
            if "propertyNames" in schema:
                self.apply(schema["propertyNames"], key)
            if "unevaluatedProperties" in schema:
                self.apply(schema["unevaluatedProperties"], item)

    def below_list(self, schema: dict[str, Any], value: list[Any]) -> None:
        first = schema.get("prefixItems", [])
        for index, item in enumerate(value):
            if index < len(first):
                self.apply(first[index], item)
            elif "items" in schema:
                self.apply(schema["items"], item)
            for name in ("contains", "unevaluatedItems"):
                if name in schema:
                    self.apply(schema[name], item)


@pytest.mark.deeper
@settings(max_examples=examples(300), deadline=None)
@given(SCHEMAS, INSTANCES)
def test_no_instance_takes_more_than_the_bound(schema: dict[str, Any], value: Any) -> None:
    try:
        cost = compute_cost(schema)
    except TooCostly:
        return
    assert cost.checks <= MOST_CHECKS
    extent = extent_of(value)
    if cost.deepest is not None and extent.depth > cost.deepest:
        return
    count = Count(schema)
    count.apply(schema, value)
    assert count.applied <= cost.checks * extent.values
    compiled = compile_schema(schema)
    compiled.is_valid(value)  # ends, whatever the engine makes of it


def test_the_errors_of_very_many_alternatives_are_not_listed() -> None:
    """The error of an alternative holds those of its own alternatives: two to the ninth here."""
    schema = compile_schema(doubling(9))
    assert schema.is_valid(1)
    with pytest.raises(PayloadTooCostly, match="too complex to report where"):
        check_payload(schema, "k", {"a": "x"})
