"""Chunks of the output of an attempt."""

from datetime import datetime
from typing import NamedTuple

import msgspec

# The position of the mark that says that the rest was not stored: after all chunks.
LAST_SEQ = 2_147_483_647


class NewChunk(NamedTuple):
    """A piece of an attempt's log: its number and its stream."""

    seq: int
    stream: str
    text: str


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A stored chunk."""

    attempt_no: int
    seq: int
    stream: str
    at: datetime
    text: str
