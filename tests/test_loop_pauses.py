"""Long work on the event loop leaves half of its time to others, however many long works there are."""

import asyncio

import pytest

from fairlead import loop_pauses
from fairlead.loop_pauses import LoopPauses


async def test_long_works_together_leave_others_as_much_time_as_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    asked = list[float]()

    async def sleep(seconds: float) -> None:
        asked.append(round(seconds, 3))

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

    monkeypatch.setattr(loop_pauses, "time", Clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    for number in range(4):  # each begins when the one before it pauses
        work = LoopPauses(0.05)
        now = 0.1 * (number + 1)
        assert work.is_due
        await work.pause()

    # the slices take 0.4 s together, and the last work goes on after 0.8 s
    assert asked == [0.1, 0.2, 0.3, 0.4]
    monkeypatch.undo()
    await asyncio.sleep(0)
