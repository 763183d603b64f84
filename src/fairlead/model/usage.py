"""Usage: what attempts used, per hour, day or month."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from fairlead.errors import Fault, InvalidInput
from fairlead.model.request import EARLIEST, LATEST
from fairlead.model.schedule.zone import first_instant, local_time

USAGE_RECORDED = "usage.recorded"
HOUR = timedelta(hours=1)
# The most steps of one report: six weeks of hours, or almost three years of days.
MOST_STEPS = 1000


class By(StrEnum):
    """The length of a step."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class Per(StrEnum):
    """How a step is split."""

    DEFINITION = "definition"
    TENANT = "tenant"
    NOTHING = "nothing"


K = TypeVar("K", By, Per)

# How far back a report goes by default.
_BACK = {By.HOUR: timedelta(days=1), By.DAY: timedelta(days=30), By.MONTH: timedelta(days=365)}


class UsageFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What attempts used: each ended attempt is one of `runs`, and counts in one of the next six fields.

    `retried`: it failed and its job was queued again; `released`: it did not fail, and its job was queued again.
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
        """How many attempts failed, whether or not their jobs were retried."""
        return self.failed + self.dead_letter + self.retried

    @property
    def wrong_percent(self) -> float | None:
        """The percentage of failures among attempts that succeeded or failed."""
        ended = self.succeeded + self.wrong
        return 100 * self.wrong / ended if ended else None


FIGURES = UsageFigures.__struct_fields__


class Usage(UsageFigures, frozen=True, kw_only=True):
    """The usage in one step, of one definition or tenant if the report is split by it."""

    definition_key: str | None
    tenant: str | None
    starts_at: datetime


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The hours from `since` (inclusive) to `until` (exclusive), and the starts of their steps."""

    since: datetime
    until: datetime
    by: By
    starts: Sequence[datetime]


def period(
    *, by: By, where: ZoneInfo, now: datetime, since: datetime | None, until: datetime | None
) -> Period:
    """The requested period, in whole UTC hours and in steps of the time zone; or InvalidInput.

    An hour is never divided: in a zone with an offset of half an hour it belongs to the day in which it begins.
    """
    until = now if until is None else until
    for name, moment in (("from", since), ("to", until)):
        if moment is not None and (moment.tzinfo is None or not EARLIEST <= moment < LATEST):
            raise _invalid_input(name, "must be a time with its zone, in the years 1970 to 2999")
    if since is None:
        since = next(_iterate_starts(by, where, _floor_hour(until - _BACK[by])))
    if since >= until:
        raise _invalid_input("from", "must be before `to`")
    first, end = _next_hour(since), _next_hour(until)
    starts: list[datetime] = []
    for start in _iterate_starts(by, where, first):
        if start >= end:
            break
        if len(starts) == MOST_STEPS:
            raise _invalid_input(
                "from",
                f"there are more than {MOST_STEPS} {by}s up to `to`: choose a shorter period, or longer steps",
            )
        starts.append(start)
    return Period(since=first, until=end, by=by, starts=starts)


def parse_choice(kind: type[K], name: str, given: str) -> K:
    """The `By` or `Per` with this value; otherwise InvalidInput at this field, with all values."""
    try:
        return kind(given)
    except ValueError:
        raise _invalid_input(name, f"must be one of {', '.join(kind)}") from None


def sum_usage(used: Iterable[UsageFigures]) -> UsageFigures:
    """The sum of all."""
    sums = dict.fromkeys(FIGURES, 0)
    for one in used:
        for name in FIGURES:
            sums[name] += getattr(one, name)
    return UsageFigures(**sums)


def build_hourly_period(since: datetime, until: datetime) -> Period:
    """A period of whole UTC hours, one per step."""
    count = int((until - since) / HOUR)
    starts = [since + n * HOUR for n in range(count)]
    return Period(since=since, until=until, by=By.HOUR, starts=starts)


def build_usage_event(hour: datetime, used: Sequence[Usage]) -> dict[str, Any]:
    """The data of a usage.recorded event: the usage of an hour, per definition and in total."""
    return {
        "hour": hour,
        "definitions": [{"definition_key": one.definition_key, **list_figures(one)} for one in used],
        "totals": list_figures(sum_usage(used)),
    }


def list_figures(used: UsageFigures) -> dict[str, int]:
    """The numbers by name."""
    return {name: getattr(used, name) for name in FIGURES}


def _next_hour(moment: datetime) -> datetime:
    """The first UTC hour that begins at this moment or later."""
    begun = _floor_hour(moment)
    return begun if begun == moment.astimezone(UTC) else begun + HOUR


def _floor_hour(moment: datetime) -> datetime:
    """The UTC hour of this moment."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _iterate_starts(by: By, where: ZoneInfo, first: datetime) -> Iterator[datetime]:
    """The starts of the steps in the time zone, from the step of this hour on."""
    if by is By.HOUR:
        while True:
            yield first.astimezone(where)
            first += HOUR
    day = local_time(first, where).replace(minute=0, hour=0, second=0)
    if by is By.MONTH:
        day = day.replace(day=1)
    while True:
        yield first_instant(day, where).astimezone(where)
        day = day + timedelta(days=1) if by is By.DAY else _next_month(day)


def _next_month(day: datetime) -> datetime:
    return (day + timedelta(days=31)).replace(day=1)


def _invalid_input(name: str, why: str) -> InvalidInput:
    return InvalidInput(f"{name}: {why}.", [Fault(name, why)])
