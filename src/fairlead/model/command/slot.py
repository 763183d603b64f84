"""A slot: the part of a command's argument that one value fills, and the type of that value."""

import math
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from fairlead.model.payload import MAX_INTEGER_BITS
from fairlead.model.template.path import Flaw, Path

MAX_ARGUMENT_BYTES = 32_768
DASH = "-"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# The same rules as JSON Schema patterns: no control characters, and no leading dash.
_TEXT_PATTERN = r"^[^\u0000-\u001f\u007f-\u009f]*$"
_DASHLESS_PATTERN = r"^([^\u0000-\u001f\u007f-\u009f-][^\u0000-\u001f\u007f-\u009f]*)?$"

# The patterns in words, for error messages.
PATTERN_WORDS = {
    _TEXT_PATTERN: "must have no control characters such as line breaks or tabs",
    _DASHLESS_PATTERN: (
        "must not begin with -, which the command could take for an option, and must have no control characters"
    ),
}


class SlotType(StrEnum):
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    UUID = "uuid"
    PATH = "path"
    ENUM = "enum"


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """The path of a value, and its type and limits."""

    path: Path
    type: SlotType = SlotType.STRING
    # for a path: the folder that it may not leave
    root: str = "/"
    # for an enum: the allowed values
    values: tuple[str | int, ...] = ()
    # whether the value may make an argument begin with a dash
    allow_dash: bool = False
    # the most characters of a string or a path
    max_length: int = MAX_ARGUMENT_BYTES


def format_value(slot: Slot, value: Any) -> str:
    """The text of a value in the slot; a Flaw, which never contains the value, if it is not allowed."""
    return _TEXTS[slot.type](slot, value)


def has_forbidden_dash(slot: Slot, text: str) -> bool:
    """Whether the text has a leading dash that the slot does not allow."""
    return text.startswith(DASH) and not slot.allow_dash


def find_argument_flaw(text: str) -> str | None:
    """Why a text cannot be part of an argument, or None. It never contains the text."""
    if _CONTROL.search(text):
        return "must have no control characters such as line breaks, tabs or NUL"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "must not have half of a surrogate pair"
    return None


def resolve_under(root: str, given: str) -> str:
    """The absolute path under the root, without `.` and `..`; or a Flaw. Links are not followed."""
    top = _split_path(root)
    steps = _split_path(given)
    if given.startswith("/"):
        if steps[: len(top)] != top:
            raise Flaw("must be under its root")
        steps = steps[len(top) :]
    below: list[str] = []
    for step in steps:
        if step != "..":
            below.append(step)
        elif below:
            below.pop()
        else:
            raise Flaw("must not leave its root")
    return "/" + "/".join((*top, *below))


def _split_path(path: str) -> list[str]:
    return [step for step in path.split("/") if step not in ("", ".")]


def _format_string(slot: Slot, value: Any) -> str:
    if type(value) is not str:
        raise Flaw("must be a string")
    if len(value) > slot.max_length:
        raise Flaw(f"must have at most {slot.max_length} characters")
    if flaw := find_argument_flaw(value):
        raise Flaw(flaw)
    return value


def _format_integer(_: Slot, value: Any) -> str:
    if type(value) is not int:
        raise Flaw("must be an integer")
    if value.bit_length() > MAX_INTEGER_BITS:
        raise Flaw(f"must have at most {MAX_INTEGER_BITS} bits")
    return str(value)


def _format_number(slot: Slot, value: Any) -> str:
    if type(value) is int:
        return _format_integer(slot, value)
    if type(value) is not float or not math.isfinite(value):
        raise Flaw("must be a number")
    return repr(value)


def _format_uuid(_: Slot, value: Any) -> str:
    if type(value) is not str or not _UUID.fullmatch(value):
        raise Flaw("must be a UUID: 8-4-4-4-12 hexadecimal digits")
    return value.lower()


def _format_path(slot: Slot, value: Any) -> str:
    given = _format_string(slot, value)
    if not given:
        raise Flaw("must not be empty")
    return resolve_under(slot.root, given)


def _format_enum(slot: Slot, value: Any) -> str:
    if any(type(one) is type(value) and one == value for one in slot.values):
        return str(value)
    raise Flaw("must be one of the values that the command lists")


_TEXTS: dict[SlotType, Callable[[Slot, Any], str]] = {
    SlotType.STRING: _format_string,
    SlotType.INTEGER: _format_integer,
    SlotType.NUMBER: _format_number,
    SlotType.UUID: _format_uuid,
    SlotType.PATH: _format_path,
    SlotType.ENUM: _format_enum,
}


def list_json_types(slot: Slot) -> frozenset[str]:
    """The JSON Schema types that can fill the slot."""
    match slot.type:
        case SlotType.INTEGER:
            return frozenset({"integer"})
        case SlotType.NUMBER:
            return frozenset({"integer", "number"})
        case SlotType.ENUM:
            return frozenset("string" if isinstance(one, str) else "integer" for one in slot.values)
    return frozenset({"string"})


def derive_slot_schema(slot: Slot, *, leading: bool) -> dict[str, Any]:
    """A JSON Schema for the slot's values, nearly exact. `leading`: the text begins an argument."""
    dashless = leading and not slot.allow_dash
    match slot.type:
        case SlotType.STRING:
            pattern = _DASHLESS_PATTERN if dashless else _TEXT_PATTERN
            return {"type": "string", "maxLength": slot.max_length, "pattern": pattern}
        case SlotType.PATH:
            return {"type": "string", "minLength": 1, "maxLength": slot.max_length, "pattern": _TEXT_PATTERN}
        case SlotType.UUID:
            return {"type": "string", "format": "uuid"}
        case SlotType.ENUM:
            return {"enum": [one for one in slot.values if not (dashless and str(one).startswith(DASH))]}
        case SlotType.INTEGER | SlotType.NUMBER:
            return {"type": str(slot.type), **({"minimum": 0} if dashless else {})}
