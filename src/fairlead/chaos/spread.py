"""How durations are spread."""

import math
from collections.abc import Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """How a set of durations is spread, in seconds."""

    number: int
    p50: float
    p95: float
    p99: float
    longest: float


def measure_spread(seconds: Sequence[float]) -> Spread:
    """The percentiles of some durations."""
    if not seconds:
        return Spread(0, 0.0, 0.0, 0.0, 0.0)
    ordered = sorted(seconds)

    def percentile(part: float) -> float:
        return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)]

    return Spread(len(ordered), percentile(0.5), percentile(0.95), percentile(0.99), ordered[-1])
