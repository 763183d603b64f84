"""Arbitrary JSON, arbitrary junk, and values that nobody may call."""

from typing import Any, NoReturn

from hypothesis import settings, strategies

unhurried = settings(deadline=None)
readable = strategies.text(strategies.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
scalars = (
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-(2**1000), 2**1000)
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | readable
)


def json_of(leaves: strategies.SearchStrategy[Any]) -> strategies.SearchStrategy[Any]:
    keys = strategies.sampled_from(["a", "b", "0", "a.b"]) | readable
    return strategies.recursive(
        leaves,
        lambda inner: strategies.lists(inner, max_size=4) | strategies.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


json_values = json_of(scalars)
tokens = '{{ }} { } \\ | default : event event.a meta . 0 " a null [ ] NaN é __class__ {{event.a}} {{event.a|default:1}}'
junk = strategies.lists(
    strategies.sampled_from([*tokens.split(), " ", "\n", '\\u0041"']) | readable, max_size=12
).map("".join)
places = strategies.sampled_from(
    [
        "{{event}}",
        "{{meta}}",
        "{{event.a}}",
        "{{ event.a.0 }}",
        "{{meta.b|default:[1]}}",
        "{{meta.b | default: 2.0 }}",
    ]
)
written = strategies.lists(places | readable, max_size=3).map("".join)
templates = json_of(written | junk | strategies.integers())


class CalledError(BaseException):
    """Not an Exception, so that nothing could swallow it."""


def called(*_: object) -> NoReturn:
    raise CalledError


HOOKS = "getattribute getattr getitem get iter len str repr format eq bool hash call int float index missing contains"
Hostile = type("Hostile", (), {f"__{hook}__": called for hook in HOOKS.split()})
HostileDict = type(
    "HostileDict", (dict,), {f"__{hook}__": called for hook in HOOKS.split()} | {"get": called}
)
HostileStr = type("HostileStr", (str,), {f"__{hook}__": called for hook in HOOKS.split()})
