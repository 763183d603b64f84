"""Long work on the event loop lets others run after each slice."""

import asyncio

import pytest

from fairlead.turns import loop_pauses
from fairlead.turns.loop_pauses import SLICE_SECONDS, LoopPauses


async def test_others_run_after_each_slice_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    passes = 0

    async def sleep(seconds: float) -> None:
        nonlocal passes
        assert seconds == 0
        passes += 1

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

    monkeypatch.setattr(loop_pauses, "time", Clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    work = LoopPauses()
    for _ in range(10):
        now += SLICE_SECONDS * 0.6
        await work.pause_if_due()

    assert passes == 5
