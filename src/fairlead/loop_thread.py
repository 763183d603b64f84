"""An event loop in its own thread, for synchronous code."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Self, TypeVar

T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The running loop of this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def run_on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on another thread's loop and return its result."""
    answer = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return answer.result()
    except BaseException:
        answer.cancel()  # the waiting thread was interrupted
        raise


class LoopThread:
    """A loop that runs until it is closed."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @contextmanager
    def enter_on_loop(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and exit an async context manager on this loop. It does not see exceptions of the block."""
        given = run_on_loop(self.loop, manager.__aenter__())
        try:
            yield given
        finally:
            run_on_loop(self.loop, manager.__aexit__(None, None, None))

    def close(self) -> None:
        """End the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
