"""Arrays of ids and numbers as parameters of frequent statements: psycopg's own lists take ten times as long to send."""

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

_UUID = psycopg.adapters.types["uuid"]
_INTEGER = psycopg.adapters.types["int4"]
_TEXT = psycopg.adapters.types["text"]
_BYTES = psycopg.adapters.types["bytea"]
# PostgreSQL's binary array of one dimension: dimensions, has nulls, element type, length, lower bound.
_HEADER = struct.Struct("!iiIii")
_EMPTY_HEADER_BYTES = 12
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)
_UUID_BYTES = _LENGTH.pack(16)
_INTEGER_BYTES = 4


class UuidArray(tuple[UUID, ...]):
    """Ids for a uuid[]."""

    __slots__ = ()


class IntegerArray(tuple[int, ...]):
    """Numbers for an integer[]."""

    __slots__ = ()


class TextArray(tuple[bytes | None, ...]):
    """UTF-8 texts for a text[], which may be null."""

    __slots__ = ()


class BytesArray(tuple[bytes, ...]):
    """Bytes for a bytea[]."""

    __slots__ = ()


def _build_header(oid: int, length: int, *, has_nulls: bool = False) -> bytes:
    header = _HEADER.pack(1 if length else 0, has_nulls, oid, length, 1)
    return header if length else header[:_EMPTY_HEADER_BYTES]


class _UuidArrayDumper(Dumper):
    format = Format.BINARY
    oid = _UUID.array_oid

    def dump(self, obj: Sequence[UUID]) -> bytes:
        ids = [_UUID_BYTES + one.bytes for one in obj]
        return _build_header(_UUID.oid, len(ids)) + b"".join(ids)


class _IntegerArrayDumper(Dumper):
    format = Format.BINARY
    oid = _INTEGER.array_oid

    def dump(self, obj: Sequence[int]) -> bytes:
        packed = array("i", struct.pack(f"{len(obj)}i", *obj))  # array("i", obj) takes four times as long
        numbers = array("i", [_INTEGER_BYTES]) * (2 * len(obj))  # each number follows its length
        numbers[1::2] = packed
        if sys.byteorder == "little":
            numbers.byteswap()
        return _build_header(_INTEGER.oid, len(obj)) + numbers.tobytes()


class _TextArrayDumper(Dumper):
    format = Format.BINARY
    oid = _TEXT.array_oid
    _item_oid = _TEXT.oid

    def dump(self, obj: Sequence[bytes | None]) -> bytes:
        has_nulls = None in obj
        texts = [
            part for text in obj for part in ((_NULL,) if text is None else (_LENGTH.pack(len(text)), text))
        ]
        return _build_header(self._item_oid, len(obj), has_nulls=has_nulls) + b"".join(texts)


class _BytesArrayDumper(_TextArrayDumper):
    oid = _BYTES.array_oid
    _item_oid = _BYTES.oid


def register_arrays(context: AdaptContext | Any) -> None:
    """Let a connection send these arrays."""
    context.adapters.register_dumper(UuidArray, _UuidArrayDumper)
    context.adapters.register_dumper(IntegerArray, _IntegerArrayDumper)
    context.adapters.register_dumper(TextArray, _TextArrayDumper)
    context.adapters.register_dumper(BytesArray, _BytesArrayDumper)
