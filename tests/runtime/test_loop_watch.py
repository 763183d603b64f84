"""A handler that blocks the loop is named in the log while it does."""

import asyncio
import threading
from typing import Any
from uuid import UUID

import pytest

from fairlead import Fairlead, Settings
from fairlead.runtime import loop_watch
from tests.waiting import SECONDS
from tests.working import working


class Told:
    """A log that lets a blocked handler go on when it was told of it.

    On a busy machine it may also be told of a loop that was late without any handler.
    """

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.heard = threading.Event()

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})
        if fields.get("definition_key") == "blocks":
            self.heard.set()

    def names(self, job_id: UUID) -> list[str]:
        """What was said of a job."""
        return [line["event"] for line in self.lines if line.get("job_id") == str(job_id)]


async def test_the_job_whose_handler_blocks_the_loop_is_named_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    monkeypatch.setattr(loop_watch, "log", told)
    monkeypatch.setattr(loop_watch, "BLOCKED_SECONDS", 0.1)
    monkeypatch.setattr(loop_watch, "LOGGED_SECONDS", 0.1)
    fl = Fairlead(settings=settings, actor="tester")

    @fl.job
    async def blocks() -> bool:
        return told.heard.wait(SECONDS)

    @fl.job
    async def turns() -> None:
        await asyncio.sleep(0.4)

    async with fl, working(fl):
        quiet = await turns.enqueue(tenant="acme")
        await quiet.result(timeout=SECONDS)
        assert told.names(quiet.id) == []
        job = await blocks.enqueue(tenant="acme")
        assert await job.result(timeout=SECONDS) is True

    assert told.names(job.id) == ["loop_blocked"]
