"""Which instants of a schedule are due, and which of them create jobs. A pure decision: nothing is written here."""

from datetime import datetime, timedelta
from itertools import islice

import msgspec

from fairlead.model.schedule.spec import Every, Schedule, iterate_instants
from fairlead.model.trigger import CatchUp

# The latest missed instants are recorded and caught up one by one; all earlier ones share one record.
MOST_MISSED = 1000
# The first search window for the latest instants of a cron expression; it doubles until it is large enough.
REACH = timedelta(days=1)

_JUST_BEFORE = timedelta(microseconds=1)

MISSED = "missed"
OVERTAKEN = "overtaken"
TOO_MANY = "too_many_missed"
# For instants that were due when their schedule was changed: the old schedule no longer applies.
CHANGED = "changed"


class UnrecordedInstants(msgspec.Struct, frozen=True):
    """Instants that share one record: the first, the last, and their number if known."""

    first: datetime
    until: datetime
    count: int | None


class DueInstants(msgspec.Struct, frozen=True):
    """The decision at one moment: instants to fire, instants to skip (with the reason), and the next due time."""

    fire: list[datetime] = msgspec.field(default_factory=list)
    skip: list[tuple[datetime, str]] = msgspec.field(default_factory=list)
    passed: UnrecordedInstants | None = None
    next_fire_at: datetime | None = None


def decide_due(
    schedule: Schedule, first: datetime, now: datetime, catch_up: CatchUp, grace: timedelta
) -> DueInstants:
    """Decide what is due at `now`; `first` is the schedule's first instant that is not yet recorded.

    An instant is missed if a later one is already due, or if it is late by more than `grace`.
    """
    kept, passed = _find_latest_instants(schedule, first, now)
    after = schedule.next_after(now)
    if not kept:
        return DueInstants(next_fire_at=first if first > now else after, passed=passed)
    if catch_up is CatchUp.ALL:
        return DueInstants(kept, [], passed, after)
    latest = kept.pop()
    skipped = [(instant, OVERTAKEN) for instant in kept]
    if catch_up is CatchUp.SKIP and now - latest > grace:
        return DueInstants([], [*skipped, (latest, MISSED)], passed, after)
    return DueInstants([latest], skipped, passed, after)


def _find_latest_instants(
    schedule: Schedule, first: datetime, now: datetime
) -> tuple[list[datetime], UnrecordedInstants | None]:
    """The latest instants up to now, oldest first, and a summary of the earlier ones."""
    begin = _find_search_start(schedule, first, now)
    walked = list(iterate_instants(schedule, begin - _JUST_BEFORE, now))
    before, kept = walked[:-MOST_MISSED], walked[-MOST_MISSED:]
    if not before:
        return kept, None
    count = len(before) if begin == first else _count_instants(schedule, first, kept[0])
    return kept, UnrecordedInstants(first, before[-1], count)


def _find_search_start(schedule: Schedule, first: datetime, now: datetime) -> datetime:
    """A start with slightly more than MOST_MISSED instants between it and now; or `first`, if there are fewer."""
    if isinstance(schedule, Every):
        return _find_interval_start(schedule, first, now)
    reach = REACH
    while now - first > reach:
        if len(list(islice(iterate_instants(schedule, now - reach, now), MOST_MISSED + 1))) > MOST_MISSED:
            return now - reach
        reach *= 2
    return first


def _find_interval_start(schedule: Every, first: datetime, now: datetime) -> datetime:
    if not schedule.seconds or first > now:
        return first
    step = timedelta(seconds=schedule.seconds)
    return max(first, first + ((now - first) // step - MOST_MISSED) * step)


def _count_instants(schedule: Schedule, first: datetime, kept: datetime) -> int | None:
    if not isinstance(schedule, Every):
        return None
    return (kept - first) // timedelta(seconds=schedule.seconds)
