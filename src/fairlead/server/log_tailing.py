"""Tailing a log over HTTP: responses that wait for new output."""

import time
from asyncio import sleep
from collections.abc import Awaitable, Callable, Sequence

from fastapi import Request
from msgspec.structs import replace

from fairlead.actions.logs import LogPage
from fairlead.model.ansi import AnsiStripper
from fairlead.model.log import Chunk
from fairlead.server.auth import Readmission

LONGEST_WAIT_SECONDS = 30
# Workers write a few times a second; the pause grows while there is no output.
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 1.0


async def wait_for_log(
    request: Request, look: Callable[[], Awaitable[LogPage]], *, seconds: float
) -> LogPage:
    """Call `look` until it finds output or a complete log, for at most `seconds`."""
    until, pause = time.monotonic() + seconds, FIRST_PAUSE_SECONDS
    readmission = Readmission(request)
    page, waited = await look(), False
    while not page.items and not page.complete and (left := until - time.monotonic()) > 0:
        await sleep(min(pause, left))
        pause, waited = min(pause * 1.2, LONGEST_PAUSE_SECONDS), True
        if await request.is_disconnected():
            break
        await readmission.check()
        page = await look()
    if waited:
        await readmission.check_now()
    return page


def remove_ansi(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Remove escape sequences, also those that span two chunks."""
    plain: dict[tuple[int, str], AnsiStripper] = {}
    return [
        replace(one, text=plain.setdefault((one.attempt_no, one.stream), AnsiStripper()).text(one.text))
        for one in chunks
    ]
