"""Kills a process with all its descendants, and describes how a process ended."""

import contextlib
import os
import signal

from fairlead.handlers.supervisor import kill_descendants


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal a process group, if it still exists. The leader must not have been reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_tree(leader: int) -> None:
    """Kill a process, its group, and its descendants in other groups. It must not have been reaped."""
    # descendants first: without the leader they could not be found
    kill_descendants(leader)
    signal_group(leader, signal.SIGKILL)


def describe_exit(code: int | None, number: int | None) -> str:
    """How a process ended: with an exit code, or by a signal."""
    if code is not None:
        return f"exited with status {code}"
    try:
        return f"was killed by {signal.Signals(number or 0).name}"
    except ValueError:
        return f"was killed by signal {number}"
