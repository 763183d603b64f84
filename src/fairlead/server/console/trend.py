"""Bars of a small chart, drawn by the templates as SVG."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from fairlead.model.error_groups import ErrorHour

# By name: the number of bars, and the hours of each.
SPANS = {"24h": (24, 1), "7d": (28, 6)}
HEIGHT = 24
WIDTH = 4


class TrendBar(msgspec.Struct, frozen=True):
    """One bar: its place in the drawing, and what it shows."""

    x: int
    y: float
    height: float
    number: int
    at: datetime


class Trend(msgspec.Struct, frozen=True):
    """The bars of a chart, the oldest first."""

    bars: list[TrendBar]
    total: int
    most: int
    span: str

    @property
    def width(self) -> int:
        return len(self.bars) * WIDTH


def build_trend(hours: Iterable[ErrorHour], now: datetime, span: str) -> Trend:
    """The failures of the last hours, in bars."""
    number, size = SPANS[span]
    end = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    start = end - timedelta(hours=number * size)
    counts = [0] * number
    for one in hours:
        place = (one.hour - start) // timedelta(hours=size)
        if 0 <= place < number:
            counts[place] += one.failures
    most = max(counts)
    return Trend(
        [_draw(place, count, most, start, size) for place, count in enumerate(counts)],
        sum(counts),
        most,
        span,
    )


def _draw(place: int, count: int, most: int, start: datetime, size: int) -> TrendBar:
    # a single failure beside a thousand is still seen
    height = max(2.0, round(HEIGHT * count / most, 1)) if count else 0.0
    return TrendBar(place * WIDTH, HEIGHT - height, height, count, start + timedelta(hours=place * size))
