"""Timeouts of attempts and statements, without a timer for each: thousands start per second, and almost none times out."""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial


class Deadlines:
    """Calls `over` for each entry that has not left before its deadline.

    Entries with the same timeout form one queue, whose first entry expires next. So adding and removing is a dictionary
    operation, and each queue has one timer. Call all methods on the loop's thread.
    """

    def __init__(self) -> None:
        self._lines: dict[float, dict[Hashable, tuple[float, Callable[[], None]]]] = {}

    def add(self, who: Hashable, seconds: float, over: Callable[[], None]) -> None:
        """Call `over` after these seconds, unless `who` has left by then."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(seconds)
        if line is None:
            line = self._lines[seconds] = {}
            loop.call_later(seconds, partial(self._expire_due, seconds, loop))
        line[who] = (loop.time() + seconds, over)

    def leave(self, who: Hashable, seconds: float) -> None:
        """Remove an entry that ended in time."""
        line = self._lines.get(seconds)
        if line is not None:
            line.pop(who, None)

    def _expire_due(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
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
            loop.call_at(next(iter(line.values()))[0], partial(self._expire_due, seconds, loop))
        else:
            del self._lines[seconds]
        for _, over in late:
            over()
