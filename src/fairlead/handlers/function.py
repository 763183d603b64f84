"""Running a function: on the loop, in a thread, or in a process of its own."""

import asyncio
from collections.abc import Callable
from typing import Any

from fairlead.deadlines import Deadlines
from fairlead.handlers.attempt import GRACE_SECONDS, MAX_OUTPUT_BYTES, Attempt, Bounds, failure
from fairlead.handlers.context import Context
from fairlead.handlers.isolated import Isolated
from fairlead.handlers.registry import Handler
from fairlead.handlers.threads import Threads
from fairlead.model.outcome import Outcome


def start(
    handler: Handler,
    ctx: Context,
    then: Callable[[Outcome], None],
    bounds: Bounds,
    threads: Threads,
) -> Attempt[Handler]:
    """Start an attempt; `then` is told its outcome, once."""
    attempt: Attempt[Handler]
    if handler.isolate:
        attempt = Isolated(handler, ctx, bounds, then)
    elif handler.is_async:
        attempt = OnLoop(handler, ctx, bounds, then)
    else:
        attempt = InThread(handler, ctx, bounds, then, threads)
    attempt.start()
    return attempt


async def run(
    handler: Handler,
    ctx: Context,
    *,
    timeout: float | None,  # noqa: ASYNC109 - the job's time, not the caller's
    threads: Threads,
    grace: float = GRACE_SECONDS,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> Outcome:
    """One attempt, to its end. Cancelled, it lets go of the attempt."""
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def then(ended: Outcome) -> None:
        if not outcome.cancelled():
            outcome.set_result(ended)

    bounds = Bounds(timeout, Deadlines(), grace, max_output_bytes)
    attempt = start(handler, ctx, then, bounds, threads)
    try:
        return await outcome
    except asyncio.CancelledError:
        attempt.forsake()
        raise


# The loop itself holds tasks only weakly.
_at_work: set["OnLoop"] = set()


class OnLoop(Attempt[Handler]):
    """`async def`, as a task that is cancelled to stop it and abandoned if it will not."""

    _task: asyncio.Task[None]
    _begun = False

    def launch(self) -> None:
        self.running()
        # past the loop's own create_task: a quarter of the price
        self._task = asyncio.Task(self._call(), loop=self.loop)
        _at_work.add(self)

    def interrupt(self) -> None:
        self._task.cancel()
        if not self._begun:
            _at_work.discard(self)
            self.end(None)

    async def _call(self) -> None:
        self._begun = True
        try:
            outcome = self.produced(await self.handler.call(self.ctx))
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit is not the worker's
            outcome = failure(error, self.ctx.mask)
        finally:
            _at_work.discard(self)
        self.end(outcome)


def whose(task: "asyncio.Task[Any] | None") -> Context | None:
    """The attempt whose handler this task runs, if it is one's. May be asked from any thread."""
    return next((one.ctx for one in list(_at_work) if one._task is task), None)  # noqa: SLF001


class InThread(Attempt[Handler]):
    """`def`, in a thread that is told to stop and cannot be made to."""

    def __init__(
        self,
        handler: Handler,
        ctx: Context,
        bounds: Bounds,
        then: Callable[[Outcome], None],
        threads: Threads,
    ) -> None:
        super().__init__(handler, ctx, bounds, then)
        self._threads = threads

    def launch(self) -> None:
        self._slot = self._threads.submit(self._call, on_start=self.running, on_return=self.end)

    def interrupt(self) -> None:
        """A canceled handler has the grace to notice; one out of time had its time."""
        if self._threads.withdraw(self._slot):
            self.end(None)
        elif self.forsaken or self.timed_out:
            self.abandon()

    def abandon(self) -> None:
        self._threads.forsake(self._slot)
        self.end(None)

    def _call(self) -> Outcome:
        try:
            return self.produced(self.handler.call(self.ctx))
        except BaseException as error:  # noqa: BLE001 - nothing a handler raises may end the thread
            return failure(error, self.ctx.mask)
