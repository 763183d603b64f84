"""The functions of the HTTP worker conformance suite, in Python: see test_http_worker.py.

FAIRLEAD_TOKEN=… fairlead worker tests.conformance.python_worker:fl --server http://127.0.0.1:8000
"""

import asyncio
import time
from pathlib import Path
from typing import Any

from fairlead import Context, Fairlead, Fatal, Snooze

fl = Fairlead(name="conformance")
LOOK_SECONDS = 0.02


@fl.job(key="conformance.echo")
async def echo(ctx: Context, **payload: Any) -> Any:
    return ctx.payload


@fl.job(key="conformance.fail")
async def fail(message: str) -> None:
    raise RuntimeError(message)


@fl.job(key="conformance.fatal")
async def fatal(message: str) -> None:
    raise Fatal(message)


@fl.job(key="conformance.report")
async def report(ctx: Context, path: str | None = None) -> dict[str, bool]:
    await ctx.progress(10)
    ctx.log.info("one")
    await ctx.progress(50, "half")
    ctx.log.info("two")
    while path is not None and not _is_there(path):
        await asyncio.sleep(LOOK_SECONDS)
    return {"done": True}


@fl.job(key="conformance.hold")
async def hold(path: str) -> None:
    _make(f"{path}.began")
    try:
        while not _is_there(path):
            await asyncio.sleep(LOOK_SECONDS)
    except asyncio.CancelledError:
        _make(f"{path}.stopped")
        raise


@fl.job(key="conformance.sleep")
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@fl.job(key="conformance.snooze")
async def snooze(path: str, seconds: float) -> dict[str, bool] | Snooze:
    if _is_there(path):
        return {"again": True}
    _make(path)
    return Snooze(seconds)


def _make(path: str) -> None:
    Path(path).touch()


def _is_there(path: str) -> bool:
    return Path(path).exists()
