"""Schedules: a cron expression in a time zone, or an interval; their runs, a preview, and their description."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from fairlead.errors import Fault, ScheduleInvalid
from fairlead.model.request import EARLIEST, LATEST
from fairlead.model.schedule import cron as crons
from fairlead.model.schedule import zone as zones
from fairlead.model.schedule.cron_description import describe_cron

MAX_EVERY_SECONDS = 366 * 86_400
UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


class ScheduleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What every schedule may have: an end, before which all its instants lie; and a jitter, which delays each firing."""

    end_at: datetime | None = None
    jitter_seconds: int = 0

    def is_before_end(self, at: datetime) -> bool:
        """Whether the schedule is not over at this instant."""
        return self.end_at is None or at < self.end_at


class Cron(ScheduleOptions, frozen=True):
    """Runs at each matching local time of the zone. `cron` creates it and checks both fields."""

    expr: str
    zone: str

    def next_after(self, after: datetime) -> datetime | None:
        """The first instant after this one at which it runs, in UTC."""
        return next(self.runs(after), None)

    def runs(self, after: datetime) -> Iterator[datetime]:
        """All instants after this one at which it runs, in order, in UTC."""
        found = crons.parse_cron(self.expr).runs(zones.load_zone(self.zone), after)
        return found if self.end_at is None else takewhile(self.is_before_end, found)


class Every(ScheduleOptions, frozen=True):
    """Runs at start_at and then at this exact interval; with 0 seconds, only at start_at."""

    seconds: int
    start_at: datetime

    def __post_init__(self) -> None:
        """Raise ScheduleInvalid for values out of range; convert start_at to UTC."""
        if type(self.seconds) is not int or not 0 <= self.seconds <= MAX_EVERY_SECONDS:
            raise _invalid("every_seconds", f"must be 0 (once) or 1 to {MAX_EVERY_SECONDS} (366 days)")
        if self.start_at.tzinfo is None:
            raise _invalid("start_at", "must be a time with its time zone, such as 2026-02-16T10:30:00Z")
        if not EARLIEST <= self.start_at < LATEST:
            raise _invalid("start_at", "must lie between the years 1970 and 3000")
        msgspec.structs.force_setattr(self, "start_at", self.start_at.astimezone(UTC))
        if not self.is_before_end(self.start_at):
            raise _invalid("end_at", "must be after start_at")

    def next_after(self, after: datetime) -> datetime | None:
        """The first instant after this one at which it runs, in UTC."""
        if after < self.start_at:
            return self.start_at
        if self.seconds == 0 or after >= LATEST:
            return None
        step = timedelta(seconds=self.seconds)
        at = self.start_at + ((after - self.start_at) // step + 1) * step
        return at if at < LATEST and self.is_before_end(at) else None

    def runs(self, after: datetime) -> Iterator[datetime]:
        """All instants after this one at which it runs, in order, in UTC."""
        at = self.next_after(after)
        while at is not None:
            yield at
            at = self.next_after(at)


Schedule = Cron | Every


class ScheduledRun(msgspec.Struct, frozen=True):
    """A future run: `local` is its local time, `offset` such as UTC-05:00, `note` explains a clock change.

    `fires_at` is later than `at` by the run's share of the jitter; null before the schedule is stored.
    """

    at: datetime
    local: datetime
    offset: str
    note: str | None = None
    fires_at: datetime | None = None


def parse_cron_schedule(
    expr: str, zone: str, *, end_at: datetime | None = None, jitter_seconds: int = 0
) -> Cron:
    """Parse a cron schedule; CronInvalid or TimezoneUnknown if it is wrong."""
    return Cron(
        crons.parse_cron(expr).text,
        zones.load_zone(zone).key,
        end_at=end_at,
        jitter_seconds=jitter_seconds,
    )


def check_end(end_at: datetime | None) -> datetime | None:
    """The end of a schedule in UTC; ScheduleInvalid if it has no time zone, or is out of range."""
    if end_at is None:
        return None
    if end_at.tzinfo is None:
        raise _invalid("end_at", "must be a time with its time zone, such as 2026-02-16T10:30:00Z")
    if not EARLIEST <= end_at < LATEST:
        raise _invalid("end_at", "must lie between the years 1970 and 3000")
    return end_at.astimezone(UTC)


def iterate_instants(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    """The runs after `after` (exclusive) and until `until` (inclusive), in UTC."""
    return takewhile(lambda at: at <= until, schedule.runs(after))


def preview_runs(
    schedule: Schedule, after: datetime, n: int = 5, *, zone: str = "UTC", seed: UUID | None = None
) -> list[ScheduledRun]:
    """The next n runs, with notes on clock changes; an interval is shown in `zone`. `seed` is the trigger's id."""
    where = zones.load_zone(schedule.zone if isinstance(schedule, Cron) else zone)
    before, found = after.astimezone(where), list[ScheduledRun]()
    for at in islice(schedule.runs(after), n):
        local = at.astimezone(where)
        note = _clock_note(schedule, at, where) if isinstance(schedule, Cron) else None
        if note is None and local.utcoffset() != before.utcoffset():
            since = "since the run before" if found else "before this run"
            note = f"clocks changed {since}: {_format_offset(local)} instead of {_format_offset(before)}"
        found.append(
            ScheduledRun(at, local, _format_offset(local), note, _find_known_time(schedule, seed, at))
        )
        before = local
    return found


def find_fire_time(schedule: Schedule, seed: UUID, instant: datetime) -> datetime:
    """When an instant fires: later by a part of the jitter that depends only on the seed, the trigger's id, and the instant.

    It fires before the next instant and before the end, so firings keep the order of their instants.
    """
    if not schedule.jitter_seconds:
        return instant
    latest = instant + timedelta(seconds=schedule.jitter_seconds)
    bound = min(filter(None, (latest, schedule.next_after(instant), schedule.end_at)))
    digest = hashlib.blake2b(
        seed.bytes + instant.astimezone(UTC).isoformat().encode(), digest_size=8
    ).digest()
    share = int.from_bytes(digest) * ((bound - instant) // timedelta.resolution) >> 64
    return instant + share * timedelta.resolution


def _find_known_time(schedule: Schedule, seed: UUID | None, instant: datetime) -> datetime | None:
    if seed is not None:
        return find_fire_time(schedule, seed, instant)
    return None if schedule.jitter_seconds else instant


def find_first(schedule: Schedule, now: datetime, *, at_once: bool = False) -> datetime | None:
    """A new schedule's first instant: its start, if that is less than one interval ago or, with `at_once`, in the past."""
    first = _find_first(schedule, now, at_once=at_once)
    return first if first is not None and schedule.is_before_end(first) else None


def _find_first(schedule: Schedule, now: datetime, *, at_once: bool) -> datetime | None:
    if isinstance(schedule, Every) and schedule.start_at <= now:
        step = timedelta(seconds=schedule.seconds)
        if not schedule.seconds or now - schedule.start_at < step:
            return schedule.start_at
        if at_once:
            return schedule.start_at + (now - schedule.start_at) // step * step
    return schedule.next_after(now)


def preview_new(schedule: Schedule, now: datetime, n: int = 5, *, zone: str) -> list[ScheduledRun]:
    """The first n runs of a schedule that is not stored yet: an interval that starts now also runs now."""
    first = find_first(schedule, now)
    return preview_runs(schedule, now if first is None else first - timedelta.resolution, n, zone=zone)


def in_words(schedule: Schedule) -> str:
    """A schedule in words; an uncommon expression as it is, with its zone."""
    words = _describe_instants(schedule)
    if schedule.jitter_seconds:
        words += f", up to {_describe_duration(schedule.jitter_seconds)} later"
    if schedule.end_at is not None:
        words += f", until {_describe_time(schedule.end_at)}"
    return words


def _describe_instants(schedule: Schedule) -> str:
    if isinstance(schedule, Cron):
        said = describe_cron(crons.parse_cron(schedule.expr).text)
        if said and not said.of_clock:
            return said.text
        return f"{said.text if said else schedule.expr} ({schedule.zone})"
    start = _describe_time(schedule.start_at)
    return (
        f"every {_describe_interval(schedule.seconds)} from {start}"
        if schedule.seconds
        else f"once at {start}"
    )


def _clock_note(schedule: Cron, at: datetime, where: ZoneInfo) -> str | None:
    """How a clock change moves this run, or None."""
    expression = crons.parse_cron(schedule.expr)
    if expression.is_interval:
        return None
    shown = zones.local_time(at, where)
    if zones.happens_twice(shown, where):
        return f"clocks go back: {shown:%H:%M} happens twice, runs the first time"
    skipped = list(expression.matches(zones.local_time(at - timedelta.resolution, where), shown))
    if not skipped:
        return None
    form = "%H:%M" if skipped[0].date() == shown.date() else "%Y-%m-%d %H:%M"
    if len(skipped) == 1:
        return f"clocks go forward: {skipped[0]:{form}} does not exist, runs at {shown:{form}}"
    first, last = skipped[0], skipped[-1]
    return f"clocks go forward: {first:{form}} to {last:{form}} do not exist, runs once at {shown:{form}}"


def _format_offset(local: datetime) -> str:
    digits = f"{local:%z}"
    return f"UTC{digits[:3]}:{digits[3:5]}"


def _describe_interval(seconds: int) -> str:
    return _describe_duration(seconds).removeprefix("1 ")


def _describe_duration(seconds: int) -> str:
    size, unit = next((size, unit) for size, unit in UNITS if seconds % size == 0)
    count = seconds // size
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _describe_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(sep=" ").replace("+00:00", " UTC")


def _invalid(field: str, why: str) -> ScheduleInvalid:
    return ScheduleInvalid(f"Invalid schedule: {field} {why}.", [Fault(field, why)])
