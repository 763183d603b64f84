"""A handler that blocks the loop is named in the log while it does."""

import asyncio
import threading
from typing import Any

import pytest

from fairlead import Fairlead, Settings
from fairlead.runtime import loop_watch


class Told:
    """A log that lets a blocked handler go on when it was told of it."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.heard = threading.Event()

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})
        self.heard.set()


async def test_the_job_whose_handler_blocks_the_loop_is_named_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    monkeypatch.setattr(loop_watch, "log", told)
    monkeypatch.setattr(loop_watch, "BLOCKED_SECONDS", 0.5)
    fl = Fairlead(settings=settings, actor="tester")

    @fl.job
    async def blocks() -> bool:
        return told.heard.wait(30)

    @fl.job
    async def turns() -> None:
        await asyncio.sleep(0.8)

    async with fl:
        stop = asyncio.Event()
        work = asyncio.create_task(fl.work(stop))
        quiet = await turns.enqueue(tenant="acme")
        await quiet.result(timeout=90)
        assert not told.lines
        job = await blocks.enqueue(tenant="acme")
        assert await job.result(timeout=90) is True
        stop.set()
        await work

    [line] = told.lines
    assert (line["event"], line["job_id"], line["definition_key"]) == ("loop_blocked", str(job.id), "blocks")
