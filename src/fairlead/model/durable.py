"""Durable functions: the records of their steps and waits."""

import re
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from fairlead.model.approval import NewApproval

MAX_NAME = 200
MAX_RESULT_BYTES = 1_048_576
# The longest wait: a wait without a timeout is looked at again after this time.
MOST_SECONDS = 10 * 365 * 86_400.0
# Signals to one job that no wait has taken.
MOST_SIGNALS = 1000


class StepKind(StrEnum):
    """What a durable function asked for."""

    STEP = "step"
    SLEEP = "sleep"
    EVENT = "event"
    SIGNAL = "signal"
    APPROVAL = "approval"
    CALL = "call"
    NOW = "now"
    VERSION = "version"
    # how often the job was retried from a step; not a call, and not shown
    RESTART = "restart"


class StepStatus(StrEnum):
    """The state of a step."""

    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    # failed, and runs again in the next attempt unless the function goes on after the failure
    RETRY = "retry"
    # failed, and the function went on
    FAILED = "failed"
    # the wait is over without a result
    TIMEOUT = "timeout"


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where in its function a step was asked for: the branch ('' outside of `ctx.gather`) and its number there."""

    branch: str
    position: int


class StepError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The failure of a step or of a child."""

    type: str
    message: str
    retryable: bool = True
    # of a child: its final status
    status: str | None = None


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded step, as a replay needs it."""

    branch: str
    position: int
    kind: StepKind
    name: str
    status: StepStatus
    tries: int
    attempt_no: int
    # until the end of a sleep or of a pause, or until the timeout of a wait; None: it has none
    seconds_left: float | None = None
    result: Any = None
    error: StepError | None = None
    # of a failure: its attempt was lost or released before the function failed with it or went on
    is_open: bool = False
    # the tenant of a secret step, whose result is stored sealed if the database encrypts
    secret_of: UUID | None = None

    @property
    def place(self) -> Place:
        return Place(self.branch, self.position)


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step or a wait of a durable function, as users see it."""

    # its branch and number, such as 3 or /2.0.1:3
    place: str
    # '' outside of `ctx.gather`
    branch: str
    # of the call in its branch, from 1
    number: int
    kind: StepKind
    name: str
    status: StepStatus
    tries: int
    # the last attempt that wrote it; 0: the end of a child that no attempt has seen, or a copy in a replay
    attempt_no: int
    started_at: datetime
    ended_at: datetime | None
    # the end of a sleep or of a pause before the next try, or the timeout of a wait
    due_at: datetime | None
    # the job that a call waits for
    child_id: UUID | None
    # whether the result is hidden
    secret: bool
    # what a wait was asked for with: a filter, for instance
    request: Any
    result: Any
    error: StepError | None


def format_place(place: Place) -> str:
    """A place as users read and write it: 3, or /2.0.1:3 in a branch."""
    return f"{place.branch}:{place.position + 1}" if place.branch else str(place.position + 1)


def parse_place(text: str) -> Place | None:
    """The place that a text names; None if it names none."""
    found = _PLACE.fullmatch(text)
    return None if found is None else Place(found[1] or "", int(found[2]) - 1)


def comes_after(place: Place, start: Place) -> bool:
    """Whether a call is `start`, or one that the function makes after it. Branches beside that of `start` run in parallel: they do not."""
    for own, other in zip(_split(start), _split(place), strict=False):
        if own == other and len(own) > 1:
            continue
        if len(own) == len(other) == 1:
            return other >= own
        if len(own) == 1:  # of a gather: it began before the call with its first number
            return other[0] > own[0]
        if len(other) == 1:
            return other[0] >= own[0]
        return other[:2] > own[:2]
    return False


def _split(place: Place) -> list[tuple[int, ...]]:
    """The branches that lead to a call, each with the call that follows its gather, the gather and its own number; then the call's number."""
    branches = [tuple(map(int, one.split("."))) for one in place.branch.split("/")[1:]]
    return [*branches, (place.position,)]


# Where a job has the record of its restarts. The name of a replay's record is the id of the first job that it repeats, and its
# start the time since which events count.
RESTARTS = Place("", -2)
RESTART_NAME = "restart"

_PLACE = re.compile(r"(?:((?:/[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}){1,50}):)?([1-9][0-9]{0,8})", re.ASCII)


class StepEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that has ended, or one of its tries, as its attempt records it."""

    job_id: UUID
    attempt_no: int
    token: UUID
    position: int
    name: str
    branch: str = ""
    kind: StepKind = StepKind.STEP
    status: StepStatus = StepStatus.SUCCEEDED
    tries: int = 1
    # how long it ran, in seconds
    took: float = 0.0
    # until the next try
    delay: float | None = None
    secret: bool = False
    result: Any = None
    error: StepError | None = None


class NewWait(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that a function begins. It ends after `seconds`, or at `due`."""

    place: Place
    kind: StepKind
    name: str
    seconds: float | None = None
    due: datetime | None = None
    request: dict[str, Any] | None = None
    child_id: UUID | None = None
    tries: int = 1
    match_key: UUID | None = None
    approval: NewApproval | None = None


class ReceivedEvent(msgspec.Struct, frozen=True):
    """An event that ended a wait."""

    id: UUID
    name: str
    data: Any
    occurred_at: datetime


class ReceivedSignal(msgspec.Struct, frozen=True):
    """A signal that ended a wait."""

    id: UUID
    name: str
    data: Any
    sent_at: datetime
    sent_by: str
