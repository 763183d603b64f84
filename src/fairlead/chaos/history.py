"""The history of a run: records that clients, handlers and the fault injector append to files outside PostgreSQL.

Each process has a file of its own and writes each record by one `write`, so a process that is killed leaves whole lines.
`at` is the time of CLOCK_MONOTONIC, which all processes of a machine share and which cannot be set.
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Self
from uuid import UUID

import msgspec

ENDING = ".history"
# Where processes of a run write their files.
FOLDER_VARIABLE = "FAIRLEAD_CHAOS_HISTORY"


class CallRecord(msgspec.Struct, frozen=True, tag="call"):
    """A client is about to do something: enqueue, cancel, emit …

    `what` has what the checker must know: for example the number of jobs, the dedupe key, the plan of each job.
    """

    at: float
    id: UUID
    kind: str
    tenant: str
    what: dict[str, Any] = {}


class AnswerRecord(msgspec.Struct, frozen=True, tag="answer"):
    """What a call came to: `ok` took effect, `fail` did not, `unknown` may have.

    A call without an answer is unknown. `ids` are those of the jobs, events or runs, in the order of the call.
    """

    at: float
    id: UUID
    outcome: Literal["ok", "fail", "unknown"]
    ids: list[UUID] = []
    code: str = ""
    what: dict[str, Any] = {}


class StartRecord(msgspec.Struct, frozen=True, tag="start"):
    """A handler begins an attempt."""

    at: float
    job_id: UUID
    attempt_no: int
    definition: str
    pid: int


class EndRecord(msgspec.Struct, frozen=True, tag="end"):
    """A handler is about to end its attempt, and how: `succeeded`, `failed`, `fatal`, `snoozed`, `suspended` or `canceled`."""

    at: float
    job_id: UUID
    attempt_no: int
    outcome: str


class StepRunRecord(msgspec.Struct, frozen=True, tag="step"):
    """A step of a durable function begins to run: its effect, outside of Fairlead.

    Steps run in the order of `place`; parallel ones share a place. `value` is what this run will return, and no other.
    """

    at: float
    job_id: UUID
    attempt_no: int
    name: str
    place: int
    value: str


class BatchRecord(msgspec.Struct, frozen=True, tag="batch"):
    """A batch handler is called with these jobs."""

    at: float
    jobs: list[UUID]


class SecretRecord(msgspec.Struct, frozen=True, tag="secret"):
    """An attempt got a secret: whose, and which of its values. The text itself is never in the history."""

    at: float
    job_id: UUID
    attempt_no: int
    owner: str
    number: int


class FaultRecord(msgspec.Struct, frozen=True, tag="fault"):
    """A fault, written when it is over. `pids` are the processes that it hit.

    `hit` is false if there was nothing to hit or it could not be done, as `note` says: then it is no fault.
    """

    at: float
    over_at: float
    kind: str
    target: str
    pids: list[int] = []
    note: str = ""
    hit: bool = True


class SampleRecord(msgspec.Struct, frozen=True, tag="sample"):
    """How many leases the database held at once under each limit, as one statement counted them."""

    at: float
    counts: dict[str, int]


class PhaseRecord(msgspec.Struct, frozen=True, tag="phase"):
    """The run enters a phase: `load`, `faults`, `drain`, `check`."""

    at: float
    name: str


class ProcessRecord(msgspec.Struct, frozen=True, tag="process"):
    """A process of the run was started.

    `former_was_ready` is false if the process of this name before it had ended before it worked, as one does that cannot
    reach the database. `once` are the variables that only this process has, and not the next of its name.
    """

    at: float
    name: str
    role: str
    pid: int
    former_was_ready: bool = True
    once: dict[str, str] = {}


HistoryRecord = (
    CallRecord
    | AnswerRecord
    | StartRecord
    | EndRecord
    | StepRunRecord
    | BatchRecord
    | SecretRecord
    | FaultRecord
    | SampleRecord
    | PhaseRecord
    | ProcessRecord
)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HistoryRecord)


class HistoryWriter:
    """Appends records to one file."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    @classmethod
    def of_process(cls, name: str) -> Self:
        """A file for this process in the folder that the run has told it."""
        return cls(Path(os.environ[FOLDER_VARIABLE], f"{name}-{os.getpid()}{ENDING}"))

    def write(self, record: HistoryRecord) -> None:
        os.write(self._descriptor, _encoder.encode(record) + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def now() -> float:
    """The time of records, in seconds."""
    return time.monotonic()


def read_history(folder: Path) -> list[HistoryRecord]:
    """All records of a run, in the order of their times."""
    return sorted(stream_history(folder), key=lambda record: record.at)


def stream_history(folder: Path) -> Iterator[HistoryRecord]:
    """All records of a run, file by file, in little memory."""
    for file in sorted(folder.glob(f"*{ENDING}")):
        with file.open("rb") as lines:
            yield from _decode_lines(lines)


def _decode_lines(lines: Iterable[bytes]) -> Iterator[HistoryRecord]:
    # a line without an end is being written
    return (_decoder.decode(line) for line in lines if line.endswith(b"\n"))
