"""Time zones: which there are, when their clocks change, and which instant a local time means."""

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

# No zone changed its clocks twice within six days since 1970, so a look a day misses no change.
_STRIDE = timedelta(days=1)
_SECOND = timedelta(seconds=1)


class Span(NamedTuple):
    """A stretch of time, in UTC, during which a zone's offset stays the same."""

    start: datetime
    end: datetime
    offset: timedelta


def zone(name: str) -> ZoneInfo:
    """The zone of this name, or a refusal that suggests one."""
    if known(name):
        return ZoneInfo(name)
    close = get_close_matches(name[:80].title(), names(), 1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise TimezoneUnknown(
        f"There is no time zone {name[:80]!r}: it {ADVICE}.{hint}", [Fault("timezone", ADVICE)]
    )


def known(name: str) -> bool:
    """Whether there is a zone of this name, the same on every machine."""
    return name in names()


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    """All zones there are."""
    return frozenset(zoneinfo.available_timezones()) - MACHINE_DEPENDENT


def local(at: datetime, where: ZoneInfo) -> datetime:
    """What clocks there show at an instant, without zone."""
    return at.astimezone(where).replace(tzinfo=None)


def instant(shown: datetime, where: ZoneInfo) -> datetime:
    """The first instant at which clocks there show this time, or have just jumped over it; in UTC."""
    at = shown.replace(tzinfo=where, fold=0).astimezone(UTC)
    if local(at, where) == shown:
        return at
    # In a gap fold=1 reckons with the offset after it: an instant before the clocks change.
    return _change(where, shown.replace(tzinfo=where, fold=1).astimezone(UTC), at)


def happens_twice(shown: datetime, where: ZoneInfo) -> bool:
    """Whether clocks there show this time, go back, and show it again."""
    first, second = (_offset_of(shown.replace(tzinfo=where, fold=fold)) for fold in (0, 1))
    return first > second


def spans(where: ZoneInfo, start: datetime) -> Iterator[Span]:
    """The spans from an instant on, cut also at every new year, until the latest time there is."""
    for year in range(start.year, LATEST.year):
        for end in (*_changes(where, year), datetime(year + 1, 1, 1, tzinfo=UTC)):
            if start < end:
                yield Span(start, end, _offset(where, start))
                start = end


@lru_cache(maxsize=4096)
def _changes(where: ZoneInfo, year: int) -> tuple[datetime, ...]:
    """The instants of a UTC year at which clocks change."""
    found = []
    before, new_year = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    while before < new_year:
        after = min(before + _STRIDE, new_year)
        if _offset(where, before) != _offset(where, after):
            found.append(_change(where, before, after))
        before = after
    return tuple(found)


def _change(where: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The instant in (before, after] at which clocks change, given that they do; by halving."""
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
