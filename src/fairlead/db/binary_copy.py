"""Encode rows in the binary format of COPY.

The driver encodes a row value by value, which was most of a bulk load's time. Thousands of rows differ only in id and
payload, so the caller encodes their common columns once.
"""

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

import psycopg

from fairlead.turns.loop_pauses import LoopPauses

NULL = b"\xff\xff\xff\xff"
_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_TRAILER = b"\xff\xff"
_BLOCK = 65_536
_ROWS = 64
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_INT4 = struct.Struct(">ii")
_INT8 = struct.Struct(">iq")
_LENGTH = struct.Struct(">i")
_ARRAY = struct.Struct(">iiiii")
_JSONB = struct.Struct(">ib")
UUID_LENGTH = b"\x00\x00\x00\x10"


def start_row(fields: int) -> bytes:
    """The row header: the number of fields."""
    return struct.pack(">h", fields)


def int4(value: int | None) -> bytes:
    return NULL if value is None else _INT4.pack(4, value)


def uuid(value: UUID | None) -> bytes:
    return NULL if value is None else UUID_LENGTH + value.bytes


def text(value: str | None) -> bytes:
    if value is None:
        return NULL
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


def text_array(values: Sequence[str] | None) -> bytes:
    """A text[] of one dimension."""
    if values is None:
        return NULL
    # dimensions, whether there are nulls, the type text, the length and the lower bound
    data = _ARRAY.pack(1, 0, 25, len(values), 1) + b"".join(map(text, values))
    return _LENGTH.pack(len(data)) + data


def start_jsonb(length: int) -> bytes:
    """What precedes JSON text of this length: the field's length, and the version of the format."""
    return _JSONB.pack(length + 1, 1)


def timestamptz(value: datetime | None) -> bytes:
    if value is None:
        return NULL
    since = value - _EPOCH
    return _INT8.pack(8, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


async def send_rows(copy: psycopg.AsyncCopy, rows: Iterable[bytes]) -> None:
    """Stream the rows in blocks, no faster than the server takes them.

    Building rows takes long and a write may not block, so it yields to the event loop in between.
    """
    block = [_HEADER]
    size = 0
    pauses = LoopPauses()
    for number, row in enumerate(rows):
        block.append(row)
        size += len(row)
        if size >= _BLOCK:
            await copy.write(b"".join(block))
            block.clear()
            size = 0
            await pauses.pause_if_due()
        elif number % _ROWS == 0:
            await pauses.pause_if_due()
    block.append(_TRAILER)
    await copy.write(b"".join(block))
