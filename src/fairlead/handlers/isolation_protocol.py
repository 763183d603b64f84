"""The messages between a worker and its isolated child: length-prefixed JSON over a socket pair."""

import asyncio
import socket
import struct
from typing import Any, Self
from uuid import UUID

import msgspec

from fairlead.model.job import NewJob
from fairlead.model.outcome import Canceled, Failed, Outcome, Released, Snoozed, Succeeded

MAX_FRAME = 64 * 1_048_576
_LENGTH = struct.Struct(">I")
_ENCODER = msgspec.json.Encoder()
_OUTCOMES: dict[str, Any] = {kind.__name__: kind for kind in (Succeeded, Failed, Snoozed, Released, Canceled)}


class ContextFields(msgspec.Struct, kw_only=True):
    """The fields of an attempt's context."""

    job_id: UUID
    tenant: str
    tenant_id: UUID
    definition_key: str
    attempt_no: int
    max_attempts: int
    payload: Any
    correlation_id: str | None
    parent_id: UUID | None


# To the child


class BeginAttempt(msgspec.Struct, tag=True):
    module: str
    qualname: str
    sys_path: list[str]
    max_output_bytes: int
    facts: ContextFields
    trace: str | None = None
    # masked in all that the child sends, before the child truncates it
    secrets: list[str | int | float] = []
    patterns: list[str] = []


class EnqueueAnswer(msgspec.Struct, tag=True):
    """The answer to an Ask: the job, or the error."""

    number: int
    id: UUID | None = None
    deduplicated: bool = False
    error: str | None = None
    message: str = ""


# To the worker


class LogLine(msgspec.Struct, tag=True):
    level: str
    event: str
    fields: dict[str, Any]


class ProgressReport(msgspec.Struct, tag=True):
    percent: float
    message: str


class AddCost(msgspec.Struct, tag=True):
    cents: int


class EnqueueRequest(msgspec.Struct, tag=True):
    """A request to enqueue a job."""

    number: int
    new: NewJob


class AttemptEnded(msgspec.Struct, tag=True):
    kind: str
    fields: dict[str, Any]

    @classmethod
    def by(cls, outcome: Outcome) -> Self:
        return cls(type(outcome).__name__, msgspec.structs.asdict(outcome))

    def outcome(self) -> Outcome:
        made: Outcome = _OUTCOMES[self.kind](**self.fields)
        return made


ToChild = BeginAttempt | EnqueueAnswer
ToWorker = LogLine | ProgressReport | AddCost | EnqueueRequest | AttemptEnded
_TO_CHILD: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
_TO_WORKER: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)


def encode_frame(message: msgspec.Struct) -> bytes:
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


async def next_to_worker(reader: asyncio.StreamReader) -> ToWorker | None:
    """The child's next message; None when the connection is closed."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_FRAME:
            raise ValueError(f"a message of {length} bytes")
        return _TO_WORKER.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def next_to_child(link: socket.socket) -> ToChild | None:
    """The worker's next message; None when the connection is closed."""
    try:
        (length,) = _LENGTH.unpack(_receive_exactly(link, _LENGTH.size))
        return _TO_CHILD.decode(_receive_exactly(link, length))
    except (EOFError, OSError):
        return None


def _receive_exactly(link: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(min(size - len(parts), 1_048_576))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
