"""The application's code around each attempt, each batch and each enqueue.

Around attempts and batches it is a context manager, since only that works around `async def` and around `def`.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import Any, TypeVar

from fairlead.errors import SignatureInvalid
from fairlead.model.job import EnqueueResult, NewJob

Manager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
# What the decorators accept: a function with one `yield`, or one that returns a context manager.
Around = Iterator[Any] | AsyncIterator[Any] | Manager

StoreJobs = Callable[[Sequence[NewJob]], Awaitable[list[EnqueueResult]]]
EnqueueMiddleware = Callable[[Sequence[NewJob], StoreJobs], Awaitable[list[EnqueueResult]]]

S = TypeVar("S")


class Middleware:
    """The middleware of an application, in the order of registration: the first is the outermost."""

    def __init__(self) -> None:
        self.attempts: tuple[Callable[[Any], Manager], ...] = ()
        self.batches: tuple[Callable[[Any], Manager], ...] = ()
        self.enqueues: tuple[EnqueueMiddleware, ...] = ()

    def add_for_attempts(self, function: Callable[[Any], Around]) -> None:
        self.attempts += (build_manager(function),)

    def add_for_batches(self, function: Callable[[Any], Around]) -> None:
        self.batches += (build_manager(function),)

    def add_for_enqueues(self, function: EnqueueMiddleware) -> None:
        """Raises SignatureInvalid if the function is not an `async def`."""
        if not inspect.iscoroutinefunction(function):
            raise SignatureInvalid(
                f"{_name_of(function)} cannot be middleware of enqueues: define it with `async def`, with two parameters: "
                "the requests, and the function that stores them."
            )
        self.enqueues += (function,)

    async def enqueue(self, requests: Sequence[NewJob], store: StoreJobs) -> list[EnqueueResult]:
        """Enqueue requests through the middleware; `store` stores them."""
        for one in reversed(self.enqueues):
            store = _around_store(one, store)
        results = await store(requests)
        if len(results) != len(requests):
            raise RuntimeError(
                f"The middleware of enqueues returned {len(results)} results for {len(requests)} requests."
            )
        return results


def _around_store(middleware: EnqueueMiddleware, store: StoreJobs) -> StoreJobs:
    def call(requests: Sequence[NewJob]) -> Awaitable[list[EnqueueResult]]:
        return middleware(requests, store)

    return call


def build_manager(function: Any) -> Callable[[Any], Manager]:
    """A function that returns a context manager, from one with a `yield`; SignatureInvalid if it is a coroutine."""
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextmanager(function)
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise SignatureInvalid(
            f"{_name_of(function)} cannot be middleware: write a function with one `yield`, where the handler runs, "
            "or one that returns a context manager."
        )
    made: Callable[[Any], Manager] = function
    return made


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


# Running


async def run_within(
    around: Sequence[Callable[[S], Manager]], subject: S, call: Callable[[], Awaitable[Any]]
) -> Any:
    """Await the call within the middleware. If one of them suppresses an exception, the result is None."""
    result = None
    async with AsyncExitStack() as stack:
        for one in around:
            manager = one(subject)
            if isinstance(manager, AbstractAsyncContextManager):
                await stack.enter_async_context(manager)
            else:
                stack.enter_context(manager)
        result = await call()
    return result  # noqa: RET504 - None if a context manager suppressed an exception


def call_within(
    around: Sequence[Callable[[S], Manager]],
    subject: S,
    call: Callable[[], Any],
    loop: asyncio.AbstractEventLoop | None,
) -> Any:
    """`run_within` in a thread: plain context managers run in this thread, asynchronous ones on the loop."""
    result = None
    with ExitStack() as stack:
        for one in around:
            manager = one(subject)
            if isinstance(manager, AbstractAsyncContextManager):
                stack.enter_context(_OnLoop(manager, loop))
            else:
                stack.enter_context(manager)
        result = call()
    return result  # noqa: RET504 - None if a context manager suppressed an exception


class _OnLoop(AbstractContextManager[None]):
    """Enters and exits an asynchronous context manager in one task on the loop, from another thread."""

    def __init__(
        self, manager: AbstractAsyncContextManager[Any], loop: asyncio.AbstractEventLoop | None
    ) -> None:
        if loop is None:
            raise RuntimeError("Asynchronous middleware needs the event loop of a worker.")
        self._manager = manager
        self._loop = loop
        self._entered: Future[None] = Future()
        self._leave: asyncio.Future[BaseException | None] = loop.create_future()

    def __enter__(self) -> None:
        self._ended = asyncio.run_coroutine_threadsafe(self._hold(), self._loop)
        self._ended.add_done_callback(self._stop_waiting)
        self._entered.result()
        if self._ended.done() and (error := self._ended.result()) is not None:
            raise error

    def _stop_waiting(self, _: object) -> None:
        if not self._entered.done():
            self._entered.set_result(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._loop.call_soon_threadsafe(self._leave_with, error)
        raised = self._ended.result()
        if raised is None:
            return error is not None
        if raised is error:
            return False
        raise raised

    def _leave_with(self, error: BaseException | None) -> None:
        if not self._leave.done():
            self._leave.set_result(error)

    async def _hold(self) -> BaseException | None:
        """Hold the context manager until `_leave` is set. Exceptions are returned: a SystemExit in a task ends the worker."""
        try:
            async with self._manager:
                self._entered.set_result(None)
                if (error := await self._leave) is not None:
                    raise error  # noqa: TRY301 - into the context manager
        except BaseException as error:  # noqa: BLE001 - it is raised in the handler's thread
            return error
        return None
