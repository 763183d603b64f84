"""When a worker process must be replaced: after a number of jobs, or when it uses too much memory."""

import os
import resource
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import structlog

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2
MEGABYTE = 1_048_576
_STATM = Path("/proc/self/statm")


class RecycleReason(StrEnum):
    """Why a worker process is replaced."""

    MAX_JOBS = "max_jobs"
    MAX_RSS = "max_rss"


class RecycleLimits(NamedTuple):
    """After how many jobs a process is replaced, and from how many bytes of resident memory on."""

    max_jobs: int | None = None
    max_rss: int | None = None

    def __bool__(self) -> bool:
        return self.max_jobs is not None or self.max_rss is not None


def read_rss() -> int:
    """The resident memory of this process in bytes; where there is no /proc, the most that it has used."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


class Recycling:
    """Watches one process, which claims on until it is stopped.

    `on_serving` is called when it begins to claim, `on_due` once, with a reason, when it must be replaced.
    """

    def __init__(
        self,
        limits: RecycleLimits,
        *,
        on_serving: Callable[[], object],
        on_due: Callable[[RecycleReason, str], object],
        read_memory: Callable[[], int] = read_rss,
    ) -> None:
        self._limits = limits
        self._on_serving = on_serving
        self._is_serving = False
        self._on_due = on_due
        self._read_memory = read_memory
        self._ended = 0
        self.reason: RecycleReason | None = None

    def look(self, ended: int, *, serving: bool) -> float:
        """Compare with the limits, after this many jobs have ended; seconds until the next look."""
        self._ended = ended
        if serving and not self._is_serving:
            self._is_serving = True
            self._on_serving()
        if self.reason is None and (found := self._find_reason()) is not None:
            self.reason, text = found
            log.info("worker_recycling", reason=str(self.reason), jobs=ended)
            self._on_due(self.reason, text)
        return LOOK_SECONDS

    def _find_reason(self) -> tuple[RecycleReason, str] | None:
        most_jobs, most_bytes = self._limits
        if most_jobs is not None and self._ended >= most_jobs:
            return RecycleReason.MAX_JOBS, f"{self._ended:,} jobs have ended; --max-jobs is {most_jobs:,}"
        if most_bytes is not None and (used := self._read_memory()) > most_bytes:
            return (
                RecycleReason.MAX_RSS,
                f"it uses {used // MEGABYTE:,} MB; --max-rss is {most_bytes // MEGABYTE:,} MB",
            )
        return None

    def describe(self) -> dict[str, Any]:
        """What the list of workers shows: the limits, and how near they are."""
        return {
            "recycling": {
                "jobs": self._ended,
                "max_jobs": self._limits.max_jobs,
                "rss": self._read_memory(),
                "max_rss": self._limits.max_rss,
                "reason": self.reason,
            }
        }
