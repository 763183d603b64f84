"""Runs a function: on the event loop, in a thread, or in its own process."""

import asyncio
from collections.abc import Callable
from typing import Any

from fairlead.deadlines import Deadlines
from fairlead.handlers.attempt import (
    GRACE_SECONDS,
    MAX_OUTPUT_BYTES,
    AttemptContext,
    Bounds,
    HandlerAttempt,
    failure_outcome,
)
from fairlead.handlers.context import Context
from fairlead.handlers.isolated import IsolatedAttempt
from fairlead.handlers.registry import Handler
from fairlead.handlers.threads import Threads
from fairlead.model.outcome import Outcome


def start_attempt(
    handler: Handler,
    ctx: AttemptContext,
    then: Callable[[Outcome], None],
    bounds: Bounds,
    threads: Threads,
    *,
    may_begin: Callable[[], bool] | None = None,
) -> HandlerAttempt[Handler]:
    """Start an attempt; it calls `then` once with its outcome.

    `may_begin` is asked when an `async def` function begins on the event loop; if not, the attempt ends without it.
    """
    attempt: HandlerAttempt[Handler]
    if handler.isolate:
        attempt = IsolatedAttempt(handler, ctx, bounds, then)
    elif handler.is_async:
        attempt = LoopAttempt(handler, ctx, bounds, then)
        attempt.may_begin = may_begin
    else:
        attempt = ThreadAttempt(handler, ctx, bounds, then, threads)
    attempt.start()
    return attempt


async def run_attempt(
    handler: Handler,
    ctx: AttemptContext,
    *,
    timeout: float | None,  # noqa: ASYNC109 - the job's time, not the caller's
    threads: Threads,
    grace: float = GRACE_SECONDS,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> Outcome:
    """Run one attempt to its end. If cancelled, it stops the attempt and ignores its outcome."""
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def then(ended: Outcome) -> None:
        if not outcome.cancelled():
            outcome.set_result(ended)

    bounds = Bounds(timeout, Deadlines(), grace, max_output_bytes)
    attempt = start_attempt(handler, ctx, then, bounds, threads)
    try:
        return await outcome
    except asyncio.CancelledError:
        attempt.forsake()
        raise


class LoopAttempt(HandlerAttempt[Handler]):
    """An `async def` function, as a task: cancelled to stop it, abandoned if it does not stop."""

    _task: asyncio.Task[None]
    _begun = False
    # asked when the function begins
    may_begin: Callable[[], bool] | None = None

    def launch(self) -> None:
        self.running()
        # a direct Task costs a quarter of loop.create_task
        self._task = asyncio.Task(self._call(), loop=self.loop)
        running_tasks[self._task] = self.ctx

    def interrupt(self) -> None:
        self._task.cancel()
        if not self._begun:
            running_tasks.pop(self._task, None)
            self.end(None)

    async def _call(self) -> None:
        self._begun = True
        if self.may_begin is not None and not self.may_begin():
            running_tasks.pop(self._task, None)
            self.end(None)
            return
        try:
            outcome = self.outcome_of_result(await self.handler.call(self.ctx))
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit must not end the worker
            outcome = failure_outcome(error, self.ctx.mask)
        finally:
            running_tasks.pop(self._task, None)
        self.end(outcome)


# The contexts of handlers on the loop. Strong references, since the event loop holds tasks only weakly.
running_tasks: dict[asyncio.Task[Any], Context] = {}


def find_context(task: "asyncio.Task[Any] | None") -> Context | None:
    """The context of the attempt that this task runs, if any; safe from any thread."""
    return None if task is None else running_tasks.get(task)


class ThreadAttempt(HandlerAttempt[Handler]):
    """A `def` function, in a thread: it can be asked to stop, but not forced."""

    def __init__(
        self,
        handler: Handler,
        ctx: AttemptContext,
        bounds: Bounds,
        then: Callable[[Outcome], None],
        threads: Threads,
    ) -> None:
        super().__init__(handler, ctx, bounds, then)
        self._threads = threads

    def launch(self) -> None:
        self._slot = self._threads.submit(self._call, on_start=self.running, on_return=self.end)

    def interrupt(self) -> None:
        """Wait for a canceled handler during the grace; abandon one that timed out."""
        if self._threads.withdraw(self._slot):
            self.end(None)
        elif self.forsaken or self.ctx.has_expired:
            self.abandon()

    def abandon(self) -> None:
        self._threads.forsake(self._slot)
        self.end(None)

    def _call(self) -> Outcome:
        try:
            return self.outcome_of_result(self.handler.call(self.ctx))
        except BaseException as error:  # noqa: BLE001 - no exception of a handler may end the thread
            return failure_outcome(error, self.ctx.mask)
