"""Jobs that a worker runs: on its loop, in a thread, in a process of their own; tried again, or put off.

Have a worker run them with: fairlead worker worker_jobs:fl --concurrency 20
(in this folder; examples/run_worker.py does that for a moment)
"""

import asyncio
import os
import time

from fairlead import Backoff, Context, Fairlead, Fatal, Snooze

fl = Fairlead(actor="worker-jobs")


@fl.job(key="example.hello", timeout=30)
async def hello(ctx: Context, name: str) -> str:
    """On the event loop: for work that waits for others."""
    await asyncio.sleep(0.01)
    return f"hello {name}, from attempt {ctx.attempt_no}"


@fl.job(key="example.thread")
def in_a_thread() -> bool:
    """In a thread: for libraries that block."""
    time.sleep(0.01)
    return True


@fl.job(key="example.isolated", isolate=True, timeout=60)
def in_a_process(worker_pid: int = 0) -> bool:
    """In a process of its own: for what may hang or crash. A timeout or a cancel kills it."""
    return os.getpid() != worker_pid


@fl.job(key="example.flaky", max_attempts=3, backoff=Backoff(base_seconds=0.1, jitter=0))
async def flaky(ctx: Context) -> str:
    """Fails twice, and is tried again each time."""
    if ctx.attempt_no < 3:
        raise ConnectionError("not yet")
    return f"worked at attempt {ctx.attempt_no}"


@fl.job(key="example.hopeless")
async def hopeless() -> None:
    """Fails in a way that no second attempt would mend."""
    raise Fatal("there is no such customer")


@fl.job(key="example.patient", max_attempts=1)
async def patient(ctx: Context) -> str:
    """Comes back a little later; that is no failure, and costs no attempt."""
    if ctx.attempt_no == 1:
        raise Snooze(0.1)
    return "waited"
