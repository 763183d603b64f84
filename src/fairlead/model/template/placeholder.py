"""Placeholders in a string: `{{path}}` and `{{path | default: JSON}}`. Parsed in one pass, from left to right."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead.errors import FairleadError
from fairlead.model.payload import encode
from fairlead.model.template.path import MISSING, Flaw, Path, parse_path_at

OPEN, CLOSE = "{{", "}}"

_SPACE = re.compile(r"[ \t\r\n]*+")
_DEFAULT = re.compile(r"default[ \t\r\n]*+:[ \t\r\n]*+")


class Placeholder(msgspec.Struct, frozen=True):
    """A placeholder: the path of its value, and the default if the value is missing."""

    path: Path
    default: Any = MISSING


class TemplateText(msgspec.Struct, frozen=True):
    """A string with placeholders."""

    parts: tuple[str | Placeholder, ...]

    @property
    def literal(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def places(self) -> list[Placeholder]:
        return [part for part in self.parts if isinstance(part, Placeholder)]


def parse_template_string(text: str) -> str | Placeholder | TemplateText:
    r"""Parse a template's string: literal text, exactly one placeholder, or a mixture; or raise a Flaw.

    Backslashes are special only directly before `{{`: `\\` is a backslash there, and `\{{` is `{{`.
    """
    mixture = TemplateText(tuple(part for part in _split_parts(text) if part != ""))
    if not mixture.places:
        return mixture.literal
    return mixture.parts[0] if len(mixture.parts) == 1 else mixture


def _split_parts(text: str) -> Iterator[str | Placeholder]:
    at = 0
    while (opening := text.find(OPEN, at)) >= 0:
        stem = text[at:opening].rstrip("\\")
        slashes = opening - at - len(stem)
        at = opening + len(OPEN)
        yield stem + "\\" * (slashes // 2)
        if slashes % 2:
            yield OPEN
        else:
            place, at = _parse_placeholder(text, at)
            yield place
    yield text[at:]


def _parse_placeholder(text: str, at: int) -> tuple[Placeholder, int]:
    path, at = parse_path_at(text, _skip_space(text, at))
    default: Any = MISSING
    at = _skip_space(text, at)
    if text.startswith("|", at):
        default, at = _parse_default(text, _skip_space(text, at + 1))
        at = _skip_space(text, at)
    if not text.startswith(CLOSE, at):
        raise Flaw(f"{path} is not followed by }}}} or | default:")
    return Placeholder(path, default), at + len(CLOSE)


def _parse_default(text: str, at: int) -> tuple[Any, int]:
    match = _DEFAULT.match(text, at)
    if match is None:
        raise Flaw("after | only default: is allowed, followed by a JSON value")
    try:
        value, end = _JSON.raw_decode(text, match.end())
        encode(value)
    except FairleadError as error:
        raise Flaw(f"the default cannot be kept: {error.faults[0].message}") from None
    except (ValueError, RecursionError):
        raise Flaw("after default: a JSON value is expected") from None
    return value, end


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)
