"""Cron expressions: cronsim parses the fields; this module computes the runs, also across daylight saving changes.

cronsim misses runs where clocks change by half an hour, and goes back in time in a repeated hour.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from fairlead.errors import CronInvalid, Fault
from fairlead.model.request import EARLIEST, LATEST
from fairlead.model.schedule import zone
from fairlead.model.schedule.cron_description import MONTHS, WEEKDAYS

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LONGEST = 255
RANGES = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31 or L, the last",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7, both of them Sunday, or SUN to SAT",
}
ADVICE = "must have five fields: minute, hour, day of month, month, day of week; such as 30 2 * * 1-5"

_FIVE = re.compile(r"[0-9A-Za-z*/,#-]+( [0-9A-Za-z*/,#-]+){4}")
_STEPPED = re.compile(r"\b(\w+)-(\w+)/0*[1-9]\d*\b")
_VALUES = {
    name[:3].upper(): str(value)
    for first, named in enumerate((WEEKDAYS, MONTHS))
    for value, name in enumerate(named, first)
}
_TICK = timedelta.resolution
_DAY = timedelta(days=1)
# Any fifty years have every combination of date and weekday.
_SEARCH = datetime(2000, 1, 1), datetime(2050, 1, 1)  # noqa: DTZ001
_LAST = LATEST.replace(tzinfo=None) + _DAY


class CronExpression(msgspec.Struct, frozen=True, eq=False):
    """A parsed cron expression: the local times that match it."""

    text: str
    fields: CronSim
    times: tuple[timedelta, ...]

    @property
    def is_interval(self) -> bool:
        """Whether it is an interval, which follows elapsed time and not local time."""
        minute, hour, *_ = self.text.split()
        return minute.startswith("*") or hour.startswith("*")

    def runs(self, where: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """The instants after this one at which it runs, in order, in UTC."""
        after = min(max(after, EARLIEST - _TICK), LATEST).astimezone(UTC)
        return self._interval_runs(where, after) if self.is_interval else self._clock_runs(where, after)

    def matches(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The matching local times after `after` and before `until`, in order, as if clocks never changed."""
        for day in self._days(after.date(), until.date()):
            midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001
            for n in range(bisect_right(self.times, after - midnight), len(self.times)):
                if (shown := midnight + self.times[n]) >= until:
                    return
                yield shown

    def _interval_runs(self, where: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """Every elapsed minute whose local time matches."""
        for start, end, offset in zone.iterate_offset_spans(where, after + _TICK):
            first, last = (start + offset).replace(tzinfo=None), (end + offset).replace(tzinfo=None)
            for shown in self.matches(first - _TICK, last):
                yield shown.replace(tzinfo=UTC) - offset

    def _clock_runs(self, where: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """Every matching local time: once if it occurs twice, at the clock change if it is skipped."""
        for shown in self.matches(zone.local_time(after, where), _LAST):
            at = zone.first_instant(shown, where)
            if at >= LATEST:
                return
            if at > after:
                yield at
                after = at

    def _days(self, day: date, last: date) -> Iterator[date]:
        while day <= last:
            if day.month not in self.fields.months:
                day = (day.replace(day=1) + 31 * _DAY).replace(day=1)
                continue
            if self.fields.match_day(day):
                yield day
            day += _DAY


@lru_cache(maxsize=4096)
def parse_cron(expr: str) -> CronExpression:
    """Parse an expression: five fields, a nickname, or six fields of which the first is 0. CronInvalid if it is wrong."""
    text = _normalize_fields(expr)
    fields = _parse_fields(text, expr)
    times = tuple(timedelta(hours=h, minutes=m) for h in sorted(fields.hours) for m in sorted(fields.minutes))
    expression = CronExpression(text, fields, times)
    if next(expression.matches(*_SEARCH), None) is None:
        raise _never_runs(expr)
    return expression


def _normalize_fields(expr: str) -> str:
    parts = expr.split() if len(expr) <= LONGEST else []
    if len(parts) == 1 and parts[0].startswith("@"):
        if parts[0].lower() not in NICKNAMES:
            raise _invalid(expr, f"is not one of the names {', '.join(NICKNAMES)}")
        return NICKNAMES[parts[0].lower()]
    if len(parts) == 6:
        if parts[0] not in {"0", "00"}:
            raise _invalid(expr, "must have 0 as the first of six fields; for seconds, use an interval")
        parts = parts[1:]
    text = " ".join(parts)
    if "?" in text:
        raise _invalid(expr, "has a ?, which is not supported: write * for any day")
    if len(parts) != 5:
        raise _invalid(expr, f"has {_describe_length(expr)}: it {ADVICE}")
    if not _FIVE.fullmatch(text):
        raise _invalid(expr, ADVICE)
    return text


def _describe_length(expr: str) -> str:
    if len(expr) > LONGEST:
        return f"more than {LONGEST} characters"
    number = len(expr.split())
    return "1 field" if number == 1 else f"{number} fields"


def _parse_fields(text: str, expr: str) -> CronSim:
    minute, hour, day, month, weekday = text.split()
    try:
        _parse_with_cronsim(f"{minute} {hour} {day} * {weekday}")
        _parse_with_cronsim(f"* * * {month} *")
    except CronSimError as error:
        place = str(error).removeprefix("Bad ")
        raise _invalid(
            expr, f"is wrong in its {place}: use * or {RANGES[place]}, as in 1,5 1-5 */5"
        ) from error
    try:
        return _parse_with_cronsim(text)
    except CronSimError as error:  # each field is valid, but no date matches all of them
        raise _never_runs(expr) from error


def _parse_with_cronsim(text: str) -> CronSim:
    # cronsim reads 5-5/2 as 5/2, a range without an end
    return CronSim(_STEPPED.sub(_collapse_span, text), EARLIEST)


def _collapse_span(span: re.Match[str]) -> str:
    """Replace a stepped range of one value by that value; keep any other."""
    first, last = (_VALUES.get(one.upper(), one).lstrip("0") for one in span.groups())
    return span[1] if first == last else span[0]


def _never_runs(expr: str) -> CronInvalid:
    return _invalid(expr, "never runs: no month has such a day; check day of month, month and day of week")


def _invalid(expr: str, why: str) -> CronInvalid:
    return CronInvalid(f"The cron expression {expr[:80]!r} {why}.", [Fault("cron_expr", why)])
