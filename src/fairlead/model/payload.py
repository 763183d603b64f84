"""Payloads: JSON that PostgreSQL can store, within limits."""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import Any
from uuid import UUID

import msgspec

from fairlead.errors import Fault, PayloadNotJson, PayloadTooDeep, PayloadTooLarge
from fairlead.model.pydantic_models import dump_model, is_model

MAX_BYTES = 262_144
MAX_DEPTH = 64
# What each value of a list or an object weighs beside its bytes.
VALUE_WEIGHT = 16
MAX_INTEGER_BITS = 1024
_COMMON_INTEGERS = 1 << 63
_PLAIN_TYPES = {str, int, float, bool, type(None), dict, list}
# A list or an object with more values than this is checked level by level.
_MANY = 32
# Up to so many values with all that are in them.
_MOST = 500_000

# Python values with one obvious JSON form; everything else is refused rather than guessed.
_CONVERTED = (UUID, datetime, date, time, timedelta, Decimal, Enum, msgspec.Struct)
_ENCODER = msgspec.json.Encoder()


class _Flaw(Exception):
    def __init__(self, message: str, *, deep: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.deep = deep
        self.path: list[str | int] = []


def encode(payload: Any, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> tuple[Any, bytes]:
    """The payload as plain JSON values and as JSON text; the error has the path of the fault."""
    try:
        if not _is_plain(payload, max_depth):
            payload = msgspec.to_builtins(payload, enc_hook=_dump_record)
            _is_plain(payload, max_depth)
    except _Flaw as flaw:
        where = json_pointer(reversed(flaw.path))
        refusal = PayloadTooDeep if flaw.deep else PayloadNotJson
        raise refusal(
            f"The payload cannot be kept as JSON: {flaw.message}.", [Fault(where, flaw.message)]
        ) from None
    text = _ENCODER.encode(payload)
    if len(text) > max_bytes:
        raise PayloadTooLarge(
            f"The payload has {len(text)} bytes as JSON and at most {max_bytes} are accepted. "
            "Store large data elsewhere and pass a reference to it.",
            [Fault("", f"larger than {max_bytes} bytes")],
        )
    return payload, text


def weigh(text: bytes) -> int:
    """How much work a JSON text is, in bytes of plain text: many small values take far longer than their bytes."""
    return len(text) + VALUE_WEIGHT * (text.count(b",") + text.count(b"{") + text.count(b"["))


def json_pointer(path: Any) -> str:
    """The JSON pointer of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def normalize_integers(value: Any) -> Any:
    """The same JSON with integral numbers as integers."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: normalize_integers(item) for name, item in value.items()}
        case list():
            return [normalize_integers(item) for item in value]
    return value


def find_storage_flaw(text: str) -> str | None:
    """Why PostgreSQL cannot store this text, or None."""
    if "\x00" in text:
        return "the character \\u0000 cannot be stored"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "half of a surrogate pair cannot be stored"
    return None


def _is_plain(value: Any, depth: int, *, by_level: bool = True) -> bool:  # noqa: PLR0911 - a table of types
    """Whether a value is plain JSON of at most this depth; False if parts of it must be converted first.

    The first large list or object on the way down is checked level by level. If that finds something, its parts are not
    tried again, or a deep value would be walked once for each of its levels.
    """
    kind = type(value)
    if kind is str:
        if flaw := find_storage_flaw(value):
            raise _Flaw(flaw)
        return True
    if kind is bool or value is None:
        return True
    if kind is int:
        if value.bit_length() > MAX_INTEGER_BITS:
            raise _Flaw(f"an integer of more than {MAX_INTEGER_BITS} bits")
        return True
    if kind is float:
        if not math.isfinite(value):
            raise _Flaw(f"{value} is not a JSON number")
        return True
    if kind is dict:
        return _is_plain_object(value, depth, by_level=by_level)
    if kind is list or kind is tuple:
        return _is_plain_array(value, depth, by_level=by_level)
    return _check_other(value, depth)


def _is_plain_object(value: Mapping[Any, Any], depth: int, *, by_level: bool) -> bool:
    _require_depth(depth)
    if by_level and len(value) > _MANY:
        if _is_surely_plain(value, depth):
            return True
        by_level = False
    plain = True
    for key, item in value.items():
        if type(key) is not str:
            raise _Flaw(f"a key is {type(key).__name__}, not a string")
        if not (key.isascii() and "\x00" not in key) and (flaw := find_storage_flaw(key)):
            raise _Flaw(flaw)
        # most values of most payloads, without a call for each: a bulk load checks millions
        kind = type(item)
        if kind is str:
            if item.isascii() and "\x00" not in item:
                continue
        elif kind is int and -_COMMON_INTEGERS < item < _COMMON_INTEGERS:
            continue
        try:
            plain &= _is_plain(item, depth - 1, by_level=by_level)
        except _Flaw as flaw_below:
            flaw_below.path.append(key)
            raise
    return plain


def _is_plain_array(value: Any, depth: int, *, by_level: bool) -> bool:
    _require_depth(depth)
    if by_level and len(value) > _MANY:
        if _is_surely_plain(value, depth):
            return True
        by_level = False
    plain = True
    for index, item in enumerate(value):
        try:
            plain &= _is_plain(item, depth - 1, by_level=by_level)
        except _Flaw as flaw_below:
            flaw_below.path.append(index)
            raise
    return plain


def _is_surely_plain(value: Any, depth: int) -> bool:
    """Whether a large value is certainly plain: level by level, which takes a fraction of a call for each value."""
    level: list[Any] = [value]
    count = 0
    for _ in range(depth):
        kinds = set(map(type, level))
        objects = [item for item in level if type(item) is dict and item] if dict in kinds else []
        arrays = [item for item in level if type(item) is list and item] if list in kinds else []
        names = list(chain.from_iterable(objects))
        if not kinds <= _PLAIN_TYPES or not set(map(type, names)) <= {str}:
            return False
        if not _are_plain_scalars(level, kinds) or find_storage_flaw("".join(names)) is not None:
            return False
        count += sum(map(len, objects)) + sum(map(len, arrays))
        if count > _MOST:  # a value may contain itself
            return False
        level = [*chain.from_iterable(map(dict.values, objects)), *chain.from_iterable(arrays)]
        if not level:
            return True
    return False


def _are_plain_scalars(values: Sequence[Any], kinds: AbstractSet[type]) -> bool:
    """Whether those of the values that are texts or numbers are plain."""
    if str in kinds and find_storage_flaw("".join(item for item in values if type(item) is str)) is not None:
        return False
    if float in kinds and not all(math.isfinite(item) for item in values if type(item) is float):
        return False
    return int not in kinds or all(
        -_COMMON_INTEGERS < item < _COMMON_INTEGERS for item in values if type(item) is int
    )


def _check_other(value: Any, depth: int) -> bool:
    if isinstance(value, Decimal) and not value.is_finite():
        raise _Flaw(f"{value} is not a JSON number")
    if isinstance(value, _CONVERTED) or _is_record(value):
        _require_depth(depth)
        return False
    raise _Flaw(f"{type(value).__name__} has no JSON form")


def _is_record(value: Any) -> bool:
    return (is_dataclass(value) and not isinstance(value, type)) or is_model(type(value))


def _dump_record(value: Any) -> Any:
    try:
        return dump_model(value)
    except (TypeError, ValueError) as error:
        raise _Flaw(str(error)) from None


def _require_depth(room: int) -> None:
    if room <= 0:
        raise _Flaw("it is nested too deeply", deep=True)
