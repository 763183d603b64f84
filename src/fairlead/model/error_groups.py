"""Error groups: failed jobs of one tenant and definition whose errors differ only in numbers and ids."""

import hashlib
import re
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from fairlead.model.ansi import strip_ansi
from fairlead.model.job import JobStatus

NO_ERROR = "(no error was recorded)"
# The group of errors beyond the most groups of a definition.
OTHER_ERRORS = "(other errors)"
LONGEST_PATTERN = 300
LONGEST_SAMPLE = 8000
LONGEST_NOTE = 500

_FOLDED = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<n>"),
    # a hash or a token: long, and with a digit in it, unlike words
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
)


class GroupState(StrEnum):
    """Which groups to list."""

    # with failed jobs, and not muted
    OPEN = "open"
    MUTED = "muted"
    ALL = "all"


class GroupOrder(StrEnum):
    """The order of a list of groups."""

    LAST_SEEN = "last_seen"
    JOBS = "jobs"

    def key_of(self, group: "ErrorGroup") -> tuple[object, ...]:
        """What groups are ordered by; the greatest comes first."""
        place = (group.last_seen, group.id)
        return place if self is GroupOrder.LAST_SEEN else (group.failed + group.dead_letter, *place)


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one definition whose errors have the same pattern."""

    id: UUID
    tenant_id: UUID
    tenant: str
    definition_key: str
    pattern: str
    first_seen: datetime
    last_seen: datetime
    # the versions of the definition at the first and the last failure
    first_version: int
    last_version: int
    last_job_id: UUID
    # all failures since the beginning
    seen: int
    # the jobs that are in the group now
    failed: int
    dead_letter: int
    is_muted: bool
    muted_at: datetime | None
    muted_by: str | None
    muted_until: datetime | None
    mute_until_change: bool
    mute_note: str | None
    discarded_at: datetime | None
    discarded_by: str | None

    @property
    def jobs(self) -> int:
        """The number of jobs that are in the group now."""
        return self.failed + self.dead_letter

    def count_jobs(self, status: JobStatus | None) -> int:
        """The number of jobs that are in the group now, with this status if one is given."""
        counts = {JobStatus.FAILED: self.failed, JobStatus.DEAD_LETTER: self.dead_letter}
        return self.jobs if status is None else counts[status]


class ErrorHour(msgspec.Struct, frozen=True):
    """The failures of a group in one hour."""

    hour: datetime
    failures: int


class GroupedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a group, with its error."""

    job_id: UUID
    status: JobStatus
    failed_at: datetime
    attempt_count: int
    error: str | None


class NewFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that is to be added to its group; secrets are masked."""

    job_id: UUID
    tenant_id: UUID
    definition_id: UUID
    version: int
    failed_at: datetime
    # None if the job is no longer failed or dead-lettered: it has been retried
    status: JobStatus | None
    pattern: str
    sample: str

    @property
    def fingerprint(self) -> bytes:
        return fingerprint(self.pattern)


def pattern(error: str | None) -> str:
    """The first line of an error without colours, with its numbers and ids replaced by markers."""
    lines = strip_ansi(error or "").strip().splitlines()
    if not lines:
        return NO_ERROR
    text = lines[0].strip()
    for what, instead in _FOLDED:
        text = what.sub(instead, text)
    return shorten(text, LONGEST_PATTERN)


def fingerprint(text: str) -> bytes:
    """The hash that identifies a pattern."""
    return hashlib.sha256(text.encode()).digest()


def build_sample(error: str | None, details: object) -> str:
    """An error in full: its text, and the traceback where there is one."""
    text = (error or "").strip() or NO_ERROR
    traceback = details.get("traceback") if isinstance(details, dict) else None
    if isinstance(traceback, str) and traceback.strip() and traceback.strip() not in text:
        text = f"{text}\n\n{traceback.strip()}"
    return shorten(text, LONGEST_SAMPLE)


def shorten(text: str, longest: int) -> str:
    """The text, cut to a length."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
