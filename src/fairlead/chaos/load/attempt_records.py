"""What every job function of a run has: the options of its definition, and the records of its attempts."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from fairlead.chaos import scenario
from fairlead.chaos.faults.fail_points import reach_fail_point
from fairlead.chaos.history import EndRecord, HistoryWriter, StartRecord, now
from fairlead.handlers.context import Context, Fatal, Snooze, Stopped, Suspend
from fairlead.model.outcome import Backoff

SOON = Backoff(base_seconds=0.1, factor=2, cap_seconds=2, jitter=0.5)


def list_options(key: str) -> dict[str, Any]:
    """The options of a definition, from its plan."""
    [plan] = [one for one in scenario.DEFINITIONS if one.key == key]
    return {
        "key": key,
        "timeout": int(plan.timeout_seconds),
        "max_attempts": plan.max_attempts,
        "backoff": SOON,
        **plan.limits(),
    }


@cache
def open_history(_pid: int) -> HistoryWriter:
    """The file of this process: a forked process needs another."""
    return HistoryWriter.of_process("handlers")


@contextmanager
def record_attempt(ctx: Context, *, in_worker: bool = True) -> Iterator[None]:
    """Record the start of an attempt, and how its function is about to end.

    Fail points are for workers: the death of an isolated function's process is its own failure.
    """
    history = open_history(os.getpid())
    history.write(StartRecord(now(), ctx.job_id, ctx.attempt_no, ctx.definition_key, os.getpid()))
    outcome = "failed"
    try:
        if in_worker:
            reach_fail_point("before_run")
        yield
        if in_worker:
            reach_fail_point("after_run")
        outcome = "succeeded"
    except Suspend:
        outcome = "suspended"
        raise
    except Snooze:
        outcome = "snoozed"
        raise
    except Fatal:
        outcome = "fatal"
        raise
    except (asyncio.CancelledError, Stopped):
        outcome = "canceled"
        raise
    finally:
        history.write(EndRecord(now(), ctx.job_id, ctx.attempt_no, outcome))
