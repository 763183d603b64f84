"""Match keys: how an event finds the waits whose filters it may match, however many functions wait for its name."""

import hashlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgspec

from fairlead.model.template.filter import Filter

# An event with more values than this is compared with the filters of all waits for its name.
MOST_MATCH_KEYS = 500
# The most values, lists and objects that are looked at for that.
MOST_LOOKED_AT = 5000


def build_match_key(wanted: Filter) -> UUID | None:
    """The key under which a wait with this filter is found: of its first comparison of a field with a value; None if it has none."""
    for condition in wanted.conditions:
        for name, operand in condition.tests:
            if name == "eq" and _is_scalar(operand):
                return _match_key(condition.path.segments, operand)
    return None


def list_match_keys(data: Any) -> list[UUID] | None:
    """The keys of waits that an event with this data may end; None if it has too many values."""
    keys = list[UUID]()
    for number, (path, value) in enumerate(_walk(data, ())):
        if len(keys) == MOST_MATCH_KEYS or number == MOST_LOOKED_AT:
            return None
        if _is_scalar(value):
            keys.append(_match_key(path, value))
    return keys


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value below this one, and it itself."""
    yield path, value
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _walk(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _walk(one, (*path, str(index)))


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _match_key(path: tuple[str, ...], value: Any) -> UUID:
    # 1 and 1.0 are the same number in a filter; true is not 1
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**53 else value
    text = msgspec.json.encode([path, value])
    return UUID(bytes=hashlib.sha256(text).digest()[:16])
