"""The loop of the synchronous Fairlead, in a separate thread; `fairlead.sync` is generated on top of it.

With `tx=` everything happens in the calling thread: the statement uses the caller's connection,
and Fairlead needs no connection of its own.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

from fairlead.db.joined import run_without_loop
from fairlead.errors import AlreadyOpen, NotOpen, WrongLoop
from fairlead.library.app import Fairlead

LOOK_SECONDS = 0.1
WOULD_WAIT_FOR_ITSELF = (
    "An `async def` on the loop of a synchronous Fairlead would wait for itself: "
    "make it a `def`, which runs in a thread, or await the methods of `fl.inner`."
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncClient:
    """Opens and closes a Fairlead on its own loop, and waits there for its coroutines."""

    def __init__(self, inner: Fairlead) -> None:
        self.inner = inner
        self._own: LoopThread | None = None

    def open(self) -> None:
        """Connect, and start the loop's thread; does nothing if a worker has opened it.

        AlreadyOpen if it is open; it can be opened again after close.
        """
        if self._own is not None:
            raise AlreadyOpen("This Fairlead is open already. Use it as it is, or close it first.")
        if self.inner.is_open:
            return
        self._own = LoopThread("fairlead")
        try:
            self.wait(self.inner.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect and end the thread."""
        if self._own is None:
            return
        self.wait(self.inner.close())
        self._own.close()
        self._own = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def work(
        self,
        stop: threading.Event,
        abandon: threading.Event | None = None,
        *,
        concurrency: int = 100,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Run jobs of these functions and commands until `stop` is set; then drain, until `abandon` is set."""
        self.wait(self._work(stop, abandon, concurrency, labels))

    async def _work(
        self,
        stop: threading.Event,
        abandon: threading.Event | None,
        concurrency: int,
        labels: Mapping[str, str] | None,
    ) -> None:
        events = {signal: asyncio.Event() for signal in (stop, abandon) if signal is not None}
        watchers = [asyncio.create_task(_mirror_event(signal, event)) for signal, event in events.items()]
        try:
            abandoned = None if abandon is None else events[abandon]
            await self.inner.work(events[stop], abandoned, concurrency=concurrency, labels=labels)
        finally:
            for watcher in watchers:
                watcher.cancel()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of `inner` on its loop and return its result."""
        try:
            loop = self._loop()
        except BaseException:
            work.close()
            raise
        return run_on_loop(loop, work)

    def _loop(self) -> asyncio.AbstractEventLoop:
        # in a worker, `inner` is open on the worker's loop
        inner = self.inner.database.loop if self.inner.is_open else None
        loop = inner if self._own is None else self._own.loop
        if loop is None:
            raise NotOpen("This Fairlead is not open. Use `with fl:`, or `fl.open()` first.")
        if loop is _running_loop():
            raise WrongLoop(WOULD_WAIT_FOR_ITSELF)
        return loop


InnerT = TypeVar("InnerT")


class Handle(Generic[InnerT]):
    """A job, run, lease or function of the asynchronous library, with the synchronous Fairlead that waits for it."""

    __slots__ = ("_fl", "inner")

    def __init__(self, fl: SyncClient, inner: InnerT) -> None:
        self._fl = fl
        self.inner = inner

    def __repr__(self) -> str:
        return repr(self.inner)


def unwrap(function: Callable[P, R]) -> Callable[P, R]:
    """The asynchronous JobFunction of a synchronous one; any other function is returned as it is."""
    given: Any = function
    return cast("Callable[P, R]", given.inner if isinstance(given, Handle) else given)


def wait_or_join(fl: SyncClient, work: Coroutine[Any, Any, T], tx: Any) -> T:
    """Run a coroutine that takes `tx=`: without one on the loop, with one in this thread."""
    if tx is None:
        return fl.wait(work)
    return run_without_loop(work, tx)


async def _mirror_event(told: threading.Event, event: asyncio.Event) -> None:
    """Set the asyncio event when a thread sets the threading event."""
    while not told.is_set():  # noqa: ASYNC110 - a thread that waits for it could not be cancelled
        await asyncio.sleep(LOOK_SECONDS)
    event.set()


def _running_loop() -> asyncio.AbstractEventLoop | None:
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
