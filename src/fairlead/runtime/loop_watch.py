"""Detects a blocked event loop from another thread, since a blocked loop cannot detect itself."""

import asyncio
from contextlib import suppress

import structlog

from fairlead.handlers import function
from fairlead.handlers.context import log_fields

log = structlog.get_logger(__name__)

BLOCKED_SECONDS = 1.0


async def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Log each time that the loop is blocked, with the handler that blocks it; until cancelled."""
    here = asyncio.get_running_loop()
    while True:
        turned = asyncio.Event()
        loop.call_soon_threadsafe(_signal_turned, here, turned)
        try:
            async with asyncio.timeout(BLOCKED_SECONDS):
                await turned.wait()
        except TimeoutError:
            _log_blocked(loop)
            await turned.wait()
        await asyncio.sleep(BLOCKED_SECONDS / 2)


def _signal_turned(there: asyncio.AbstractEventLoop, turned: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the watching loop is closed
        there.call_soon_threadsafe(turned.set)


def _log_blocked(loop: asyncio.AbstractEventLoop) -> None:
    ctx = function.find_context(asyncio.current_task(loop))
    whose = {} if ctx is None else log_fields(ctx)
    log.warning(
        "loop_blocked",
        seconds=BLOCKED_SECONDS,
        **whose,
        advice="put blocking code into a plain def, or use isolate=True",
    )
