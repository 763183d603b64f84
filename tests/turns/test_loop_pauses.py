"""Long work on the event loop gives others as much time as it takes, or goes on in its turn."""

import asyncio

import pytest

from fairlead.turns import loop_pauses
from fairlead.turns.loop_pauses import LoopPauses
from fairlead.turns.owner import Owner, owner_of_task


@pytest.mark.parametrize(("owner", "pause"), [(None, 0.1), (Owner("tenant a"), 0)])
async def test_a_pause_is_as_long_as_the_slice_unless_turns_decide(
    owner: Owner | None, pause: float, monkeypatch: pytest.MonkeyPatch
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
    before = owner_of_task.set(owner)
    work = LoopPauses(0.05)
    now = 0.1
    assert work.is_due
    await work.pause()
    owner_of_task.reset(before)

    assert asked == [pause]
    assert not work.is_due
