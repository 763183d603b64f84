"""The CPU seconds of tests, with all processes that they start, on a scale that does not depend on the machine."""

import math
import os
import time
from collections import deque
from contextlib import suppress
from functools import cache
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
# What the calibration takes on the machine that the budget was measured on.
REFERENCE_SECONDS = 0.070
# How often the speed is measured, and of how many measurements it is the mean.
REPEAT_SECONDS = 15.0
KEPT = 5


class Meter:
    """The CPU time of this process and of its descendants, also of those that have ended and were waited for."""

    def __init__(self) -> None:
        self._strangers: set[str] = set()
        self._family = {str(os.getpid())}

    def read(self) -> float:
        """CPU seconds so far. A process that this finds once is not looked up again unless it is a descendant."""
        if not PROC.exists():  # not Linux: only what this process has waited for
            return sum(os.times()[:4])
        pids = [name for name in os.listdir(PROC) if name.isdigit() and name not in self._strangers]  # noqa: PTH208 - a tenth of the time
        stats = {pid: stat for pid in pids if (stat := _read_stat(pid)) is not None}
        self._family.intersection_update(stats)
        for pid in sorted(stats.keys() - self._family, key=int):
            (self._family if stats[pid][0] in self._family else self._strangers).add(pid)
        return sum(stats[pid][1] for pid in self._family)


def _read_stat(pid: str) -> tuple[str, float] | None:
    """The parent of a process, and its CPU seconds with those of its children that it waited for."""
    with suppress(OSError):
        fields = (PROC / pid / "stat").read_bytes().rpartition(b") ")[2].split()
        return fields[1].decode(), sum(map(int, fields[11:15])) / TICKS
    return None


class Speed:
    """How fast this machine computes beside the one of the budget: 0.5 if it takes twice as long, and 1 at most.

    It is measured again and again, beside the tests: with all cores busy a machine is slower than before the run. A machine
    that computes twice as fast starts programs and writes files no faster: tests took nine tenths of the time there.
    """

    def __init__(self) -> None:
        self._calibrations = deque[float](maxlen=KEPT)
        self._measured_at = -math.inf

    def measure(self) -> float:
        """The speed in the last minute or so."""
        now = time.monotonic()
        if now - self._measured_at > REPEAT_SECONDS:
            self._calibrations.append(_calibrate())
            self._measured_at = now
        return min(1.0, REFERENCE_SECONDS * len(self._calibrations) / sum(self._calibrations))


@cache
def measure_slowness() -> float:
    """How much longer a process waits here than on that machine with a core of its own: 1 or more."""
    begun = time.monotonic()
    _calibrate()
    return max(1.0, (time.monotonic() - begun) / REFERENCE_SECONDS)


def _calibrate() -> float:
    """The CPU seconds of a fixed piece of work."""
    begun = time.process_time()
    texts: dict[int, str] = {}
    for number in range(300_000):
        texts[number & 1023] = str(number)
    return time.process_time() - begun
