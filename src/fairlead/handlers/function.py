"""Running a function: on the loop, in a thread, or in a process of its own."""

import asyncio

from fairlead.handlers.attempt import GRACE_SECONDS, MAX_OUTPUT_BYTES, Attempt, Bounds, failure
from fairlead.handlers.context import Context
from fairlead.handlers.isolated import Isolated
from fairlead.handlers.registry import Handler
from fairlead.handlers.threads import Threads
from fairlead.model.outcome import Outcome


def start(
    handler: Handler,
    ctx: Context,
    *,
    timeout: float | None,
    threads: Threads,
    grace: float = GRACE_SECONDS,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> asyncio.Future[Outcome]:
    """Start an attempt; the future is its outcome, never an exception. Cancel the future to let go of it."""
    bounds = Bounds(timeout, grace, max_output_bytes)
    if handler.isolate:
        return Isolated(handler, ctx, bounds).start()
    if handler.is_async:
        return OnLoop(handler, ctx, bounds).start()
    return InThread(handler, ctx, bounds, threads).start()


async def run(
    handler: Handler,
    ctx: Context,
    *,
    timeout: float | None,  # noqa: ASYNC109 - the job's time, not the caller's
    threads: Threads,
    grace: float = GRACE_SECONDS,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
) -> Outcome:
    """One attempt, to its end."""
    return await start(
        handler, ctx, timeout=timeout, threads=threads, grace=grace, max_output_bytes=max_output_bytes
    )


# The loop itself holds tasks only weakly.
_at_work: set["OnLoop"] = set()


class OnLoop(Attempt):
    """`async def`, as a task that is cancelled to stop it and abandoned if it will not."""

    _task: asyncio.Task[None]
    _begun = False

    def launch(self) -> None:
        self.running()
        self._task = self.loop.create_task(self._call())
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
            outcome = failure(error)
        finally:
            _at_work.discard(self)
        self.end(outcome)


class InThread(Attempt):
    """`def`, in a thread that is told to stop and cannot be made to."""

    def __init__(self, handler: Handler, ctx: Context, bounds: Bounds, threads: Threads) -> None:
        super().__init__(handler, ctx, bounds)
        self._threads = threads

    def launch(self) -> None:
        self._slot = self._threads.submit(self._call, on_start=self.running, on_return=self.end)

    def interrupt(self) -> None:
        """A canceled handler has the grace to notice; one out of time had its time."""
        if self._threads.withdraw(self._slot):
            self.end(None)
        elif self.outcome.cancelled() or self.timed_out:
            self.abandon()

    def abandon(self) -> None:
        self._threads.forsake(self._slot)
        self.end(None)

    def _call(self) -> Outcome:
        try:
            return self.produced(self.handler.call(self.ctx))
        except BaseException as error:  # noqa: BLE001 - nothing a handler raises may end the thread
            return failure(error)
