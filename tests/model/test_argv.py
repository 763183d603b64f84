import math
from typing import Any

import pytest
from hypothesis import given, strategies

from fairlead.errors import CommandInvalid, CommandRefused
from fairlead.model.command.argv import AttemptFacts
from fairlead.model.command.reader import read_commands
from fairlead.model.command.spec import CommandSpec, build_command_argv, derive_command_schema
from fairlead.model.definition import compile_schema
from tests.anything import Hostile, HostileDict, HostileStr, json_values, junk, unhurried
from tests.tables import each_case

EXE = "/usr/local/bin/tool"
TENANT = "0f8fad5b-d9cb-469f-a165-70867728950e"
JOB = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
ROOT = "/srv/data"


def command(*parts: Any) -> CommandSpec:
    return read_commands({"commands": {"tool": {"argv": [EXE, *parts]}}})["tool"]


def facts(payload: Any, **changes: Any) -> AttemptFacts:
    known: dict[str, Any] = {
        "tenant_id": TENANT,
        "tenant_slug": "acme",
        "job_id": JOB,
        "attempt": 2,
        "correlation_id": "order-7",
    }
    return AttemptFacts(payload=payload, **{**known, **changes})


def run(parts: Any, payload: Any, **changes: Any) -> list[str]:
    """The arguments after the executable."""
    executable, *arguments = build_command_argv(command(*parts), facts(payload, **changes))
    assert executable == EXE
    return arguments


def refusal(parts: Any, payload: Any, **changes: Any) -> dict[str, str]:
    """Why each place was refused."""
    with pytest.raises(CommandRefused) as refused:
        run(parts, payload, **changes)
    return dict(refused.value.faults)


def fits(parts: Any, payload: Any) -> bool:
    return compile_schema(derive_command_schema(command(*parts))).is_valid(payload)


# Text and slots


def test_text_without_slots_is_itself() -> None:
    assert run(["sync", "--all", "", "a b", "$(id)", "a\nb"], {}) == [
        "sync",
        "--all",
        "",
        "a b",
        "$(id)",
        "a\nb",
    ]


def test_slots_are_filled_from_the_payload_and_from_the_job() -> None:
    parts = ["{payload.a}-{payload.b.c}", "{tenant.id}", "{tenant.slug}", "{job.id}", "{job.attempt}"]

    assert run([*parts, "{job.correlation_id}"], {"a": "x", "b": {"c": "y"}}) == [
        "x-y",
        TENANT,
        "acme",
        JOB,
        "2",
        "order-7",
    ]


def test_a_field_with_other_signs_is_named_in_quotes() -> None:
    assert run(['{payload."a.b}"}'], {"a.b}": "x"}) == ["x"]


def test_doubled_braces_are_braces() -> None:
    assert run(["{{payload.a}}", "{{{payload.a}}}", "}}{{"], {"a": "x"}) == ["{payload.a}", "{x}", "}{"]


def test_what_is_filled_in_is_not_read_again() -> None:
    payload = {"a": "{payload.b}", "b": "{{x}}", "c": '", "--evil'}

    assert run(["{payload.a}", "{payload.b}", "{payload.c}"], payload) == list(payload.values())


def test_spaces_quotes_and_wildcards_stay_in_one_argument() -> None:
    for value in ("a b", "'", '"', "*", "$HOME", "`id`", "; rm -rf /", "a|b", "~", "\\", "é\u2028😀"):
        assert run(["{payload.a}"], {"a": value}) == [value]


@each_case(
    ("kind", "value", "text"),
    [
        ("string", "", ""),
        ("string", "a", "a"),
        ("integer", 0, "0"),
        ("integer", 2**1000, str(2**1000)),
        ("number", 3, "3"),
        ("number", 0.1, "0.1"),
        ("number", 1e300, "1e+300"),
        ("uuid", TENANT.upper(), TENANT),
    ],
)
def test_a_value_of_the_slots_type_is_written(kind: str, value: Any, text: str) -> None:
    assert run([f"{{payload.a:{kind}}}"], {"a": value}) == [text]
    assert run([{"slot": "payload.a", "type": kind}], {"a": value}) == [text]
    assert fits([f"{{payload.a:{kind}}}"], {"a": value})


WRONG: dict[str, list[Any]] = {
    "string": [1, True, 1.5, [], ["a"], {}, {"a": 1}],
    "integer": ["1", True, False, 1.5, 1.0, [1], 2**1025],
    "number": ["1", True, math.nan, math.inf, []],
    "uuid": ["", "x", 1, TENANT + "\n", TENANT.replace("-", ""), f"{{{TENANT}}}", "urn:uuid:" + TENANT],
}


@each_case(("kind", "value"), [(kind, value) for kind in WRONG for value in WRONG[kind]])
def test_a_value_of_another_type_is_refused(kind: str, value: Any) -> None:
    assert list(refusal([f"{{payload.a:{kind}}}"], {"a": value})) == ["payload.a"]


def test_an_integer_too_long_to_write_is_refused() -> None:
    for kind in ("integer", "number"):
        assert list(refusal([f"{{payload.a:{kind}}}"], {"a": 10**5000})) == ["payload.a"]


@each_case("payload", [{}, {"a": None}, {"a": {}}, {"a": {"b": None}}])
def test_a_missing_or_null_value_is_refused(payload: Any) -> None:
    [why] = refusal(["{payload.a.b}"], payload).values()
    assert why == "is missing, and the command needs it"


def test_a_correlation_that_is_missing_is_refused_unless_it_is_asked_for() -> None:
    assert list(refusal(["{job.correlation_id}"], {}, correlation_id=None)) == ["job.correlation_id"]
    optional = {"if": "job.correlation_id", "argv": ["--id", "{job.correlation_id}"], "else": ["--no-id"]}
    assert run([optional], {}, correlation_id=None) == ["--no-id"]
    assert run([optional], {}) == ["--id", "order-7"]


def test_facts_of_the_job_are_held_to_the_same_rules() -> None:
    assert refusal(["{job.correlation_id}"], {}, correlation_id="-x")
    assert refusal(["{job.correlation_id}"], {}, correlation_id="a\nb")


@pytest.mark.parametrize("parts", [[], ["{payload.a}"]])
def test_a_payload_that_is_no_object_is_refused(parts: Any) -> None:
    for payload in (None, [1], "x", 1, HostileDict(), Hostile()):
        assert list(refusal(parts, payload)) == ["payload"]


def test_a_value_that_is_not_plain_json_is_refused_untouched() -> None:
    optional = {"if": "payload.a", "argv": [{"slot": "payload.a", "type": "enum", "values": ["x"]}]}
    for value in (Hostile(), HostileDict(), HostileStr("x")):
        assert list(refusal([optional], {"a": value})) == ["payload.a"]
        assert list(refusal(["{payload.a}"], {"a": value})) == ["payload.a"]


def test_all_faults_are_told_at_once_and_no_value_is() -> None:
    told = refusal(["{payload.a}", "{payload.b:integer}", "{payload.c}"], {"a": "-hush", "b": "hush"})

    assert list(told) == ["payload.a", "payload.b", "payload.c"]
    assert "hush" not in str(told)


# What an argument may hold


@each_case("bad", ["\x00", "\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\ud800"])
def test_control_characters_and_half_surrogates_are_refused(bad: str) -> None:
    for part in ("{payload.a}", "--a={payload.a}", {"slot": "payload.a", "type": "path", "root": ROOT}):
        assert list(refusal([part], {"a": f"x{bad}y"})) == ["payload.a"]
        assert list(refusal([part], {"a": bad})) == ["payload.a"]
    if bad != "\ud800":
        assert not fits(["{payload.a}"], {"a": f"x{bad}y"})


def test_a_value_cannot_begin_an_argument_with_a_dash() -> None:
    told = refusal(["{payload.a}", "{payload.n:integer}"], {"a": "--evil", "n": -1})

    assert set(told) == {"payload.a", "payload.n"}
    assert not fits(["{payload.a}"], {"a": "-"})
    assert not fits(["{payload.n:integer}"], {"n": -1})


def test_a_dash_after_literal_text_is_fine() -> None:
    parts = ["--a={payload.a}", {"slot": "payload.n", "type": "integer", "prefix": "--n="}]

    assert run(parts, {"a": "-x", "n": -1}) == ["--a=-x", "--n=-1"]
    assert fits(parts, {"a": "-x", "n": -1})


def test_a_slot_may_allow_the_dash() -> None:
    parts = [{"slot": "payload.a", "allow_dash": True}]

    assert run(parts, {"a": "-x"}) == ["-x"]
    assert fits(parts, {"a": "-x"})


def test_an_empty_value_does_not_let_the_next_begin_with_a_dash() -> None:
    assert list(refusal(["{payload.a}{payload.b}"], {"a": "", "b": "-x"})) == ["payload.b"]
    assert list(refusal(["{payload.a}-x"], {"a": ""})) == ["payload.a"]
    assert run(["{payload.a}-x"], {"a": "y"}) == ["y-x"]


def test_an_argument_has_at_most_32_kib() -> None:
    assert run(["{payload.a}"], {"a": "x" * 32_768}) == ["x" * 32_768]
    assert list(refusal(["{payload.a}"], {"a": "x" * 32_769})) == ["payload.a"]
    assert list(refusal(["{payload.a}"], {"a": "é" * 16_385})) == ["argv"]
    assert list(refusal(["--a={payload.a}"], {"a": "x" * 32_768})) == ["argv"]


def test_all_arguments_have_at_most_128_kib() -> None:
    each = {"each": "payload.a"}

    assert len(run([each], {"a": ["x" * 32_000] * 4})) == 4
    assert list(refusal([each], {"a": ["x" * 32_000] * 5})) == ["argv"]


def test_there_are_at_most_2000_arguments() -> None:
    parts = [{"each": "payload.a", "argv": ["-f", "{item}"]}]

    assert len(run(parts, {"a": ["x"] * 999})) == 1998
    assert list(refusal(parts, {"a": ["x"] * 1000})) == ["argv"]


def test_max_length_bounds_a_string_and_a_path() -> None:
    for part in (
        {"slot": "payload.a", "max_length": 3},
        {"slot": "payload.a", "type": "path", "root": "/", "max_length": 3},
    ):
        assert run([part], {"a": "ééé"})
        assert fits([part], {"a": "ééé"})
        assert list(refusal([part], {"a": "éééé"})) == ["payload.a"]
        assert not fits([part], {"a": "éééé"})


# Paths and enums


@each_case(
    ("given_path", "expected"),
    [
        ("a", "/srv/data/a"),
        ("a/b.txt", "/srv/data/a/b.txt"),
        ("./a//b/", "/srv/data/a/b"),
        ("a/../b", "/srv/data/b"),
        (".", "/srv/data"),
        ("a/..", "/srv/data"),
        ("-rf", "/srv/data/-rf"),
        ("..a", "/srv/data/..a"),
        ("/srv/data", "/srv/data"),
        ("/srv/data/x", "/srv/data/x"),
        ("//srv/./data/x", "/srv/data/x"),
        ("~/x", "/srv/data/~/x"),
        ("a b", "/srv/data/a b"),
    ],
)
def test_a_path_becomes_absolute_under_its_root(given_path: str, expected: str) -> None:
    parts = [{"slot": "payload.p", "type": "path", "root": "/srv//data/"}]

    assert run(parts, {"p": given_path}) == [expected]
    assert fits(parts, {"p": given_path})


@each_case(
    "given_path",
    [
        "",
        "..",
        "../x",
        "a/../..",
        "a/../../data/x",
        "/",
        "/etc/passwd",
        "/srv",
        "/srv/database",
        "/srv/data/..",
        1,
    ],
)
def test_a_path_that_leaves_its_root_is_refused(given_path: Any) -> None:
    assert list(refusal([{"slot": "payload.p", "type": "path", "root": ROOT}], {"p": given_path})) == [
        "payload.p"
    ]


def test_an_enum_takes_its_values_only() -> None:
    parts = [{"slot": "payload.e", "type": "enum", "values": ["fast", "slow", 1]}]

    assert run(parts, {"e": "fast"}) == ["fast"]
    assert run(parts, {"e": 1}) == ["1"]
    for wrong in ("Fast", "1", True, 1.0, "", ["fast"]):
        assert list(refusal(parts, {"e": wrong})) == ["payload.e"]
    assert fits(parts, {"e": "slow"})
    assert not fits(parts, {"e": "Fast"})


# Conditions, flags and lists


@each_case("value", ["", "x", 0, True, [], {}])
def test_an_if_adds_its_argv_for_a_value_that_is_given(value: Any) -> None:
    parts = [{"if": "payload.a", "argv": ["--yes"], "else": ["--no"]}, "end"]

    assert run(parts, {"a": value}) == ["--yes", "end"]
    assert fits(parts, {"a": value})


@each_case("payload", [{}, {"a": None}, {"a": False}])
def test_an_if_adds_its_else_for_one_that_is_not(payload: Any) -> None:
    assert run([{"if": "payload.a", "argv": ["--yes"], "else": ["--no"]}, "end"], payload) == ["--no", "end"]
    assert run([{"if": "payload.a", "argv": ["--yes"]}, "end"], payload) == ["end"]


def test_ifs_nest() -> None:
    inner = {"if": "payload.b", "argv": ["{payload.a}:{payload.b}"], "else": ["{payload.a}"]}
    parts = [{"if": "payload.a", "argv": [inner]}]

    assert run(parts, {"a": "x", "b": "y"}) == ["x:y"]
    assert run(parts, {"a": "x"}) == ["x"]
    assert run(parts, {"b": "y"}) == []


def test_a_value_that_is_missing_in_an_if_that_is_taken_is_refused() -> None:
    assert list(refusal([{"if": "payload.a", "argv": ["{payload.b}"]}], {"a": "x"})) == ["payload.b"]


def test_a_given_value_must_fit_also_where_its_part_is_left_out() -> None:
    parts = [{"if": "payload.a", "argv": ["{payload.n:integer}", "{payload.o.x}"]}]

    assert list(refusal(parts, {"n": "x"})) == ["payload.n"]
    assert list(refusal(parts, {"o": "x"})) == ["payload.o"]
    assert run(parts, {"n": None, "o": None}) == []


def test_a_flag_is_there_when_true() -> None:
    parts = [{"flag": "--verbose", "if": "payload.v"}]

    assert run(parts, {"v": True}) == ["--verbose"]
    for quiet in ({"v": False}, {"v": None}, {}):
        assert run(parts, quiet) == []
        assert fits(parts, quiet)
    for wrong in ("true", 1, "", [1]):
        assert list(refusal(parts, {"v": wrong})) == ["payload.v"]
        assert not fits(parts, {"v": wrong})


def test_a_list_expands() -> None:
    parts = [{"each": "payload.f", "argv": ["--file", "{item}", "{payload.m}"]}, {"each": "payload.f"}, "end"]

    assert run(parts, {"f": ["a", "b"], "m": "x"}) == [
        "--file",
        "a",
        "x",
        "--file",
        "b",
        "x",
        "a",
        "b",
        "end",
    ]
    assert run(parts, {"f": []}) == ["end"]


def test_the_items_of_a_list_have_a_type() -> None:
    paths = {"each": "payload.f", "type": "path", "root": ROOT, "argv": ["--file={item}"]}
    numbers = {"each": "payload.n", "argv": ["{item:integer}"]}
    names = {"each": "payload.e", "type": "enum", "values": ["x", "y"], "prefix": "--name="}

    payload: dict[str, Any] = {"f": ["a"], "n": [1, 2], "e": ["y", "x"]}
    assert run([paths, numbers, names], payload) == ["--file=/srv/data/a", "1", "2", "--name=y", "--name=x"]
    assert fits([paths, numbers, names], payload)
    wrong: dict[str, Any] = {"f": ["../a"], "n": ["2"], "e": ["z"]}
    assert list(refusal([paths, numbers, names], wrong)) == ["payload.f[0]", "payload.n[0]", "payload.e[0]"]


def test_the_items_of_a_list_can_be_objects() -> None:
    parts = [{"each": "payload.f", "argv": ["{item.a}", {"if": "item.b", "argv": ["{item.b:integer}"]}]}]

    assert run(parts, {"f": [{"a": "x", "b": 1}, {"a": "y"}]}) == ["x", "1", "y"]
    assert fits(parts, {"f": [{"a": "x", "b": 1}, {"a": "y"}]})
    assert list(refusal(parts, {"f": [{"a": "x"}, {"b": 1}]})) == ["payload.f[1].a"]
    assert list(refusal(parts, {"f": ["x"]})) == ["payload.f[0]"]


def test_a_list_can_be_joined_into_one_argument() -> None:
    parts = [{"each": "payload.t", "join": ",", "prefix": "--tags="}, {"each": "payload.t", "join": ","}]

    assert run(parts, {"t": ["a", "b"]}) == ["--tags=a,b", "a,b"]
    assert run(parts, {"t": []}) == ["--tags=", ""]
    assert run(parts, {"t": ["a", "-b"]}) == ["--tags=a,-b", "a,-b"]
    assert run(parts[:1], {"t": ["-a"]}) == ["--tags=-a"]
    assert set(refusal(parts, {"t": ["-a"]})) == {"payload.t"}
    assert set(refusal(parts, {"t": ["a", "b,c"]})) == {"payload.t[1]"}


def test_an_empty_item_does_not_begin_an_argument_with_the_dash_of_its_join() -> None:
    assert set(refusal([{"each": "payload.t", "join": "-"}], {"t": ["", "a"]})) == {"payload.t"}


@each_case("value", ["ab", {"0": "a"}, 1, True, ("a",)])
def test_what_is_no_list_is_refused(value: Any) -> None:
    assert list(refusal([{"each": "payload.f"}], {"f": value})) == ["payload.f"]


def test_a_list_is_needed_unless_an_if_asks_for_it() -> None:
    each = {"each": "payload.f"}

    assert list(refusal([each], {})) == ["payload.f"]
    assert list(refusal([each], {"f": ["a", None]})) == ["payload.f[1]"]
    assert list(refusal([{"if": "payload.g", "argv": [each]}], {"g": True})) == ["payload.f"]
    assert run([{"if": "payload.f", "argv": [each]}], {}) == []


def test_a_list_has_at_most_1000_items() -> None:
    parts = [{"each": "payload.f", "type": "integer"}]

    assert len(run(parts, {"f": [1] * 1000})) == 1000
    assert list(refusal(parts, {"f": [1] * 1001})) == ["payload.f"]
    assert not fits(parts, {"f": [1] * 1001})


# The schema


def test_the_schema_says_what_the_slots_need() -> None:
    parts = [
        "{payload.id:uuid}",
        "--n={payload.deep.n:integer}",
        {"if": "payload.level", "argv": [{"slot": "payload.level", "type": "enum", "values": ["a", "b"]}]},
        {"flag": "-v", "if": "payload.verbose"},
        {"each": "payload.files", "type": "number"},
    ]

    assert derive_command_schema(command(*parts)) == {
        "type": "object",
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "deep": {
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
                "additionalProperties": False,
            },
            "level": {"enum": ["a", "b", None]},
            "verbose": {"type": ["boolean", "null"]},
            "files": {"type": "array", "maxItems": 1000, "items": {"type": "number", "minimum": 0}},
        },
        "required": ["id", "deep", "files"],
        "additionalProperties": False,
    }


def test_a_command_without_slots_takes_an_empty_payload() -> None:
    assert derive_command_schema(command("sync")) == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_a_field_used_twice_must_fit_both_uses() -> None:
    parts = ["{payload.a}", {"slot": "payload.a", "max_length": 2, "prefix": "x"}]

    assert fits(parts, {"a": "ab"})
    assert not fits(parts, {"a": "abc"})
    assert refusal(parts, {"a": "abc"})


# Templates that cannot be


@each_case(
    ("part", "where"),
    [
        ("{payload.a", "[1]"),
        ("payload.a}", "[1]"),
        ("{}", "[1]"),
        ("{payload}", "[1]"),
        ("{payload.}", "[1]"),
        ("{ payload.a }", "[1]"),
        ("{event.a}", "[1]"),
        ("{tenant.name}", "[1]"),
        ("{job.payload}", "[1]"),
        ("{env.HOME}", "[1]"),
        ("{item}", "[1]"),
        ("{payload.a.0}", "[1]"),
        ("{payload.a:text}", "[1]"),
        ("{payload.a:path}", "[1]"),
        ("{payload.a:enum}", "[1]"),
        ("{payload.a:}", "[1]"),
        ("{payload.a!r}", "[1]"),
        ("{job.attempt:integer}", "[1]"),
        ("a\x00b", "[1]"),
        (1, "[1]"),
        (True, "[1]"),
        (["a"], "[1]"),
        ({}, "[1]"),
        ({"argv": []}, "[1]"),
        ({"slot": "payload.a", "kind": "string"}, "[1].kind"),
        ({"slot": "payload.a", "if": "payload.a"}, "[1].if"),
        ({"slot": 1}, "[1].slot"),
        ({"slot": "a"}, "[1].slot"),
        ({"slot": "payload.a", "type": "text"}, "[1].type"),
        ({"slot": "payload.a", "type": ["string"]}, "[1].type"),
        ({"slot": "job.attempt", "type": "integer"}, "[1].type"),
        ({"slot": "payload.a", "type": "path"}, "[1].root"),
        ({"slot": "payload.a", "type": "path", "root": "srv"}, "[1].root"),
        ({"slot": "payload.a", "type": "path", "root": "/srv/../.."}, "[1].root"),
        ({"slot": "payload.a", "root": "/srv"}, "[1].root"),
        ({"slot": "payload.a", "type": "enum"}, "[1].values"),
        ({"slot": "payload.a", "type": "enum", "values": []}, "[1].values"),
        ({"slot": "payload.a", "type": "enum", "values": "ab"}, "[1].values"),
        ({"slot": "payload.a", "type": "enum", "values": ["a", True]}, "[1].values[1]"),
        ({"slot": "payload.a", "type": "enum", "values": ["a\n"]}, "[1].values[0]"),
        ({"slot": "payload.a", "type": "enum", "values": ["-a"]}, "[1].values[0]"),
        ({"slot": "payload.a", "values": ["a"]}, "[1].values"),
        ({"slot": "payload.a", "allow_dash": 1}, "[1].allow_dash"),
        ({"slot": "payload.a", "max_length": 0}, "[1].max_length"),
        ({"slot": "payload.a", "max_length": True}, "[1].max_length"),
        ({"slot": "payload.a", "type": "uuid", "max_length": 5}, "[1].max_length"),
        ({"slot": "payload.a", "prefix": "{payload.b}"}, "[1].prefix"),
        ({"slot": "payload.a", "prefix": 1}, "[1].prefix"),
        ({"flag": "--v"}, "[1].if"),
        ({"flag": "{payload.a}", "if": "payload.b"}, "[1].flag"),
        ({"flag": "--v", "if": "job.attempt"}, "[1].if"),
        ({"flag": "--v", "if": "payload.v", "argv": []}, "[1].argv"),
        ({"if": "payload.a"}, "[1]"),
        ({"if": "payload.a", "argv": "x"}, "[1].argv"),
        ({"if": "payload.a", "argv": ["x", "{b}"]}, "[1].argv[1]"),
        ({"if": "payload.a", "argv": [], "else": [{"if": 1, "argv": []}]}, "[1].else[0].if"),
        ({"if": "payload.a", "argv": [], "then": []}, "[1].then"),
        ({"each": "tenant.id"}, "[1].each"),
        ({"each": "payload.a", "join": ""}, "[1].join"),
        ({"each": "payload.a", "join": ",", "argv": ["{item}"]}, "[1]"),
        ({"each": "payload.a", "prefix": "x", "argv": ["{item}"]}, "[1]"),
        ({"each": "payload.a", "argv": [{"each": "item.b"}]}, "[1].argv[0]"),
    ],
)
def test_a_part_that_cannot_be_is_refused_with_where(part: Any, where: str) -> None:
    with pytest.raises(CommandInvalid) as refused:
        command(part)
    assert [fault.path for fault in refused.value.faults] == ["commands.tool.argv" + where]


@each_case(
    "argv",
    [
        [],
        "tool",
        None,
        {},
        [""],
        ["tool"],
        ["./tool"],
        ["/usr/bin/"],
        ["/bin/{payload.a}"],
        ["{payload.a}"],
        [1],
    ],
)
def test_the_executable_is_a_literal_absolute_path(argv: Any) -> None:
    with pytest.raises(CommandInvalid) as refused:
        read_commands({"commands": {"tool": {"argv": argv}}})
    [fault] = refused.value.faults
    assert fault.path in ("commands.tool.argv", "commands.tool.argv[0]")


@each_case(
    "parts",
    [
        ["{payload.a}", "{payload.a:integer}"],
        ["{payload.a}", {"each": "payload.a"}],
        ["{payload.a}", "{payload.a.b}"],
        [{"flag": "-v", "if": "payload.a"}, "{payload.a}"],
        [{"each": "payload.a"}, {"each": "payload.a", "type": "integer"}],
    ],
)
def test_uses_of_a_field_that_no_value_can_serve_are_refused(parts: Any) -> None:
    with pytest.raises(CommandInvalid, match=r"payload\.a\S* cannot be all of"):
        command(*parts)


def test_an_integer_may_serve_as_a_number_too() -> None:
    assert run(["{payload.a:integer}", "{payload.a:number}"], {"a": 1}) == ["1", "1"]


def test_ifs_that_nest_without_end_are_refused() -> None:
    part: Any = "x"
    for _ in range(200):
        part = {"if": "payload.a", "argv": [part]}
    with pytest.raises(CommandInvalid, match="nested deeper"):
        command(part)


@each_case(
    "argv",
    [
        ["/bin/sh", "-c", "echo {payload.a}"],
        ["/bin/bash", "-e", "-c", "{payload.a}"],
        ["/bin/bash", "{payload.a}"],
        ["/usr/bin/env", "bash", "-c", "echo x={payload.a}"],
        ["/usr/bin/env", "{payload.a}"],
        ["/bin/sh", "-c", "a={payload.a}; echo"],
        ["/usr/bin/python3.12", "-m", {"slot": "payload.a"}],
        ["/usr/bin/python3", {"if": "payload.a", "argv": ["{payload.a}"]}],
        ["/usr/bin/perl", {"each": "payload.a"}],
        ["/usr/bin/nice", "-n", "5", "sh", "-c", {"each": "payload.a", "join": ";"}],
    ],
)
def test_a_payload_cannot_be_the_program_of_a_shell_or_an_interpreter(argv: Any) -> None:
    with pytest.raises(CommandInvalid, match="runs must be literal"):
        read_commands({"commands": {"tool": {"argv": argv}}})


def test_a_payload_can_be_an_argument_of_a_literal_program() -> None:
    for argv in (
        ["/bin/sh", "-c", 'echo "$1"', "sh", "{payload.a}"],
        ["/usr/bin/env", "A=1", "/usr/bin/tool", "{payload.a}"],
        ["/usr/bin/python3", "/srv/sync.py", "{payload.a}"],
        ["/usr/bin/kubectl", "drain", "node", "{payload.a}"],
    ):
        spec = read_commands({"commands": {"tool": {"argv": argv}}})["tool"]
        assert build_command_argv(spec, facts({"a": "$(id)"})) == [
            one.replace("{payload.a}", "$(id)") for one in argv
        ]


# Anything


@unhurried
@given(strategies.lists(junk | json_values, max_size=4))
def test_any_template_is_read_or_refused(parts: list[Any]) -> None:
    try:
        command(*parts)
    except CommandInvalid as refused:
        assert refused.faults  # noqa: PT017 - a refusal is one of two good ends


@unhurried
@given(json_values)
def test_any_payload_fills_the_slots_or_is_refused(payload: Any) -> None:
    parts = [
        "{payload.a}",
        {"if": "payload.b", "argv": ["{payload.b.a:number}"]},
        {"if": "payload.c", "argv": [{"each": "payload.c", "argv": ["{item:integer}"]}]},
    ]
    try:
        arguments = run(parts, payload)
    except CommandRefused as refused:
        assert refused.faults  # noqa: PT017
    else:
        assert arguments[0] == payload["a"]


texts = strategies.text() | strategies.sampled_from(
    ["", "-", "--x", "{payload.b}", "a\nb", "}}", "'", "$(id)"]
)


@unhurried
@given(texts, texts, texts)
def test_a_value_fills_its_own_slot_and_changes_no_other_argument(a: str, b: str, c: str) -> None:
    parts = ["one", "{payload.a}", "{payload.b}", "--c={payload.c}", "end"]
    try:
        arguments = run(parts, {"a": a, "b": b, "c": c})
    except CommandRefused:
        return
    assert arguments == ["one", a, b, f"--c={c}", "end"]
    assert not a.startswith("-")
    assert not b.startswith("-")
