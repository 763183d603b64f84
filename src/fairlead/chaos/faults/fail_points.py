"""Named points of a worker's life at which its process kills itself, or blocks its event loop, without a hook in the worker.

`FAIRLEAD_CHAOS_FAIL_POINT=after_claim:0.2` kills the process after a claim that took jobs, with a probability of 0.2.
`FAIRLEAD_CHAOS_FAIL_POINT=block_loop:0.2` lets a job function block the loop once, for up to two leases.
"""

import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, NamedTuple

from fairlead.chaos.history import FaultRecord, HistoryWriter, now
from fairlead.errors import SettingInvalid
from fairlead.runtime.http_worker_source import HttpWorkerSource
from fairlead.runtime.store_source import StoreSource
from fairlead.settings import load

VARIABLE = "FAIRLEAD_CHAOS_FAIL_POINT"
POINTS = (
    "before_claim",
    "after_claim",
    "before_run",
    "after_run",
    "before_heartbeat",
    "after_heartbeat",
    "before_finish",
    "after_finish",
)
BLOCK = "block_loop"
# How long the loop is blocked, in leases.
BLOCKED_LEASES = (0.5, 2.0)
WRAPPED = ("claim", "heartbeat", "finish")


class FailPoint(NamedTuple):
    """A point, and the probability with which a process that reaches it dies."""

    name: str
    probability: float


def read_fail_point() -> FailPoint | None:
    """The fail point of this process; None if it has none."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    name, _, share = text.partition(":")
    try:
        probability = float(share or "1")
    except ValueError:
        probability = -1
    if name not in (*POINTS, BLOCK) or not 0 <= probability <= 1:
        raise SettingInvalid(
            f"{VARIABLE}={text} is no fail point. Use one of {', '.join((*POINTS, BLOCK))} and a probability, as after_claim:0.2."
        )
    return FailPoint(name, probability)


def reach_fail_point(name: str) -> None:
    """Kill this process if it must die at this point."""
    point = read_fail_point()
    if point is None or point.name != name or random.random() >= point.probability:  # noqa: S311
        return
    pid = os.getpid()
    HistoryWriter.of_process("fail-point").write(
        FaultRecord(now(), now(), f"kill_{name}", f"pid {pid}", [pid], note=f"at the fail point {name}")
    )
    os.kill(pid, signal.SIGKILL)


def block_loop() -> None:
    """Block the event loop of this process, if it must; it does so once."""
    point = read_fail_point()
    if point is None or point.name != BLOCK or random.random() >= point.probability:  # noqa: S311
        return
    del os.environ[VARIABLE]
    seconds = load().lease_seconds * random.uniform(*BLOCKED_LEASES)  # noqa: S311
    pid = os.getpid()
    # in advance: a process that is killed meanwhile would leave no record
    HistoryWriter.of_process("fail-point").write(
        FaultRecord(now(), now() + seconds, BLOCK, f"pid {pid}", [pid], note=f"blocked for {seconds:.1f} s")
    )
    time.sleep(seconds)


def install_fail_point() -> None:
    """Let the claims, heartbeats and finishes of this process reach its fail point, if it has one.

    The points before and after `run` are reached by the job functions themselves.
    """
    if read_fail_point() is None:
        return
    for source in (StoreSource, HttpWorkerSource):
        for name in WRAPPED:
            setattr(source, name, _wrap(name, getattr(source, name)))


def _wrap(name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(call)
    async def call_between_points(*args: Any, **kwargs: Any) -> Any:
        reach_fail_point(f"before_{name}")
        result = await call(*args, **kwargs)
        if result:  # a claim that found nothing, and a heartbeat without leases, are not what this is about
            reach_fail_point(f"after_{name}")
        return result

    return call_between_points
