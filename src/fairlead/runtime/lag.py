"""Whether the loop that handlers run on turns: seen from another thread, since a loop that is blocked sees nothing."""

import asyncio
from contextlib import suppress

import structlog

from fairlead.handlers import function
from fairlead.handlers.context import log_fields

log = structlog.get_logger(__name__)

BLOCKED_SECONDS = 1.0


async def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Say in the log, once each time, that the loop does not turn, and whose handler keeps it; until cancelled."""
    here = asyncio.get_running_loop()
    while True:
        turned = asyncio.Event()
        loop.call_soon_threadsafe(_answer, here, turned)
        try:
            async with asyncio.timeout(BLOCKED_SECONDS):
                await turned.wait()
        except TimeoutError:
            _tell(loop)
            await turned.wait()
        await asyncio.sleep(BLOCKED_SECONDS / 2)


def _answer(there: asyncio.AbstractEventLoop, turned: asyncio.Event) -> None:
    with suppress(RuntimeError):  # nobody waits for it any more
        there.call_soon_threadsafe(turned.set)


def _tell(loop: asyncio.AbstractEventLoop) -> None:
    ctx = function.whose(asyncio.current_task(loop))
    whose = {} if ctx is None else log_fields(ctx)
    log.warning(
        "loop_blocked",
        seconds=BLOCKED_SECONDS,
        **whose,
        advice="what blocks belongs into a plain def, or isolate=True",
    )
