"""Finds and kills a process with all its descendants."""

import contextlib
import ctypes
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PASSES = 3


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be found (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal a process group, if it still exists. The leader must not have been reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_tree(leader: int) -> None:
    """Kill a process, its group, and its descendants in other groups. It must not have been reaped."""
    # descendants first: without the leader they could not be found. Repeated for new ones.
    for _ in range(_PASSES):
        found = descendants(leader)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            break
    signal_group(leader, signal.SIGKILL)


def descendants(ancestor: int) -> set[int]:
    """The living descendants of a process, according to /proc."""
    children = defaultdict(list)
    for parent, pid in _list_processes():
        children[parent].append(pid)
    found: set[int] = set()
    below = [ancestor]
    while below:
        new = [pid for pid in children[below.pop()] if pid not in found]
        found.update(new)
        below += new
    return found


def _list_processes() -> list[tuple[int, int]]:
    pairs = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # the name is in brackets and may contain any character
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                pairs.append((int(parent), int(folder.name)))
    return pairs
