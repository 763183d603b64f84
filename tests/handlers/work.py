"""Functions that a child process can find. It imports this module for each of them: so no more of Fairlead than they use."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from fairlead.errors import DefinitionUnknown
from fairlead.handlers.context import Context, Fatal, Snooze
from fairlead.model.secrets.redact import Secret


def write(path: str, text: object) -> None:
    """Whole or not at all, so that a reader never sees half of it."""
    Path(path + ".new").write_text(f"{text}\n")
    Path(path + ".new").rename(path)


def add(ctx: Context, a: int, b: int = 2) -> dict[str, Any]:
    return {"sum": a + b, "job": str(ctx.job_id), "attempt": ctx.attempt_no, "pid": os.getpid()}


async def add_later(ctx: Context, a: int, b: UUID) -> list[Any]:
    await asyncio.sleep(0)
    return [a, type(b).__name__, ctx.tenant]


def fails() -> None:
    raise LookupError("not here")


def fatal() -> None:
    raise Fatal("never again")


def snooze() -> Snooze:
    return Snooze(7)


def bad_output() -> object:
    return object()


def exits() -> None:
    os._exit(3)


def leaves() -> None:
    sys.exit(4)


def crashes() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def talks(ctx: Context) -> None:
    ctx.log.info("hello", name="world", odd=object)
    ctx.progress(40, "on the way")
    ctx.add_cost(3)
    ctx.add_cost(4)


async def enqueues(ctx: Context) -> list[Any]:
    job = await ctx.enqueue("child", payload={"n": 1}, priority=5, delay=timedelta(minutes=1))
    return [str(job.id), job.deduplicated]


def enqueues_in_vain(ctx: Context) -> str:
    try:
        ctx.enqueue("unknown")
    except DefinitionUnknown as error:
        return error.message
    return "no refusal"


def hangs(path: str) -> None:
    """Deaf to SIGTERM, with a grandchild of the same group and one that left it."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    same = subprocess.Popen([sys.executable, "-c", deaf])
    other = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
    write(path + ".same", same.pid)
    write(path + ".other", other.pid)
    write(path, os.getpid())
    threading.Event().wait()


async def waits(path: str) -> None:
    write(path, os.getpid())
    try:
        await asyncio.Event().wait()
    finally:
        write(path + ".cleaned", 1)


def succeeds_all_the_same(ctx: Context, path: str) -> str:
    write(path, os.getpid())
    while not ctx.is_canceled:
        threading.Event().wait(0.005)
    return "done"


def leaves_a_daemon(path: str) -> str:
    daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    write(path, daemon.pid)
    return "done"


class Nested:
    @staticmethod
    def work() -> str:
        return "nested"


def leaks(ctx: Context, to: str, token: Annotated[str, Secret()], pin: int = 0) -> None:
    """Says its secret in every way it can."""
    said = f"using {token}"
    ctx.log.info(said, token=token, to=to, pin=pin)
    ctx.progress(50, f"half way with {token}")
    raise ValueError(f"cannot log in with {token!r}")
