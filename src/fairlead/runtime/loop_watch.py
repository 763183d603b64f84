"""Detects a blocked event loop from another thread, since a blocked loop cannot detect itself."""

import asyncio
from contextlib import suppress

import structlog

from fairlead.handlers import function
from fairlead.handlers.context import log_fields
from fairlead.runtime.service import wait_any

log = structlog.get_logger(__name__)

# A loop that does not turn for this long is blocked: its worker starts nothing.
BLOCKED_SECONDS = 0.5
# A loop that is blocked for this long is logged.
LOGGED_SECONDS = 1.0
LOOK_SECONDS = 0.5


async def watch(loop: asyncio.AbstractEventLoop, is_blocked: asyncio.Event) -> None:
    """Set `is_blocked` while the loop is blocked, and log with the handler that blocks it; until cancelled."""
    here = asyncio.get_running_loop()
    while True:
        turned = asyncio.Event()
        loop.call_soon_threadsafe(_signal_turned, here, turned)
        await wait_any(turned, seconds=BLOCKED_SECONDS)
        if not turned.is_set():
            is_blocked.set()
            await wait_any(turned, seconds=LOGGED_SECONDS - BLOCKED_SECONDS)
            if not turned.is_set():
                _log_blocked(loop)
            await turned.wait()
            is_blocked.clear()
        await asyncio.sleep(LOOK_SECONDS)


def _signal_turned(there: asyncio.AbstractEventLoop, turned: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the watching loop is closed
        there.call_soon_threadsafe(turned.set)


def _log_blocked(loop: asyncio.AbstractEventLoop) -> None:
    ctx = function.find_context(asyncio.current_task(loop))
    whose = {} if ctx is None else log_fields(ctx)
    log.warning(
        "loop_blocked",
        seconds=LOGGED_SECONDS,
        **whose,
        advice="put blocking code into a plain def, or use isolate=True",
    )
