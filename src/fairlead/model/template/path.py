"""A path into JSON: `event.items.0."a.b"`. It only looks up values."""

import json
import re
from enum import Enum
from typing import Any

import msgspec

from fairlead.model.payload import find_storage_flaw

MAX_LENGTH = 500
MAX_SEGMENTS = 32

# Possessive quantifiers: no text can make matching slow.
_SEGMENT = re.compile(r'[\w-]++|"(?:[^"\\]|\\.)*+"')
_WORD = re.compile(r"[\w-]+")
_EXPECTED = (
    'expected a path such as event.items.0.id; quote a segment with other characters as JSON: event."a.b"'
)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class Missing(Enum):
    """The result of a path that leads to nothing; null is a value."""

    MISSING = "missing"


MISSING = Missing.MISSING


class Flaw(Exception):
    """Why a user's input is invalid. The caller knows its path, and turns the Flaw into an error."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Path(msgspec.Struct, frozen=True):
    """A parsed path. Two spellings of one path are equal."""

    segments: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(
            one if _WORD.fullmatch(one) else json.dumps(one, ensure_ascii=False) for one in self.segments
        )


def parse_path(text: str) -> Path:
    """Parse a whole text as a path, or raise a Flaw."""
    path, end = parse_path_at(text, 0)
    if end != len(text):
        raise Flaw(_EXPECTED)
    return path


def parse_path_at(text: str, start: int) -> tuple[Path, int]:
    """Parse the path at `start`; returns it and its end. Or raise a Flaw."""
    segments: list[str] = []
    at = start
    while match := _SEGMENT.match(text, at):
        segments.append(_read_segment(match[0]))
        at = match.end()
        if at - start > MAX_LENGTH or len(segments) > MAX_SEGMENTS:
            raise Flaw(f"a path has at most {MAX_LENGTH} characters and {MAX_SEGMENTS} segments")
        if not text.startswith(".", at):
            return Path(tuple(segments)), at
        at += 1
    raise Flaw(_EXPECTED)


def parse_pointer(pointer: str) -> Path:
    """The path of a JSON pointer such as /server/id."""
    return Path(tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]))


def look_up(path: Path, context: Any) -> Any:
    """The value at the path, or MISSING. Only plain dicts and lists are searched, so no user code runs."""
    value = context
    for segment in path.segments:
        if type(value) is dict:
            value = value.get(segment, MISSING)
        elif type(value) is list and _INDEX.fullmatch(segment) and int(segment) < len(value):
            value = value[int(segment)]
        else:
            return MISSING
    return value


def _read_segment(written: str) -> str:
    if not written.startswith('"'):
        return written
    try:
        segment = str(json.loads(written))
    except ValueError:
        raise Flaw(_EXPECTED) from None
    if flaw := find_storage_flaw(segment):
        raise Flaw(f"no path leads to {json.dumps(segment)}: {flaw}")
    return segment
