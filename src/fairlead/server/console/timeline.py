"""The geometry of a timeline: rows of bars on a common time axis. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from fairlead.server.console.render import duration

# Bars narrower than this part of the axis, in percent, would be invisible.
NARROWEST = 0.4
MOST_TICKS = 6
# Distances between ticks, in seconds.
STEPS = (
    *(number * size for size in (0.001, 0.01, 0.1, 1) for number in (1, 2, 5)),
    *(10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200),
    *(86_400 * number for number in (1, 2, 7, 14, 30, 90, 180, 365)),
)


class Phase(msgspec.Struct, frozen=True):
    """A part of an entry's time; without an end, it goes on.

    Kinds: wait; retry, the pause before it; run, with its state; more, attempts that are not drawn one by one.
    """

    kind: str
    state: str
    start: datetime
    end: datetime | None
    title: str


class TimelineEntry(msgspec.Struct, frozen=True):
    """What one row shows; phases are in order."""

    name: str
    href: str | None
    state: str
    phases: Sequence[Phase]
    # 1 for what belongs to the row above with level 0
    level: int = 0
    note: str = ""


class TimelineBar(msgspec.Struct, frozen=True):
    """A phase on the axis; x and width in percent."""

    kind: str
    state: str
    x: float
    width: float
    title: str


class Row(msgspec.Struct, frozen=True):
    name: str
    href: str | None
    state: str
    level: int
    note: str
    start: datetime
    waited: float | None
    ran: float | None
    bars: Sequence[TimelineBar]


class TimelineTick(msgspec.Struct, frozen=True):
    """A mark of the axis; x in percent."""

    x: float
    label: str


class Timeline(msgspec.Struct, frozen=True):
    """Rows on an axis; `grows` while something waits or runs."""

    start: datetime
    seconds: float
    rows: Sequence[Row]
    ticks: Sequence[TimelineTick]
    grows: bool
    has_more: bool = False


def draw_timeline(
    entries: Iterable[TimelineEntry], now: datetime, *, has_more: bool = False
) -> Timeline | None:
    """Lay out entries on an axis from the first start to the last end, or to now; None without a phase."""
    shown = [one for one in entries if one.phases]
    if not shown:
        return None
    phases = [phase for one in shown for phase in one.phases]
    start = min(phase.start for phase in phases)
    grows = any(phase.end is None for phase in phases)
    end = max((phase.end or now for phase in phases), default=now)
    seconds = max((end - start).total_seconds(), 0.001)
    rows = [_lay_out(one, start, seconds, now) for one in shown]
    return Timeline(start, seconds, rows, place_ticks(seconds), grows, has_more)


def _lay_out(entry: TimelineEntry, start: datetime, whole: float, now: datetime) -> Row:
    runs = [_seconds(phase, now) for phase in entry.phases if phase.kind == "run"]
    waits = [_seconds(phase, now) for phase in entry.phases if phase.kind in ("wait", "retry")]
    is_whole = all(phase.kind != "more" for phase in entry.phases)
    return Row(
        name=entry.name,
        href=entry.href,
        state=entry.state,
        level=entry.level,
        note=entry.note,
        start=entry.phases[0].start,
        waited=sum(waits) if waits and is_whole else None,
        ran=sum(runs) if runs and is_whole else None,
        bars=[_place(phase, start, whole, now) for phase in entry.phases],
    )


def _place(phase: Phase, start: datetime, whole: float, now: datetime) -> TimelineBar:
    seconds = _seconds(phase, now)
    width = max(NARROWEST, min(100.0, seconds / whole * 100))
    x = min(100 - width, max(0.0, (phase.start - start).total_seconds() / whole * 100))
    title = f"{phase.title}: {duration(seconds)}{'' if phase.end else ' so far'}"
    return TimelineBar(phase.kind, phase.state, round(x, 2), round(width, 2), title)


def _seconds(phase: Phase, now: datetime) -> float:
    return max(0.0, ((phase.end or now) - phase.start).total_seconds())


def place_ticks(seconds: float) -> list[TimelineTick]:
    """Marks at round distances from the start, at most MOST_TICKS after it."""
    step = next((one for one in STEPS if seconds / one <= MOST_TICKS), STEPS[-1])
    count = min(int(seconds / step), 4 * MOST_TICKS)
    return [
        TimelineTick(round(n * step / seconds * 100, 2), duration(n * step) if n else "0")
        for n in range(count + 1)
    ]
