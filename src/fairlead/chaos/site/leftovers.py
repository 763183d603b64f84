"""Processes that a run has left behind, found by the mark that all of its processes inherit."""

import contextlib
import os
import signal
from collections.abc import Collection
from pathlib import Path

from fairlead.chaos.site.access import RUN_VARIABLE
from fairlead.handlers.supervisor import find_descendants

PROC = Path("/proc")


def find_marked(run_id: str) -> dict[int, str]:
    """The processes that have the run's mark in their environment, and their command lines."""
    mark = f"{RUN_VARIABLE}={run_id}".encode()
    found = {}
    for folder in PROC.glob("[0-9]*"):
        # a process may end meanwhile, and another user's environment cannot be read
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                argv = (folder / "cmdline").read_bytes().split(b"\0")
                found[int(folder.name)] = b" ".join(argv).decode(errors="replace").strip()
    return found


def find_orphans(run_id: str, living: Collection[int]) -> dict[int, str]:
    """The marked processes that neither are `living` nor descend from them."""
    ours = set(living).union(*(find_descendants(pid) for pid in living))
    return {pid: argv for pid, argv in find_marked(run_id).items() if pid not in ours}


def kill_marked(run_id: str) -> None:
    """Kill every process of a run."""
    for pid in find_marked(run_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
