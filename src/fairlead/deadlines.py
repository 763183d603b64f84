"""The time that attempts and statements have, without a timer for each: thousands begin a second, and almost none runs
out of it.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial


class Deadlines:
    """Calls back whoever is still waiting when its time is over.

    All that were given the same time stand in one line, and the line's first is the next to be over: so joining and
    leaving is a dictionary's work, and each line has one timer. All methods belong to the loop's thread.
    """

    def __init__(self) -> None:
        self._lines: dict[float, dict[Hashable, tuple[float, Callable[[], None]]]] = {}

    def add(self, who: Hashable, seconds: float, over: Callable[[], None]) -> None:
        """Call `over` in so many seconds unless `who` has left by then."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(seconds)
        if line is None:
            line = self._lines[seconds] = {}
            loop.call_later(seconds, partial(self._look, seconds, loop))
        line[who] = (loop.time() + seconds, over)

    def leave(self, who: Hashable, seconds: float) -> None:
        """It has ended in time."""
        line = self._lines.get(seconds)
        if line is not None:
            line.pop(who, None)

    def _look(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        line = self._lines[seconds]
        now = loop.time()
        late = []
        for who, (end, over) in line.items():
            if end > now:
                break
            late.append((who, over))
        for who, _ in late:
            del line[who]
        if line:
            loop.call_at(next(iter(line.values()))[0], partial(self._look, seconds, loop))
        else:
            del self._lines[seconds]
        for _, over in late:
            over()
