"""Backfills: the instants of a schedule in a range of time, which a user fires now. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from fairlead.errors import BackfillTooLarge, Fault, InvalidInput
from fairlead.model.job import JobStatus
from fairlead.model.request import EARLIEST, LATEST


class BackfillRange(msgspec.Struct, frozen=True):
    """A range of time: from `since`, and before `until`."""

    since: datetime
    until: datetime


class BackfillInstant(msgspec.Struct, frozen=True):
    """An instant of the range, and the job that it has already, if any."""

    at: datetime
    job_id: UUID | None = None


class BackfillPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The instants of a range: those that have a job already, and those that a backfill would fire."""

    trigger_id: UUID
    since: datetime
    until: datetime
    count: Annotated[int, Meta(description="How many instants the range has; not counted beyond the limit.")]
    limit: Annotated[int, Meta(description="How many instants a backfill may have.")]
    is_too_large: Annotated[bool, Meta(description="Whether there are more instants than the limit.")]
    fired: Annotated[int, Meta(description="How many of the instants have a job already.")]
    jobs: Annotated[
        dict[JobStatus, int], Meta(description="The jobs of these instants that are still kept, by status.")
    ]
    instants: Annotated[Sequence[BackfillInstant], Meta(description="The first of the instants.")]


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a backfill."""

    trigger_id: UUID
    since: datetime
    until: datetime
    count: Annotated[int, Meta(description="How many instants the range has.")]
    enqueued: Annotated[int, Meta(description="How many of them enqueued a job now.")]
    fired: Annotated[int, Meta(description="How many of them had a job already.")]
    correlation_id: Annotated[str, Meta(description="The correlation id of the jobs.")]


def check_range(since: datetime, until: datetime | None, now: datetime) -> BackfillRange:
    """The range in UTC, by default until now; InvalidInput if it is empty or not in the past."""
    until = now if until is None else until
    for name, at in (("from", since), ("to", until)):
        if at.tzinfo is None or not EARLIEST <= at < LATEST:
            raise _invalid(name, "must be a time with its zone, in the years 1970 to 2999")
    if until > now:
        raise _invalid("to", "must not be in the future")
    if since >= until:
        raise _invalid("from", "must be before `to`")
    return BackfillRange(since.astimezone(UTC), until.astimezone(UTC))


def take_instants(instants: Iterable[datetime], asked: BackfillRange, *, most: int) -> list[datetime]:
    """The first `most` of a schedule's instants that lie in the range."""
    return list(islice(takewhile(lambda at: at < asked.until, instants), most))


def require_size(found: Sequence[datetime], *, limit: int) -> None:
    """Refuse more instants than a backfill may have."""
    if len(found) > limit:
        raise BackfillTooLarge(
            f"The range has more than {limit:,} instants, the most of one backfill (max_backfill). Choose shorter ranges; "
            f"the first {limit:,} instants lie before {found[limit].isoformat()}.",
            [Fault("to", f"must be at most {found[limit].isoformat()}")],
        )


def _invalid(name: str, why: str) -> InvalidInput:
    return InvalidInput(f"{name}: {why}.", [Fault(name, why)])
