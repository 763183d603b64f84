"""The geometry of the strip of firings: 48 hours with now in the middle. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from fairlead.actions.outlook import BIN, Outlook, OutlookRow
from fairlead.model.schedule.due import MISSED, OVERTAKEN, TOO_MANY
from fairlead.model.schedule.outlook import ClockChange
from fairlead.model.trigger import FiringCount, FiringOutcome, Trigger

# In percent of the strip: about four pixels of a wide page.
NARROWEST = 0.35
HOURS = 3
_OUTCOMES = {
    FiringOutcome.ENQUEUED: "enqueued",
    FiringOutcome.DEDUPLICATED: "skipped",
    FiringOutcome.SKIPPED: "skipped",
    FiringOutcome.FAILED: "failed",
}


class Mark(msgspec.Struct, frozen=True):
    """Firings of one kind in adjacent bins: enqueued, skipped, missed, failed or next."""

    kind: str
    x: float
    width: float
    first: datetime
    last: datetime
    count: int | None
    reason: str


class StripRow(msgspec.Struct, frozen=True):
    trigger: Trigger
    marks: Sequence[Mark]
    failed: int
    fired: int


class StripTick(msgspec.Struct, frozen=True):
    """An hour of the axis, or a clock change with its text."""

    x: float
    at: datetime
    label: str


class FiringStrip(msgspec.Struct, frozen=True):
    start: datetime
    end: datetime
    rows: Sequence[StripRow]
    ticks: Sequence[StripTick]
    changes: Sequence[StripTick]
    has_more: bool


def draw_strip(outlook: Outlook) -> FiringStrip:
    """Place the firings and the next runs of an outlook."""
    whole = outlook.end - outlook.start

    def place(at: datetime) -> float:
        return round(min(100.0, max(0.0, (at - outlook.start) / whole * 100)), 2)

    rows = [
        StripRow(
            trigger=row.trigger,
            marks=[_widen(mark, place(mark.first), place(mark.last)) for mark in _merge(_list_marks(row))],
            failed=sum(one.count for one in row.fired if _kind(one) in ("failed", "missed")),
            fired=sum(one.count for one in row.fired),
        )
        for row in outlook.rows
    ]
    ticks = [StripTick(place(at), at, f"{at:%H:%M}") for at in _list_hours(outlook.start, outlook.end)]
    changes = [StripTick(place(one.at), one.at, _describe_change(one)) for one in outlook.changes]
    return FiringStrip(outlook.start, outlook.end, rows, ticks, changes, outlook.has_more)


def _list_marks(row: OutlookRow) -> Iterable[Mark]:
    for one in row.fired:
        yield Mark(_kind(one), 0, 0, one.first, one.last, one.count, one.reason or "")
    for at in row.next_runs:
        yield Mark("next", 0, 0, at, at, None, "")


def _kind(one: FiringCount) -> str:
    if one.outcome is FiringOutcome.SKIPPED and one.reason in (MISSED, OVERTAKEN, TOO_MANY):
        return "missed"
    return _OUTCOMES[one.outcome]


def _merge(marks: Iterable[Mark]) -> list[Mark]:
    """Join marks of one kind and reason in adjacent bins: a trigger that fires every minute is one mark."""
    merged: list[Mark] = []
    for mark in marks:
        last = merged[-1] if merged else None
        same = last is not None and (last.kind, last.reason) == (mark.kind, mark.reason)
        if last is not None and same and mark.first - last.last <= BIN:
            count = None if last.count is None or mark.count is None else last.count + mark.count
            merged[-1] = Mark(mark.kind, 0, 0, last.first, mark.last, count, mark.reason)
        else:
            merged.append(mark)
    return merged


def _widen(mark: Mark, start: float, end: float) -> Mark:
    width = max(NARROWEST, end - start)
    x = max(0.0, min(100 - width, start - (NARROWEST / 2 if end == start else 0)))
    return msgspec.structs.replace(mark, x=round(x, 2), width=round(width, 2))


def _list_hours(start: datetime, end: datetime) -> Iterable[datetime]:
    at = start.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    at += timedelta(hours=-at.hour % HOURS)
    while at < end:
        yield at
        at += timedelta(hours=HOURS)


def _describe_change(one: ClockChange) -> str:
    way = "forward" if one.after > one.before else "back"
    minutes = abs(one.after - one.before) // timedelta(minutes=1)
    return f"{one.zone}: clocks go {way} by {minutes} min"
