"""Random templates and payloads against a second, tiny reading of what a template means.

A template is made twice: as it is written in fairlead.toml, and as plain tuples that say what it means.
"""

import math
import posixpath
import re
import unicodedata
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, event, given, settings, strategies
from hypothesis.strategies import SearchStrategy

from fairlead.errors import CommandRefused
from fairlead.model.command.argv import AttemptFacts
from fairlead.model.command.reader import read_commands
from fairlead.model.command.spec import build_command_argv, derive_command_schema
from fairlead.model.definition import compile_schema
from tests.anything import json_values, scalars
from tests.thorough import examples

ROOT = "/srv/data"
ENUM = ["fast", "slow", "-x", 3]
UNLIMITED = 32_768
HUSH = "hush-hush"

# Each field of the payload has one type, so that no template contradicts itself.
STRINGS, LISTS = ("s", "t", "o.s"), ("l", "m")
TYPES = {"n": "integer", "x": "number", "u": "uuid", "p": "path", "e": "enum"}
TYPES |= dict.fromkeys(STRINGS, "string")
ITEMS = {"l": "string", "m": "path"}

Rule = tuple[str, bool, int]  # type, allow_dash, max_length
Meaning = tuple[Any, ...]
Pair = tuple[Any, Meaning]  # as written, as meant


class Refusal(Exception):
    """What the oracle says no with."""


# Templates

literals = strategies.sampled_from(["--a=", "x", " ", "{payload.s}", "}}", "é", "$(id)", "-"])
dashes = strategies.booleans()
lengths = strategies.sampled_from([3, UNLIMITED])


def written_literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def written_rule(rule: Rule) -> dict[str, Any]:
    kind, allow_dash, max_length = rule
    table: dict[str, Any] = {"type": kind, "allow_dash": allow_dash}
    if kind == "path":
        table["root"] = ROOT
    if kind == "enum":
        table["values"] = ENUM
    if kind in ("path", "string"):
        table["max_length"] = max_length
    return table


@strategies.composite
def rules(draw: strategies.DrawFn, kind: str) -> Rule:
    limited = kind in ("path", "string")
    return kind, kind == "enum" or draw(dashes), draw(lengths) if limited else UNLIMITED


@strategies.composite
def words(draw: strategies.DrawFn, *, item: Rule | None = None) -> Pair:
    """A string: literal texts and slots in braces."""
    written = ""
    pieces: list[Any] = []
    for _ in range(draw(strategies.sampled_from([1, 1, 2, 3, 0]))):
        if draw(strategies.booleans()):
            literal = draw(literals)
            written += written_literal(literal)
            pieces.append(literal)
        elif item and draw(strategies.booleans()):
            written += "{item}"
            pieces.append(("item", item))
        else:
            name = draw(strategies.sampled_from([*STRINGS, "n", "x", "u"]))
            written += f"{{payload.{name}:{TYPES[name]}}}"
            pieces.append((name, (TYPES[name], False, UNLIMITED)))
    return written, ("text", pieces)


@strategies.composite
def slots(draw: strategies.DrawFn) -> Pair:
    name = draw(strategies.sampled_from(sorted(TYPES)))
    rule = draw(rules(TYPES[name]))
    prefix = draw(strategies.just("") | literals)
    written = {"slot": f"payload.{name}", "prefix": written_literal(prefix), **written_rule(rule)}
    return written, ("text", [prefix, (name, rule)])


@strategies.composite
def flags(draw: strategies.DrawFn) -> Pair:
    text = draw(literals)
    return {"flag": written_literal(text), "if": "payload.b"}, ("flag", "b", text)


@strategies.composite
def lists(draw: strategies.DrawFn) -> Pair:
    name = draw(strategies.sampled_from(LISTS))
    rule = draw(rules(ITEMS[name]))
    table = {"each": f"payload.{name}", **written_rule(rule)}
    prefix = draw(strategies.just("") | literals)
    match draw(strategies.sampled_from(["argv", "join", "plain"])):
        case "argv":
            inner = draw(strategies.lists(words(item=rule), max_size=2))
            return table | {"argv": [one[0] for one in inner]}, ("each", name, [one[1] for one in inner])
        case "join":
            separator = draw(strategies.sampled_from([",", "-", ": "]))
            table |= {"prefix": written_literal(prefix), "join": separator}
            return table, ("join", name, rule, separator, prefix)
    return table | {"prefix": written_literal(prefix)}, ("each", name, [("text", [prefix, ("item", rule)])])


def conditions(inner: SearchStrategy[Pair]) -> SearchStrategy[Pair]:
    several = strategies.lists(inner, max_size=2)
    names = strategies.sampled_from([*STRINGS, *LISTS, "n", "b", "c", "o"])
    return strategies.builds(condition, names, several, several)


def condition(name: str, then: list[Pair], otherwise: list[Pair]) -> Pair:
    written = {
        "if": f"payload.{name}",
        "argv": [one[0] for one in then],
        "else": [one[0] for one in otherwise],
    }
    return written, ("when", name, [one[1] for one in then], [one[1] for one in otherwise])


simple = words() | slots() | flags() | lists()
parts = simple | slots() | lists() | conditions(simple | conditions(simple))
templates = strategies.lists(parts, min_size=1, max_size=4)

# Payloads: mostly of the right types, with all that is nasty

nasty = [
    "",
    "-",
    "--x",
    "{payload.s}",
    "{item}",
    ",",
    "a,b",
    "a\nb",
    "\x00",
    "\x9f",
    "\ud800",
    HUSH,
    "-" + HUSH,
    "é",
]
texts = strategies.sampled_from([*nasty, "ok", "a b", "long enough"])
paths = strategies.lists(
    strategies.sampled_from(["a", "..", ".", "", ROOT, "/srv", "-b", "data"]), min_size=1, max_size=4
).map("/".join)
GOOD: dict[str, SearchStrategy[Any]] = {
    "n": strategies.integers(-3, 3) | strategies.integers(),
    "x": strategies.floats() | strategies.integers(-3, 3),
    "u": strategies.uuids().map(str) | strategies.uuids().map(lambda one: str(one).upper()),
    "p": paths,
    "e": strategies.sampled_from([*ENUM, "3", 3.0]),
    "b": strategies.booleans(),
    "c": json_values,
    "s": texts,
    "t": texts,
    "o": strategies.fixed_dictionaries({}, optional={"s": texts | strategies.none()}),
    "l": strategies.lists(texts, max_size=3),
    "m": strategies.lists(paths, max_size=3),
}
BENIGN: dict[str, Any] = {"n": 1, "x": 0.5, "u": str(UUID(int=3)), "p": "a/b", "e": "fast", "b": True, "c": 1}
BENIGN |= {"s": "one", "t": "two", "o": {"s": "six"}, "l": ["a", "bc"], "m": ["d"]}
ABSENT = object()


@strategies.composite
def cases(draw: strategies.DrawFn) -> tuple[list[Pair], dict[str, Any]]:
    """A template, and a payload of benign values of which some that the template uses are missing or spoiled."""
    template = draw(templates)
    used = [name for name in sorted(GOOD) if uses(template, name) or (name == "o" and uses(template, "o.s"))]
    payload = dict(BENIGN)
    for name in draw(strategies.lists(strategies.sampled_from(used), min_size=1, max_size=3)) if used else ():
        good = GOOD[name]
        spoiled = strategies.sampled_from([None, ABSENT, False]) | scalars
        payload[name] = draw(strategies.one_of(good, good, good, spoiled))
    return template, {name: value for name, value in payload.items() if value is not ABSENT}


# The oracle


def look(payload: Any, name: str) -> Any:
    """None for what is missing."""
    top, _, rest = name.partition(".")
    value = payload.get(top)
    return value.get(rest) if rest and isinstance(value, dict) else None if rest else value


def expected(meanings: list[Meaning], payload: dict[str, Any]) -> list[str]:
    if payload.get("o") is not None and uses(meanings, "o.s") and not isinstance(payload["o"], dict):
        raise Refusal
    survey(meanings, payload)
    return [argument for meaning in meanings for argument in expand(meaning, payload)]


def uses(meanings: Any, name: str) -> bool:
    if isinstance(meanings, tuple | list):
        return any(uses(one, name) for one in meanings)
    return bool(meanings == name)


def survey(meanings: list[Meaning], payload: dict[str, Any]) -> None:
    """What is given must fit every use of it, also in parts that are left out."""
    for meaning in meanings:
        match meaning:
            case ("text", pieces):
                survey_text(pieces, payload)
            case ("flag", name, _):
                if type(payload.get(name)) not in (bool, type(None)):
                    raise Refusal
            case ("when", _, then, otherwise):
                survey([*then, *otherwise], payload)
            case ("each", name, inner):
                for item in items(payload.get(name)):
                    survey(inner, payload | {"item": item})
                survey(inner, payload)
            case ("join", name, rule, *_):
                for item in items(payload.get(name)):
                    survey_text(["x", ("item", rule)], {"item": item})


def survey_text(pieces: list[Any], payload: dict[str, Any]) -> None:
    for index, piece in enumerate(piece for piece in pieces if piece != ""):
        if isinstance(piece, tuple) and (value := look(payload, piece[0])) is not None:
            text = spelled(value, piece[1])
            if index == 0 and text.startswith("-") and not piece[1][1]:
                raise Refusal
        elif isinstance(piece, tuple) and "item" in payload and piece[0] == "item":
            raise Refusal


def items(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > 1000:
        raise Refusal
    return value


def expand(meaning: Meaning, payload: dict[str, Any]) -> list[str]:
    match meaning:
        case ("text", pieces):
            return [glued(pieces, payload)]
        case ("flag", name, text):
            return [text] if payload.get(name) is True else []
        case ("when", name, then, otherwise):
            value = look(payload, name)
            taken = otherwise if value is None or value is False else then
            return [argument for one in taken for argument in expand(one, payload)]
        case ("each", name, inner):
            if payload.get(name) is None:
                raise Refusal
            scopes = [payload | {"item": item} for item in payload[name]]
            return [argument for scope in scopes for one in inner for argument in expand(one, scope)]
    return [joined(meaning, payload)]


def joined(meaning: Meaning, payload: dict[str, Any]) -> str:
    _, name, rule, separator, prefix = meaning
    if payload.get(name) is None:
        raise Refusal
    argument = prefix + separator.join(spelled(item, rule) for item in payload[name])
    if any(separator in spelled(item, rule) for item in payload[name]):
        raise Refusal
    if argument.startswith("-") and not prefix and not rule[1]:
        raise Refusal
    return str(argument)


def glued(pieces: list[Any], payload: dict[str, Any]) -> str:
    argument, to_blame = "", None
    for piece in pieces:
        if isinstance(piece, str):
            argument += piece
            continue
        name, rule = piece
        value = look(payload, name)
        if value is None:
            raise Refusal
        if argument == "":
            to_blame = rule
        argument += spelled(value, rule)
    if argument.startswith("-") and to_blame and not to_blame[1]:
        raise Refusal
    return argument


def spelled(value: Any, rule: Rule) -> str:
    """The value's text, if it is of the rule's type."""
    kind, _, max_length = rule
    numeric = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind == "integer" and numeric and isinstance(value, int):
        return f"{value:d}"
    if kind == "number" and numeric:
        return f"{value}"
    if kind == "enum" and (value, type(value)) in [(one, type(one)) for one in ENUM]:
        return f"{value}"
    if not isinstance(value, str) or kind not in ("string", "path", "uuid"):
        raise Refusal
    if kind == "uuid":
        if not re.fullmatch("[0-9a-f-]{36}", value.lower()) or not value.isascii():
            raise Refusal
        return canonical(value)
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in value) or len(value) > max_length:
        raise Refusal
    return anchored(value) if kind == "path" else value


def canonical(value: str) -> str:
    try:
        found = str(UUID(value))
    except ValueError:
        raise Refusal from None
    if found != value.lower():
        raise Refusal
    return found


def anchored(value: str) -> str:
    if value == "":
        raise Refusal
    path = PurePosixPath(value)
    if value.startswith("/"):
        try:
            path = PurePosixPath("/" + value.lstrip("/")).relative_to(ROOT)
        except ValueError:
            raise Refusal from None
    here = ROOT
    for step in path.parts:
        here = posixpath.normpath(posixpath.join(here, step))
        if here != ROOT and not here.startswith(ROOT + "/"):
            raise Refusal
    return here


# The properties

thorough = settings(
    deadline=None,
    max_examples=examples(300),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def facts(payload: Any) -> AttemptFacts:
    return AttemptFacts(
        payload=payload, tenant_id=UUID(int=1), tenant_slug="acme", job_id=UUID(int=2), attempt=1
    )


@pytest.mark.deeper
@thorough
@given(cases())
def test_a_payload_gives_the_oracles_argv_or_a_refusal_that_tells_no_value(
    case: tuple[list[Pair], dict[str, Any]],
) -> None:
    template, payload = case
    spec = read_commands(
        {"commands": {"tool": {"argv": ["/bin/tool", *(written for written, _ in template)]}}}
    )["tool"]
    try:
        wanted: list[str] | None = ["/bin/tool", *expected([meaning for _, meaning in template], payload)]
    except Refusal:
        wanted = None
    try:
        found: list[str] | None = build_command_argv(spec, facts(payload))
    except CommandRefused as refused:
        found = None
        assert HUSH not in str(refused.as_dict())  # noqa: PT017 - a refusal is one of two good ends
    event("refused" if wanted is None else f"accepted with {min(len(wanted), 4)} arguments or more")

    assert found == wanted


@pytest.mark.deeper
@thorough
@given(cases())
def test_a_payload_that_is_accepted_fits_the_derived_schema(
    case: tuple[list[Pair], dict[str, Any]],
) -> None:
    template, payload = case
    spec = read_commands(
        {"commands": {"tool": {"argv": ["/bin/tool", *(written for written, _ in template)]}}}
    )["tool"]
    schema = derive_command_schema(spec)
    used = {name: value for name, value in payload.items() if name in schema["properties"]}
    try:
        build_command_argv(spec, facts(used))
    except CommandRefused:
        event("refused")
        return
    event("accepted")

    assert compile_schema(schema).is_valid(used)
