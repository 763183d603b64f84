"""Errors in groups: errors that differ only in numbers and ids belong to one group."""

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import msgspec

NO_ERROR = "(no error was recorded)"
LONGEST_PATTERN = 300

_FOLDED = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<n>"),
    # a hash or a token: long, and with a digit in it, unlike words
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
)


class FailedJob(msgspec.Struct, frozen=True):
    """A failed job and its error."""

    job_id: UUID
    tenant: str
    definition_key: str
    finished_at: datetime
    error: str | None


class ErrorGroup(msgspec.Struct):
    """Jobs of one definition whose errors have the same pattern."""

    definition_key: str
    pattern: str
    first_at: datetime
    last_at: datetime
    # the latest job
    example: FailedJob
    job_ids: list[UUID] = msgspec.field(default_factory=list)
    tenants: set[str] = msgspec.field(default_factory=set)

    @property
    def count(self) -> int:
        return len(self.job_ids)

    @property
    def mark(self) -> str:
        """A short stable id of the group."""
        return hashlib.sha256(f"{self.definition_key}\n{self.pattern}".encode()).hexdigest()[:12]


def pattern(error: str | None) -> str:
    """The first line of an error, with its numbers and ids replaced by markers."""
    lines = (error or "").strip().splitlines()
    if not lines:
        return NO_ERROR
    text = lines[0].strip()
    for what, instead in _FOLDED:
        text = what.sub(instead, text)
    return text if len(text) <= LONGEST_PATTERN else f"{text[: LONGEST_PATTERN - 1]}…"


def group_errors(troubles: Iterable[FailedJob]) -> list[ErrorGroup]:
    """The groups of these jobs, the largest first."""
    found: dict[tuple[str, str], ErrorGroup] = {}
    for one in troubles:
        key = (one.definition_key, pattern(one.error))
        group = found.get(key)
        if group is None:
            group = found[key] = ErrorGroup(*key, one.finished_at, one.finished_at, one)
        group.job_ids.append(one.job_id)
        group.tenants.add(one.tenant)
        group.first_at = min(group.first_at, one.finished_at)
        if one.finished_at > group.last_at:
            group.last_at, group.example = one.finished_at, one
    return sorted(found.values(), key=lambda one: (-one.count, one.definition_key, one.pattern))
