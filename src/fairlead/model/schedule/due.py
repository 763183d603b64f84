"""Which instants of a schedule are due, and which of them create jobs. A pure decision: nothing is written here."""

from datetime import datetime, timedelta
from itertools import islice, pairwise
from uuid import UUID

import msgspec

from fairlead.model.schedule.spec import Every, Schedule, find_fire_time, iterate_instants
from fairlead.model.trigger import CatchUp

# The latest missed instants are recorded and caught up one by one; all earlier ones share one record.
MOST_MISSED = 1000
# The first search window for the latest instants of a cron expression; it doubles until it is large enough.
REACH = timedelta(days=1)

_JUST_BEFORE = timedelta(microseconds=1)
# For schedules without jitter.
_NO_SEED = UUID(int=0)

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
    """The decision at one moment: instants to fire, instants to skip (with the reason), and the next instant."""

    fire: list[datetime] = msgspec.field(default_factory=list)
    skip: list[tuple[datetime, str]] = msgspec.field(default_factory=list)
    passed: UnrecordedInstants | None = None
    next_instant: datetime | None = None


def decide_due(
    schedule: Schedule,
    first: datetime,
    now: datetime,
    catch_up: CatchUp,
    grace: timedelta,
    *,
    seed: UUID = _NO_SEED,
) -> DueInstants:
    """Decide what is due at `now`; `first` is the schedule's first instant that is not yet recorded.

    An instant is due when its jitter is over, for which `seed` is the trigger's id. It is missed if a later one is already
    due, or if it is late by more than `grace`. Jitter may bring two firings close together: then the earlier one is missed
    only if it is late by as much as there is between their instants.
    """
    kept, passed = _find_latest_instants(schedule, first, now)
    after = schedule.next_after(now)
    if kept and find_fire_time(schedule, seed, kept[-1]) > now:
        after = kept.pop()
    if not kept:
        return DueInstants(next_instant=first if first > now else after, passed=passed)
    if catch_up is CatchUp.ALL:
        return DueInstants(kept, [], passed, after)
    latest = kept[-1]
    late = now - find_fire_time(schedule, seed, latest)
    if catch_up is CatchUp.SKIP and late > grace:
        return DueInstants([], [*((one, OVERTAKEN) for one in kept[:-1]), (latest, MISSED)], passed, after)
    fire, skip = list[datetime](), list[tuple[datetime, str]]()
    for one, following in pairwise(kept):
        if now - find_fire_time(schedule, seed, one) < min(following - one, grace):
            fire.append(one)
        else:
            skip.append((one, OVERTAKEN))
    return DueInstants([*fire, latest], skip, passed, after)


def _find_latest_instants(
    schedule: Schedule, first: datetime, now: datetime
) -> tuple[list[datetime], UnrecordedInstants | None]:
    """The latest instants up to now, oldest first, and a summary of the earlier ones."""
    if schedule.end_at is not None:
        now = min(now, schedule.end_at)
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
