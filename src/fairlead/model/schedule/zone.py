"""Time zones: their names, their clock changes, and the conversion of local times to instants."""

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fairlead.errors import Fault, TimezoneUnknown
from fairlead.model.request import LATEST

ADVICE = "must be an IANA zone such as Europe/Paris"
MACHINE_DEPENDENT = frozenset({"localtime", "Factory"})

# Since 1970 no zone changed its clocks twice within six days, so one check per day finds every change.
_STRIDE = timedelta(days=1)
_SECOND = timedelta(seconds=1)


class OffsetSpan(NamedTuple):
    """A period, in UTC, with a constant offset of the zone."""

    start: datetime
    end: datetime
    offset: timedelta


def load_zone(name: str) -> ZoneInfo:
    """The zone of this name; TimezoneUnknown suggests a similar name."""
    if is_known_zone(name):
        return ZoneInfo(name)
    close = get_close_matches(name[:80].title(), list_zone_names(), 1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise TimezoneUnknown(
        f"There is no time zone {name[:80]!r}: it {ADVICE}.{hint}", [Fault("timezone", ADVICE)]
    )


def is_known_zone(name: str) -> bool:
    """Whether this is the name of a zone that is the same on every machine."""
    return name in list_zone_names()


@lru_cache(maxsize=1)
def list_zone_names() -> frozenset[str]:
    """The names of all zones."""
    return frozenset(zoneinfo.available_timezones()) - MACHINE_DEPENDENT


def local_time(at: datetime, where: ZoneInfo) -> datetime:
    """The local time of an instant, without a zone."""
    return at.astimezone(where).replace(tzinfo=None)


def first_instant(shown: datetime, where: ZoneInfo) -> datetime:
    """The first instant of a local time in UTC, or the clock change that skips the local time."""
    at = shown.replace(tzinfo=where, fold=0).astimezone(UTC)
    if local_time(at, where) == shown:
        return at
    # In a gap, fold=1 uses the offset after it: the result is before the clock change.
    return _find_change(where, shown.replace(tzinfo=where, fold=1).astimezone(UTC), at)


def happens_twice(shown: datetime, where: ZoneInfo) -> bool:
    """Whether this local time occurs twice because clocks go back."""
    first, second = (_offset_of(shown.replace(tzinfo=where, fold=fold)) for fold in (0, 1))
    return first > second


def iterate_offset_spans(where: ZoneInfo, start: datetime) -> Iterator[OffsetSpan]:
    """The spans from an instant until the latest supported time, also split at every new year."""
    for year in range(start.year, LATEST.year):
        for end in (*_find_changes(where, year), datetime(year + 1, 1, 1, tzinfo=UTC)):
            if start < end:
                yield OffsetSpan(start, end, _offset(where, start))
                start = end


@lru_cache(maxsize=4096)
def _find_changes(where: ZoneInfo, year: int) -> tuple[datetime, ...]:
    """The clock changes of a UTC year."""
    found = []
    before, new_year = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    while before < new_year:
        after = min(before + _STRIDE, new_year)
        if _offset(where, before) != _offset(where, after):
            found.append(_find_change(where, before, after))
        before = after
    return tuple(found)


def _find_change(where: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The clock change in (before, after], by bisection; there must be one."""
    old = _offset(where, before)
    while after - before > _SECOND:
        middle = before + (after - before) // 2 // _SECOND * _SECOND
        if _offset(where, middle) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(where: ZoneInfo, at: datetime) -> timedelta:
    return _offset_of(at.astimezone(where))


def _offset_of(shown: datetime) -> timedelta:
    return shown.utcoffset() or timedelta(0)
