"""Schedules against an oracle that shares nothing with them: it looks at every minute there is."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings, strategies

from fairlead.model.schedule.spec import iterate_instants, parse_cron_schedule
from tests.tables import each_case
from tests.thorough import examples

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

# The oracle

Hour = tuple[int, int, int, int]  # the hour, the day, the month, the day of the week
Walked = list[tuple[Hour, list[tuple[datetime, int]]]]  # of each hour: every minute that belongs to it
NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        if first == "*":
            bounds = (low, high)
        elif last:
            bounds = (number(first), number(last))
        else:
            bounds = (number(first), high if step else number(first))
        found |= set(range(bounds[0], bounds[1] + 1, int(step or 1)))
    return found


def number(text: str) -> int:
    return NAMES.index(text) if text in NAMES else int(text)


def selector(expr: str) -> Callable[[Walked], Iterator[datetime]]:
    """What picks those of many minutes that match."""
    minute, hour, day, month, weekday = expr.split()
    minutes, hours = numbers(minute, 0, 59), numbers(hour, 0, 23)
    days, months = numbers(day, 1, 31), numbers(month, 1, 12)
    weekdays = {one % 7 for one in numbers(weekday, 0, 7)}
    both = day.startswith("*") or weekday.startswith("*")
    dates = {
        (d, w) for d in range(1, 32) for w in range(7)
        if ((d in days and w in weekdays) if both else (d in days or w in weekdays))
    }  # fmt: skip

    def select(walked: Walked) -> Iterator[datetime]:
        for (h, d, mo, w), those in walked:
            if h in hours and mo in months and (d, w) in dates:
                yield from (at for at, m in those if m in minutes)

    return select


def by_hour(minutes: Iterable[tuple[datetime, datetime]]) -> Walked:
    """Minutes, each with what clocks show then, in the order in which they come."""
    walked: Walked = []
    for at, wall in minutes:
        hour = (wall.hour, wall.day, wall.month, wall.isoweekday() % 7)
        if not walked or walked[-1][0] != hour:
            walked.append((hour, []))
        walked[-1][1].append((at, wall.minute))
    return walked


@lru_cache(maxsize=16)
def passing(zone: str, start: datetime, end: datetime) -> Walked:
    """Every minute that passes, with what clocks show then."""
    where = ZoneInfo(zone)
    stamps = range(int(start.timestamp()), int(end.timestamp()), 60)
    return by_hour((datetime.fromtimestamp(s, UTC), datetime.fromtimestamp(s, where)) for s in stamps)


@lru_cache(maxsize=16)
def shown(start: datetime, end: datetime) -> Walked:
    """Every minute on the face of clocks that never change."""
    first, count = start.replace(tzinfo=None) - 2 * DAY, (end - start + 4 * DAY) // MINUTE
    return by_hour((wall, wall) for wall in (first + n * MINUTE for n in range(count)))


def when(wall: datetime, where: ZoneInfo) -> datetime:
    """When clocks first show it; if never, the next minute that they do show."""
    while True:
        at = wall.replace(tzinfo=where).astimezone(UTC)
        if at.astimezone(where).replace(tzinfo=None) == wall:
            return at
        wall += MINUTE


def expected(expr: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """When it should run from start to end, the end left out."""
    minute, hour, *_ = expr.split()
    select = selector(expr)
    if minute.startswith("*") or hour.startswith("*"):
        return list(select(passing(zone, start, end)))
    runs = {when(wall, ZoneInfo(zone)) for wall in select(shown(start, end))}
    return sorted(at for at in runs if start <= at < end)


def actual(expr: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    tick = timedelta.resolution
    return list(iterate_instants(parse_cron_schedule(expr, zone), start - tick, end - tick))


@pytest.fixture(autouse=True)
def _forget_the_zone() -> Iterator[None]:
    """A walked year is large."""
    yield
    passing.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def _forget_the_year() -> Iterator[None]:
    yield
    shown.cache_clear()


# Around changes of clocks

CHANGES = [
    ("America/New_York", "2026-03-08T07:00Z"), ("America/New_York", "2026-11-01T06:00Z"),
    ("Europe/London", "2026-03-29T01:00Z"), ("Europe/London", "2026-10-25T01:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"), ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"), ("Pacific/Kwajalein", "1993-08-21T12:00Z"),
    ("Asia/Kathmandu", "1985-12-31T18:30Z"), ("Africa/Cairo", "2026-04-23T22:00Z"),
    ("Africa/Cairo", "2026-10-29T21:00Z"), ("America/Havana", "2026-03-08T05:00Z"),
    ("America/Havana", "2026-11-01T05:00Z"), ("America/Caracas", "2016-05-01T07:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00Z"), ("Asia/Pyongyang", "2018-05-04T15:00Z"),
]  # fmt: skip


@each_case(("zone", "change"), CHANGES)
def test_the_changes_under_test_are_changes(zone: str, change: str) -> None:
    at, where = datetime.fromisoformat(change), ZoneInfo(zone)
    assert at.astimezone(where).utcoffset() != (at - timedelta.resolution).astimezone(where).utcoffset()


def field(low: int, high: int) -> strategies.SearchStrategy[str]:
    one = strategies.integers(low, high)
    span = strategies.tuples(one, one).map(lambda pair: f"{min(pair)}-{max(pair)}")
    term = one.map(str) | span
    stepped = strategies.builds("{}/{}".format, span | strategies.just("*"), strategies.integers(1, high))
    return (
        strategies.just("*") | term | stepped | strategies.lists(term, min_size=2, max_size=4).map(",".join)
    )


def joined(*fields: strategies.SearchStrategy[str]) -> strategies.SearchStrategy[str]:
    return strategies.tuples(*fields).map(" ".join)


ANY_DAY = strategies.just("*")
ANY = joined(field(0, 59), field(0, 23), ANY_DAY | field(1, 28), ANY_DAY, ANY_DAY | field(0, 7))


@pytest.mark.deeper
@settings(max_examples=examples(200), deadline=None)
@given(ANY, strategies.sampled_from(CHANGES), strategies.timedeltas(-DAY, DAY))
def test_around_a_change_of_clocks_it_runs_as_the_oracle_says(
    expr: str, changing: tuple[str, str], away: timedelta
) -> None:
    zone, change = changing
    start, end = datetime.fromisoformat(change) - 2 * DAY, datetime.fromisoformat(change) + 2 * DAY
    wanted = expected(expr, zone, start, end)
    after = start + 2 * DAY + away
    follows = next((at for at in wanted if at > after), None)

    assert actual(expr, zone, start, end) == wanted
    assume(follows)
    assert parse_cron_schedule(expr, zone).next_after(after) == follows


# A year, minute by minute

# By half an hour. Around its changes of clocks, each zone is walked above.
YEARS = [("Australia/Lord_Howe", 2026)]
MORE_YEARS = [
    ("America/New_York", 2026),
    ("Pacific/Apia", 2011),  # without 30 December
    ("Europe/London", 2026),
    ("Pacific/Apia", 2026),
    ("Asia/Kathmandu", 2026),  # UTC+05:45
    ("UTC", 2026),
]
EXPRESSIONS = [
    "* * * * *", "0 * * * *", "*/20 2 * * *", "0 */2 * * *",
    "0 0 * * *", "30 2 * * *", "0 2-4 * * *", "0,30 1 * * *",
    "0 0 1 * *", "30 2 30 * *", "0 12 31 12 *", "0 0 13 * FRI", "0 0 */2 * MON",
]  # fmt: skip


def year_of(year: int) -> tuple[datetime, datetime]:
    return datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)


@pytest.mark.thorough
@pytest.mark.parametrize(("zone", "year"), [*YEARS, *MORE_YEARS])
def test_a_year_is_run_as_the_oracle_says_minute_by_minute(zone: str, year: int) -> None:
    for expr in EXPRESSIONS:
        runs = actual(expr, zone, *year_of(year))

        assert runs == expected(expr, zone, *year_of(year)), expr
        assert runs
