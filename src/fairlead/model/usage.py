"""Usage: what runs used, in steps of time."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from fairlead.errors import Fault, InvalidInput
from fairlead.model.request import EARLIEST, LATEST
from fairlead.model.zone import instant, local

USAGE_RECORDED = "usage.recorded"
HOUR = timedelta(hours=1)
# In one answer: the hours of six weeks, or the days of almost three years.
MOST_STEPS = 1000


class By(StrEnum):
    """How long a step is."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class Per(StrEnum):
    """What is told apart within a step."""

    DEFINITION = "definition"
    TENANT = "tenant"
    NOTHING = "nothing"


K = TypeVar("K", By, Per)

# How far back an answer goes if nobody says.
_BACK = {By.HOUR: timedelta(days=1), By.DAY: timedelta(days=30), By.MONTH: timedelta(days=365)}


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What runs used: every attempt that ended is one, and its job then had one of these six fates.

    `retried`: it went wrong and its job was queued again; `released`: it was given back unharmed, and queued again.
    """

    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    dead_letter: int = 0
    canceled: int = 0
    retried: int = 0
    released: int = 0
    run_ms: int = 0
    queue_ms: int = 0
    cost_cents: int = 0

    @property
    def wrong(self) -> int:
        """How many went wrong, whether or not their jobs were tried again."""
        return self.failed + self.dead_letter + self.retried

    @property
    def wrong_percent(self) -> float | None:
        """Of those that ran to an end of their own, how many went wrong."""
        ended = self.succeeded + self.wrong
        return 100 * self.wrong / ended if ended else None


FIGURES = Used.__struct_fields__


class Usage(Used, frozen=True, kw_only=True):
    """What was used in a step of time; of one definition or tenant, if they are told apart."""

    definition_key: str | None
    tenant: str | None
    starts_at: datetime


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The hours that begin from `since` up to, but not at, `until`; and where the steps begin that they are in."""

    since: datetime
    until: datetime
    by: By
    starts: Sequence[datetime]


def period(
    *, by: By, where: ZoneInfo, now: datetime, since: datetime | None, until: datetime | None
) -> Period:
    """The time that is asked about, in whole hours of UTC and in steps of that zone; or a refusal.

    An hour is never divided: in a zone that is half an hour off it belongs to the day in which it begins.
    """
    until = now if until is None else until
    for name, moment in (("from", since), ("to", until)):
        if moment is not None and (moment.tzinfo is None or not EARLIEST <= moment < LATEST):
            raise _refused(name, "must be a time with its zone, in the years 1970 to 2999")
    if since is None:
        since = next(_starts(by, where, _hour(until - _BACK[by])))
    if since >= until:
        raise _refused("from", "must be before `to`")
    first, end = _next_hour(since), _next_hour(until)
    starts: list[datetime] = []
    for start in _starts(by, where, first):
        if start >= end:
            break
        if len(starts) == MOST_STEPS:
            raise _refused(
                "from",
                f"there are more than {MOST_STEPS} {by}s up to `to`: ask for less, or for longer steps",
            )
        starts.append(start)
    return Period(since=first, until=end, by=by, starts=starts)


def one_of(kind: type[K], name: str, given: str) -> K:
    """The step or split of this name, or a refusal that names all."""
    try:
        return kind(given)
    except ValueError:
        raise _refused(name, f"must be one of {', '.join(kind)}") from None


def total(used: Iterable[Used]) -> Used:
    """All of it together."""
    sums = dict.fromkeys(FIGURES, 0)
    for one in used:
        for name in FIGURES:
            sums[name] += getattr(one, name)
    return Used(**sums)


def hours_of(since: datetime, until: datetime) -> Period:
    """Whole hours of UTC, one a step."""
    count = int((until - since) / HOUR)
    starts = [since + n * HOUR for n in range(count)]
    return Period(since=since, until=until, by=By.HOUR, starts=starts)


def record(hour: datetime, used: Sequence[Usage]) -> dict[str, Any]:
    """What a usage.recorded event says of an hour: each definition's part, and all of it."""
    return {
        "hour": hour,
        "definitions": [{"definition_key": one.definition_key, **figures(one)} for one in used],
        "totals": figures(total(used)),
    }


def figures(used: Used) -> dict[str, int]:
    """The numbers alone, by name."""
    return {name: getattr(used, name) for name in FIGURES}


def _next_hour(moment: datetime) -> datetime:
    """The first hour of UTC that begins at this moment or later."""
    begun = _hour(moment)
    return begun if begun == moment.astimezone(UTC) else begun + HOUR


def _hour(moment: datetime) -> datetime:
    """The hour of UTC that this moment is in."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _starts(by: By, where: ZoneInfo, first: datetime) -> Iterator[datetime]:
    """Where the steps begin, from the one that this hour is in; on that zone's clocks."""
    if by is By.HOUR:
        while True:
            yield first.astimezone(where)
            first += HOUR
    day = local(first, where).replace(minute=0, hour=0, second=0)
    if by is By.MONTH:
        day = day.replace(day=1)
    while True:
        yield instant(day, where).astimezone(where)
        day = day + timedelta(days=1) if by is By.DAY else _next_month(day)


def _next_month(day: datetime) -> datetime:
    return (day + timedelta(days=31)).replace(day=1)


def _refused(name: str, why: str) -> InvalidInput:
    return InvalidInput(f"{name}: {why}.", [Fault(name, why)])
