import json
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings, strategies

from fairlead.errors import Fault, TemplateFailed, TemplateInvalid
from fairlead.model.payload import encode
from fairlead.model.template import rendering
from fairlead.model.template.path import MISSING, Flaw, look_up, parse_path
from fairlead.model.template.placeholder import parse_template_string
from fairlead.model.template.rendering import EncodedValues
from fairlead.model.template.spec import Template, compile_template, find_template_faults
from tests.anything import (
    Hostile,
    HostileDict,
    HostileStr,
    json_of,
    json_values,
    junk,
    readable,
    scalars,
    templates,
    unhurried,
)
from tests.tables import each_case
from tests.thorough import examples

ROOTS = ("event", "meta")
SEED = {
    "type": "object",
    "properties": {"provider_id": {"type": "string", "format": "uuid"}, "path_prefix": {"type": "string"}},
    "required": ["provider_id"],
    "additionalProperties": False,
}

contexts = strategies.fixed_dictionaries(
    {"event": strategies.fixed_dictionaries({"a": json_values}), "meta": json_values}
)


def rendered(template: Any, max_bytes: int = 262_144, **context: Any) -> Any:
    return compile_template(template, ROOTS).render(context, max_bytes=max_bytes)


def refused(template: Any) -> tuple[Fault, ...]:
    with pytest.raises(TemplateInvalid) as invalid:
        compile_template(template, ROOTS)
    return invalid.value.faults


def failed(template: Any, max_bytes: int = 262_144, **context: Any) -> tuple[Fault, ...]:
    with pytest.raises(TemplateFailed) as failure:
        rendered(template, max_bytes, **context)
    return failure.value.faults


# Paths


@each_case(
    ("path", "found"),
    [
        ("event.folder.path", "/x"),
        ("event.items.1.id", 2),
        ('event."a.b".c', 3),
        ('event."a\\"\\u00e9"', 4),
        ("event.größe-1", 5),
        ("event.7", "the key 7"),
        ('event."7"', "the key 7"),
        ("event.null", None),
        ('event.""', 6),
        ("event.items.2", MISSING),
        ("event.items.-1", MISSING),
        ("event.items.01", MISSING),
        ("event.items.٠", MISSING),
        ("event.items.length", MISSING),
        ("event.items.__class__", MISSING),
        ("event.folder.path.0", MISSING),
        ("event.null.x", MISSING),
        ("event.999999999999999999999", MISSING),
    ],
)
def test_a_path_leads_into_objects_by_key_and_into_lists_by_number(path: str, found: Any) -> None:
    event = {
        "folder": {"path": "/x"},
        "items": [{"id": 1}, {"id": 2}],
        "a.b": {"c": 3},
        'a"é': 4,
        "größe-1": 5,
        "7": "the key 7",
        "null": None,
        "": 6,
    }

    assert look_up(parse_path(path), {"event": event}) == found


@each_case(
    "text",
    ["", ".", "a.", ".a", "a..b", "a b", "a.b[0]", 'a."b', 'a."b"c', '"\\x"', '"a\nb"', "a()", "$.a", "'a'"],
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(Flaw, match="expected a path"):
        parse_path(text)


def test_paths_are_bounded_in_length_and_segments() -> None:
    assert len(parse_path("a" * 500).segments) == 1
    assert len(parse_path(".".join("a" * 32)).segments) == 32
    for text in ("a" * 501, ".".join("a" * 33), '"' + "a" * 500 + '"'):
        with pytest.raises(Flaw, match="at most 500 characters and 32 segments"):
            parse_path(text)


@unhurried
@given(strategies.lists(readable.filter(lambda text: len(text) < 10), min_size=1, max_size=5))
def test_a_path_reads_back_as_it_is_shown(segments: list[str]) -> None:
    path = parse_path(".".join(json.dumps(segment, ensure_ascii=False) for segment in segments))

    assert path.segments == tuple(segments)
    assert parse_path(str(path)) == path


def test_a_segment_that_nothing_could_be_called_is_refused() -> None:
    for text in ('"\\u0000"', 'a."\\ud800"'):
        with pytest.raises(Flaw, match="cannot be stored"):
            parse_path(text)


# Filling


@unhurried
@given(json_values)
@example(2**1000)
@example(1.0)
@example(True)
@example(None)
def test_a_string_that_is_one_place_keeps_value_and_type(value: Any) -> None:
    result = rendered({"x": "{{event.v}}", "y": ["{{ event.v }}"]}, event={"v": value})

    assert repr(result) == repr({"x": value, "y": [value]})  # repr tells 1 from 1.0 from True


@each_case(
    ("template", "result"),
    [
        ("at {{event.s}}!", "at text!"),
        ("{{event.s}}{{event.i}}", "text12345678901234567890"),
        (" {{event.i}}", " 12345678901234567890"),
        ("{{event.t}}/{{event.f}}", "true/1.5"),
        ("{{event.braces}}!", "{{event.s}}!"),
        ("{{event.braces}}", "{{event.s}}"),
        ("\\{{event.s}}", "{{event.s}}"),
        ("\\\\{{event.s}}", "\\text"),
        ("\\\\\\{{event.s}}", "\\{{event.s}}"),
        ("a\\b {{event.s}} \\", "a\\b text \\"),
        ("a\\\\b", "a\\\\b"),
        ("}} { } {{event.s}}}}", "}} { } text}}"),
        ("{{\n event.s\t}}", "text"),
        ({"{": "{"}, {"{": "{"}),
    ],
)
def test_places_in_a_longer_string_are_written_as_text(template: Any, result: Any) -> None:
    event = {"s": "text", "i": 12345678901234567890, "t": True, "f": 1.5, "braces": "{{event.s}}"}

    assert rendered(template, event=event) == result


@each_case("value", [None, {}, {"a": 1}, [], [1]])
def test_null_an_object_or_a_list_in_a_longer_string_is_an_error(value: Any) -> None:
    (fault,) = failed({"a": ["x {{event.v}}"]}, event={"v": value})

    assert fault.path == "/a/0"
    assert fault.message.startswith("event.v is null, an object or a list")


def test_every_missing_path_is_named_with_its_place() -> None:
    faults = failed({"a/b": "{{event.x}}", "c": ["-{{meta.y.0}}"], "d": "{{event}}"}, event={})

    assert [(fault.path, fault.message.split()[0]) for fault in faults] == [
        ("/a~1b", "event.x"),
        ("/c/0", "meta.y.0"),
    ]


@each_case(
    ("default", "value"),
    [
        ("null", None),
        ('"a | }} b"', "a | }} b"),
        ('{"a": {"b": []}}', {"a": {"b": []}}),
        ("[1, 2.0, true]", [1, 2.0, True]),
        (str(2**200), 2**200),
    ],
)
def test_a_default_stands_for_what_is_missing(default: str, value: Any) -> None:
    for place in ("{{event.x | default: " + default + "}}", "{{ event.x|default :" + default + " }}"):
        assert repr(rendered(place, event={})) == repr(value)


def test_a_default_does_not_stand_for_null() -> None:
    assert rendered("{{event.x | default: 1}}", event={"x": None}) is None
    assert failed("a{{event.x | default: 1}}", event={"x": None})


def test_two_places_with_one_path_have_each_their_default() -> None:
    assert rendered(["{{event.x | default: 1}}", "{{event.x | default: 2}}"], event={}) == [1, 2]
    assert rendered("{{event.x | default: 1}}-{{event.x | default: true}}", event={}) == "1-true"


def test_a_result_shares_nothing() -> None:
    written = {"a": {"b": [1]}}
    template = compile_template(
        {"literal": written, "v": "{{event}}", "d": "{{meta.x | default: []}}"}, ROOTS
    )
    event = {"list": [1]}
    first = template.render({"event": event}, max_bytes=1000)
    first["literal"]["a"]["b"].append(2)
    first["v"]["list"].append(2)
    first["d"].append(2)
    written["a"]["b"].append(3)

    second = template.render({"event": event}, max_bytes=1000)

    assert event == {"list": [1]}
    assert second == {"literal": {"a": {"b": [1]}}, "v": {"list": [1]}, "d": []}


def test_a_template_tells_its_paths_once_each() -> None:
    template = compile_template(["{{event.a}} {{meta.b}}", '{{event."a"}}', {"x": "\\{{event.c}}"}], ROOTS)

    assert [str(path) for path in template.paths] == ["event.a", "meta.b"]


# What is refused when it is written


@each_case(
    ("text", "why"),
    [
        ("{{", "expected a path"),
        ("{{}}", "expected a path"),
        ("{{ }}", "expected a path"),
        ("{{event.a", "not followed by }}"),
        ("{{event.a}", "not followed by }}"),
        ("{{event.a} }", "not followed by }}"),
        ("{{{event.a}}}", "expected a path"),
        ("{{event.a + 1}}", "not followed by }}"),
        ("{{event.a()}}", "not followed by }}"),
        ("{{event['a']}}", "not followed by }}"),
        ("{{event.a | upper}}", "only default: is allowed"),
        ("{{event.a | default}}", "only default: is allowed"),
        ("{{event.a | default: }}", "a JSON value is expected"),
        ("{{event.a | default: x}}", "a JSON value is expected"),
        ("{{event.a | default: 'x'}}", "a JSON value is expected"),
        ("{{event.a | default: NaN}}", "a JSON value is expected"),
        ("{{event.a | default: " + "[" * 100_000 + "}}", "a JSON value is expected"),
        ("{{event.a | default: " + "9" * 5_000 + "}}", "a JSON value is expected"),
        ("{{event.a | default: " + "[" * 65 + "]" * 65 + "}}", "nested too deeply"),
        ("{{event.a | default: 1e999}}", "not a JSON number"),
        ('{{event.a | default: "\\u0000"}}', "cannot be stored"),
        ("{{event.a | default: 1 | default: 2}}", "not followed by }}"),
        ("a {{event.a | default: null}}", "must be text, a number"),
        ("a {{event.a | default: {}}}", "must be text, a number"),
        ("{{other.a}}", "begins with none of event, meta"),
        ("{{__class__}}", "begins with none of event, meta"),
    ],
)
def test_a_place_that_cannot_be_is_refused_with_where_and_why(text: str, why: str) -> None:
    (fault,) = refused({"a": ["", text]})

    assert fault.path == "/a/1"
    assert why in fault.message


def test_a_key_is_never_a_template() -> None:
    assert [fault.path for fault in refused({"a": {"{{event.a}}": 1, "\\{{": 2}})] == [
        "/a/{{event.a}}",
        "/a/\\{{",
    ]


def test_a_tuple_is_a_list() -> None:
    assert rendered({"a": ("{{event}}", 1)}, event=2) == {"a": [2, 1]}


def test_what_could_not_be_kept_is_refused() -> None:
    deep: Any = 1
    for _ in range(65):
        deep = [deep]
    for template in (deep, {"a": "\x00"}, {"a": object()}, {"a": float("nan")}, "x" * 262_144):
        refused(template)


def test_places_and_faults_are_bounded() -> None:
    assert len(compile_template(["{{event}}"] * 1_000, ROOTS).tree) == 1_000
    assert "at most 1000 placeholders" in refused("{{event.a}} " * 1_001)[0].message
    assert len(refused(["{{"] * 100)) == 20
    assert len(failed(["{{event}}"] * 100)) == 20


# Bounds of a rendering


def size(value: Any) -> int:
    return len(msgspec.json.encode(value))


@unhurried
@given(
    json_of(scalars | strategies.sampled_from(["{{event}}", "{{meta.s}}", "a{{meta.s}}\n{{meta.n}}"])),
    contexts,
)
def test_a_result_is_bounded_to_the_byte(template: Any, context: Any) -> None:
    context["meta"] = {"s": 'é"\n', "n": 1.5}
    try:
        ready = compile_template(template, ROOTS)
        result = ready.render(context, max_bytes=1_000_000)
    except (TemplateInvalid, TemplateFailed):
        return

    assert ready.render(context, max_bytes=size(result)) == result
    with pytest.raises(TemplateFailed):
        ready.render(context, max_bytes=size(result) - 1)


@pytest.mark.parametrize("place", ["{{event.big}}", "a{{event.big}}"])
def test_many_places_over_a_large_value_never_build_it_all(place: str) -> None:
    template = compile_template([place] * 1_000, ROOTS)
    event = {"big": "x" * 1_000_000}
    tracemalloc.start()
    try:
        with pytest.raises(TemplateFailed, match="exceeds 2500000 bytes"):
            template.render({"event": event}, max_bytes=2_500_000)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_value_that_holds_itself_or_one_part_many_times_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    bomb: Any = [0]
    for _ in range(60):
        bomb = [bomb, bomb]

    for value in (loop, bomb):
        assert "exceeds" in failed("{{event}}", event=value)[0].message


@each_case(
    "value",
    [float("nan"), float("inf"), "\x00", "\ud800", {"\ud800": 1}, 2**1025, (1,), {1: 2}, [b""], object()],
)
def test_what_is_no_json_is_an_error_that_names_the_path(value: Any) -> None:
    for template in ("{{event.v}}", "a{{event.v}}"):
        assert failed(template, event={"v": value})[0].message.startswith("event.v ")


# Fuzzing


def outcome(template: Any, context: dict[str, Any]) -> Any:
    """What a template comes to; every way but these two refusals fails the test."""
    try:
        return compile_template(template, ROOTS).render(context, max_bytes=10_000)
    except (TemplateInvalid, TemplateFailed) as refusal:
        return refusal


@pytest.mark.deeper
@settings(unhurried, max_examples=examples(500))
@given(templates, contexts)
def test_whatever_is_written_is_refused_or_gives_json(template: Any, context: Any) -> None:
    before = repr(context)
    result = outcome(template, context)

    assert repr(context) == before
    if isinstance(result, TemplateInvalid | TemplateFailed):
        assert result.faults
        assert size(result.as_dict())  # can be shown
    else:
        assert msgspec.json.decode(msgspec.json.encode(result)) == result
        assert size(result) <= 10_000


@unhurried
@given(junk, strategies.sampled_from([Hostile, HostileDict, HostileStr]))
@example("{{event}}", Hostile)
@example("a {{event.a}} {{meta.0}}", Hostile)
@example("{{event.a.a}}", HostileDict)
@example("{{event.a | default: 1}}", HostileDict)
@example("{{event.a}}!", HostileStr)
def test_nothing_in_a_context_is_ever_called(template: str, kind: type) -> None:
    hostile = kind()
    outcome(template, {"event": hostile, "meta": [hostile]})
    outcome(template, {"event": {"a": hostile, "0": [hostile]}, "meta": hostile})


plain_text = strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\x00{}\\"))
pieces = strategies.lists(plain_text | strategies.integers(0, 4), max_size=6)


@unhurried
@given(strategies.dictionaries(plain_text, pieces), strategies.lists(json_values, min_size=5, max_size=5))
def test_simple_templates_equal_a_simple_oracle(fields: dict[str, Any], values: list[Any]) -> None:
    """A piece is literal text, or the number of one of the values."""

    def written(piece: Any) -> str:
        return piece if isinstance(piece, str) else "{{event.v." + str(piece) + "}}"

    def expected(parts: list[Any]) -> Any:
        parts = [part for part in parts if part != ""]
        if len(parts) == 1 and not isinstance(parts[0], str):
            return values[parts[0]]
        shown = ""
        for part in parts:
            value = part if isinstance(part, str) else values[part]
            if value is None or isinstance(value, dict | list):
                raise LookupError
            shown += value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return shown

    template = {key: "".join(map(written, parts)) for key, parts in fields.items()}
    try:
        result = {key: expected(parts) for key, parts in fields.items()}
    except LookupError:
        assert failed(template, event={"v": values})
    else:
        assert repr(rendered(template, event={"v": values})) == repr(result)


@pytest.mark.thorough
@each_case(
    "adverse",
    [
        lambda n: "{{" * n,
        lambda n: "{" * n + "}" * n,
        lambda n: "\\" * n,
        lambda n: "\\" * n + "{{",
        lambda n: "\\{{" * n,
        lambda n: "{{event.a}}" * n + "{{",
        lambda n: "{{event.a" + " " * n,
        lambda n: "{{event.a" + "|" * n,
        lambda n: "{{event.a" + " |" * n + "}}",
        lambda n: "{{event.a | default: " * n,
        lambda n: "{{event.a | default: 1}} " * n,
        lambda n: '{{"' + "a" * n,
        lambda n: '{{"' + "\\" * n,
        lambda n: '{{"' + '\\"' * n,
        lambda n: "{{" + "a" * n,
        lambda n: "{{" + "a." * n,
        lambda n: "{{event.a | default: " + '"' * n,
        lambda n: "{{event.a | default: " + "[" * n,
        lambda n: "{{event.a | default: " + "9" * n,
        lambda n: "{{event.a | default: [" + "1," * n,
    ],
)
def test_reading_takes_time_in_proportion_to_the_text(adverse: Any) -> None:
    """Sixteen times the text may take eighty times as long; a quadratic reading would take 256 times."""

    def seconds(text: str) -> float:
        start = time.thread_time()  # whatever else this machine does
        with suppress(Flaw):
            parse_template_string(text)
        return time.thread_time() - start

    short = min(seconds(adverse(2_000)) for _ in range(3))
    long = min(seconds(adverse(32_000)) for _ in range(3))
    assert long < 80 * max(short, 0.0002)


# What can be seen not to fit


def seen(template: Any, schema: Any = SEED) -> list[str]:
    return [
        f"{fault.path}: {fault.message}"
        for fault in find_template_faults(compile_template(template, ROOTS), schema)
    ]


def test_the_examples_of_the_design_are_told_apart() -> None:
    assert seen({"path_prefix": "/"}) == [': "provider_id" is a required property']
    assert seen({"provider_id": "{{event.provider_id}}", "path_prefix": "{{event.folder_path}}"}) == []


PLACE = "{{event.x}}"
MIXED = "a {{event.x}}"


@each_case(
    ("schema", "template", "paths"),
    [
        # an exact place may be anything
        ({"properties": {"a": {"type": "integer", "enum": [1]}}}, {"a": PLACE}, []),
        ({"properties": {"a": False}}, {"a": PLACE}, []),
        ({"type": "object", "required": ["a"]}, PLACE, []),
        # a longer string is a string, whatever else
        ({"properties": {"a": {"type": "integer"}}}, {"a": MIXED}, ["/a"]),
        ({"properties": {"a": {"allOf": [{"type": "integer"}]}}}, {"a": MIXED}, ["/a"]),
        ({"properties": {"a": {"format": "uuid", "maxLength": 1, "const": "x"}}}, {"a": MIXED}, []),
        # literals are what they are
        ({"properties": {"a": {"format": "uuid"}}}, {"a": "x", "b": PLACE}, ["/a"]),
        ({"properties": {"a": {"anyOf": [{"type": "null"}]}}}, {"a": {"c": 1}, "b": PLACE}, ["/a"]),
        ({"properties": {"a": {"items": {"type": "string"}}}}, {"a": [PLACE, 1]}, ["/a/1"]),
        ({"properties": {"a": {"type": "string"}}}, {"a": {"b": PLACE}}, ["/a"]),
        # so is the shape around a place
        ({"required": ["b"]}, {"a": PLACE}, [""]),
        ({"properties": {"a": {"required": ["b"]}}}, {"a": {"c": PLACE}}, ["/a"]),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"a": PLACE, "b": PLACE}, [""]),
        ({"properties": {"a": {"maxItems": 1}}}, {"a": [PLACE, PLACE]}, ["/a"]),
        ({"propertyNames": {"maxLength": 1}}, {"ab": PLACE}, [""]),
        # but not what depends on its value
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [PLACE, PLACE]}, []),
        ({"properties": {"a": {"contains": {"const": 1}}}}, {"a": [PLACE]}, []),
        ({"const": {"a": 1}}, {"a": PLACE}, []),
        ({"anyOf": [{"properties": {"a": {"const": 1}}}]}, {"a": PLACE}, []),
        ({"oneOf": [{"required": ["b"]}, {"properties": {"a": {"const": 1}}}]}, {"a": PLACE}, []),
        ({"not": {"properties": {"a": {"const": None}}}}, {"a": PLACE}, []),
        ({"if": {"properties": {"a": {"const": None}}}, "then": {"required": ["b"]}}, {"a": PLACE}, []),
        ({"if": {"properties": {"a": {"const": 1}}}, "else": {"required": ["b"]}}, {"a": PLACE}, []),
        (
            {"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {"const": 1}}}, {}]},
            {"a": PLACE},
            [],
        ),
        ({"if": {}, "then": {"required": ["b"]}}, {"a": 1}, [""]),
        # a property may be called like a keyword
        ({"properties": {"then": {"type": "string"}}}, {"then": 1, "a": PLACE}, ["/then"]),
        # a payload is an object
        ({}, [PLACE], [""]),
        ({}, MIXED, [""]),
    ],
)
def test_only_what_no_filling_could_mend_is_a_misfit(schema: Any, template: Any, paths: list[str]) -> None:
    assert [fault.path for fault in find_template_faults(compile_template(template, ROOTS), schema)] == paths


def test_a_misfit_never_repeats_a_value() -> None:
    assert "hunter2" not in str(
        seen({"password": "hunter2"}, {"properties": {"password": {"type": "integer"}}})
    )


def test_a_template_cannot_be_changed() -> None:
    template: Template = compile_template({"a": 1}, ROOTS)
    with pytest.raises(AttributeError):
        template.tree = {}  # type: ignore[misc]


def test_a_value_of_several_renderings_is_encoded_once_and_counts_in_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded_values = list[Any]()

    def noting(value: Any, **limits: int) -> Any:
        encoded_values.append(value)
        return encode(value, **limits)

    monkeypatch.setattr(rendering, "encode", noting)
    template, shared = compile_template({"a": "{{event}}", "b": "{{event}}"}, ["event"]), EncodedValues()
    large, other = {"text": "x" * 100}, {"text": "y" * 100}
    made = [
        template.render({"event": event}, max_bytes=300, encoded=shared) for event in (large, other, large)
    ]

    assert made == [{"a": event, "b": event} for event in (large, other, large)]
    assert encoded_values == [large, other]
    assert made[0]["a"] is not made[0]["b"]
    with pytest.raises(TemplateFailed, match="exceeds 200 bytes"):
        template.render({"event": large}, max_bytes=200, encoded=shared)
