"""A bounded pool of threads for blocking handlers. A thread that does not end keeps its slot."""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class ThreadSlot:
    """A call that waits for a thread, then occupies it until it returns."""

    __slots__ = ("context", "on_return", "on_start", "running", "stuck", "work")

    def __init__(
        self, work: Callable[[], Any], on_start: Callable[[], None], on_return: Callable[[Any], None]
    ) -> None:
        self.work = work
        self.on_start = on_start
        self.on_return = on_return
        # the caller's context variables, copied before the call waits for a thread
        self.context = contextvars.copy_context()
        self.running = False
        self.stuck = False


class Threads:
    """At most `max_threads` daemon threads, started as needed. All methods belong to the loop's thread.

    `stuck` counts threads whose attempt is over while they still run: a worker that has too many of
    them should drain and start again, since Python cannot end a thread.
    """

    def __init__(self, max_threads: int) -> None:
        if max_threads < 1:
            raise ValueError(f"A pool needs at least one thread, not {max_threads}.")
        self.max_threads = max_threads
        self.running = 0
        self.stuck = 0
        self._waiting: deque[ThreadSlot] = deque()
        self._work: queue.SimpleQueue[tuple[ThreadSlot, asyncio.AbstractEventLoop] | None] = (
            queue.SimpleQueue()
        )
        self._alive = 0

    @property
    def free(self) -> int:
        return self.max_threads - self.running

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(
        self, work: Callable[[], Any], *, on_start: Callable[[], None], on_return: Callable[[Any], None]
    ) -> ThreadSlot:
        """Run `work` (which must not raise) in a thread as soon as one is free; both callbacks run on the event loop."""
        slot = ThreadSlot(work, on_start, on_return)
        if self.free > 0:
            self._run(slot)
        else:
            self._waiting.append(slot)
        return slot

    def withdraw(self, slot: ThreadSlot) -> bool:
        """Remove a call that still waits; False if it has started."""
        if slot.running:
            return False
        with contextlib.suppress(ValueError):
            self._waiting.remove(slot)
        return True

    def forsake(self, slot: ThreadSlot) -> None:
        """Stop waiting for a call; its thread counts as stuck until it returns."""
        if slot.running and not slot.stuck:
            slot.stuck = True
            self.stuck += 1

    def close(self) -> None:
        """End each thread when it becomes idle; does not wait for busy threads."""
        for _ in range(self._alive):
            self._work.put(None)
        self._alive = 0

    def _run(self, slot: ThreadSlot) -> None:
        if self._alive < self.running + 1:
            self._grow()
        slot.running = True
        self.running += 1
        slot.on_start()
        self._work.put((slot, asyncio.get_running_loop()))

    def _grow(self) -> None:
        thread = threading.Thread(target=_serve, args=(self._work, self._handle_return), daemon=True)
        thread.name = f"fairlead-{self._alive + 1}"
        try:
            thread.start()
            self._alive += 1
        except RuntimeError:
            # the system refuses more threads: the existing ones will take the call
            if self._alive == 0:
                raise

    def _handle_return(self, slot: ThreadSlot, result: Any) -> None:
        self.running -= 1
        self.stuck -= slot.stuck
        slot.running = False
        while self._waiting and self.free > 0:
            self._run(self._waiting.popleft())
        slot.on_return(result)


def _serve(
    work: queue.SimpleQueue[tuple[ThreadSlot, asyncio.AbstractEventLoop] | None],
    returned: Callable[[ThreadSlot, Any], None],
) -> None:
    while (item := work.get()) is not None:
        slot, loop = item
        result = slot.context.run(slot.work)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(returned, slot, result)
        del item, slot, loop, result
