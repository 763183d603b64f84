"""What triggers did in the last 24 hours and will do in the next 24: for the strip and the list of upcoming runs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from fairlead.actions.triggers import mask_trigger
from fairlead.db.tx import Tx
from fairlead.errors import Refused
from fairlead.model.access import Permission, Principal
from fairlead.model.schedule.outlook import ClockChange, find_clock_changes, list_first_in_bins, list_next
from fairlead.model.schedule.spec import find_fire_time
from fairlead.model.trigger import FiringCount, Trigger, TriggerType
from fairlead.model.trigger_kinds import describe_trigger
from fairlead.model.trigger_kinds.schedule import schedule_of_trigger
from fairlead.store import firings, triggers

REACH = timedelta(hours=24)
# Firings nearer to each other are one mark.
BIN = timedelta(minutes=10)
MOST_ROWS = 20
MOST_UPCOMING = 50
# A trigger that runs more often in the next 24 hours is listed once, with its schedule.
MOST_EACH = 4
# The latest firings of each trigger that are counted, at most.
MOST_FIRINGS = 1500


class OutlookRow(msgspec.Struct, frozen=True):
    """A trigger, its firings of the last 24 hours by bin, and its first run in each bin of the next 24."""

    trigger: Trigger
    fired: Sequence[FiringCount]
    next_runs: Sequence[datetime]


class UpcomingRun(msgspec.Struct, frozen=True):
    """A run of a schedule; `repeats` says how it goes on if it runs too often to list each run."""

    at: datetime
    trigger: Trigger
    repeats: str | None = None


class Outlook(msgspec.Struct, frozen=True):
    """The last and the next 24 hours of some triggers."""

    now: datetime
    rows: Sequence[OutlookRow]
    changes: Sequence[ClockChange]
    # enabled schedules that have no row
    has_more: bool = False

    @property
    def start(self) -> datetime:
        """The beginning of the strip."""
        return self.now - REACH

    @property
    def end(self) -> datetime:
        """The end of the strip."""
        return self.now + REACH


async def show_outlook(
    tx: Tx, principal: Principal, found: Sequence[Trigger] | None = None, *, limit: int = MOST_ROWS
) -> Outlook:
    """The last and the next 24 hours of these triggers, which the principal has read; or of those that run next."""
    principal.require(Permission.READ_TRIGGERS, principal.tenant_id)
    now = await triggers.read_clock(tx)
    if found is None:
        found = await triggers.list_soonest(tx, tenant_id=principal.tenant_id, limit=limit + 1)
    ordered = sorted(found, key=lambda one: (one.next_fire_at is None, one.next_fire_at or now))
    shown = [mask_trigger(tx, one) for one in ordered[:limit]]
    counts: dict[UUID, list[FiringCount]] = defaultdict(list)
    ids = [one.id for one in shown]
    for count in await firings.count_in_bins(tx, ids, since=now - REACH, bin_size=BIN, each=MOST_FIRINGS):
        counts[count.trigger_id].append(count)
    rows = [OutlookRow(one, counts[one.id], _list_runs(one, now)) for one in shown]
    return Outlook(now, rows, _list_changes(shown, now), len(ordered) > limit)


async def list_upcoming(tx: Tx, principal: Principal, *, limit: int = MOST_UPCOMING) -> list[UpcomingRun]:
    """The next runs of all enabled schedules within 24 hours, first to last."""
    principal.require(Permission.READ_TRIGGERS, principal.tenant_id)
    now = await triggers.read_clock(tx)
    # a later trigger cannot run before all of these have run once
    found = await triggers.list_soonest(tx, tenant_id=principal.tenant_id, limit=limit)
    runs = [run for one in found for run in _list_upcoming(mask_trigger(tx, one), now)]
    return sorted(runs, key=lambda run: run.at)[:limit]


def _list_upcoming(trigger: Trigger, now: datetime) -> list[UpcomingRun]:
    try:
        schedule = schedule_of_trigger(trigger)
        runs = list_next(schedule, _find_start(trigger, now), now + REACH, MOST_EACH + 1)
        runs = [find_fire_time(schedule, trigger.id, at) for at in runs]
    except Refused:  # its time zone is unknown: its firings report that
        return []
    if len(runs) > MOST_EACH:
        return [UpcomingRun(runs[0], trigger, describe_trigger(trigger))]
    return [UpcomingRun(at, trigger) for at in runs]


def _list_runs(trigger: Trigger, now: datetime) -> list[datetime]:
    if trigger.trigger_type is not TriggerType.SCHEDULE or not trigger.is_enabled:
        return []
    try:
        schedule = schedule_of_trigger(trigger)
        found = list_first_in_bins(schedule, _find_start(trigger, now), now + REACH, BIN)
        return [find_fire_time(schedule, trigger.id, at) for at in found]
    except Refused:
        return []


def _find_start(trigger: Trigger, now: datetime) -> datetime:
    """Now, or just before an instant whose jitter is not over."""
    instant, fires_at = trigger.next_instant, trigger.next_fire_at
    if instant is not None and fires_at is not None and instant <= now < fires_at:
        return instant - timedelta.resolution
    return now


def _list_changes(shown: Iterable[Trigger], now: datetime) -> list[ClockChange]:
    found = list[ClockChange]()
    for zone in sorted({one.zone for one in shown if one.cron_expr is not None}):
        try:
            found += find_clock_changes(zone, now - REACH, now + REACH)
        except Refused:
            continue
    return found
