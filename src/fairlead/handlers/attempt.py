"""One attempt: it ends once, by the handler's end, by its time, or when it is told to stop."""

import asyncio
import inspect
import traceback
from typing import Any, NamedTuple

import structlog

from fairlead.errors import FairleadError
from fairlead.handlers.context import Context, Fatal, Snooze, Stopped
from fairlead.handlers.log import clean
from fairlead.handlers.registry import Handler, PayloadInvalid
from fairlead.model import payload
from fairlead.model.outcome import LONGEST_MESSAGE, Failed, Outcome, Snoozed, Succeeded

logger = structlog.get_logger(__name__)

GRACE_SECONDS = 5.0
MAX_OUTPUT_BYTES = 1_048_576
LONGEST_TRACEBACK = 8_192
LONGEST_KIND = 200


class OutputInvalid(Fatal):
    """The handler returned what cannot be kept; trying again would not help."""


class Bounds(NamedTuple):
    timeout: float | None
    grace: float
    max_output_bytes: int


class Attempt:
    """The frame around a handler. `outcome` is set once; what comes later is not listened to.

    Kinds of attempt say how to launch the handler, how to interrupt it, and what is left to do
    when it has not ended `grace` seconds after that.
    """

    def __init__(self, handler: Handler, ctx: Context, bounds: Bounds) -> None:
        self.handler = handler
        self.ctx = ctx
        self.loop = asyncio.get_running_loop()
        self.outcome = _Wanted(self)
        self.bounds = bounds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> asyncio.Future[Outcome]:
        """Launch the handler; the answer is its outcome, and never an exception."""
        if (reason := self.ctx._reason) is not None:  # noqa: SLF001
            self.end(reason)
            return self.outcome
        self.ctx._open(self.loop, self._told_to_stop)  # noqa: SLF001
        try:
            self.launch()
        except Exception as error:  # noqa: BLE001 - one job's trouble, not the worker's
            self.end(failure(error))
        return self.outcome

    def launch(self) -> None:
        """Set the handler going."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Ask the handler to stop."""
        raise NotImplementedError

    def abandon(self) -> None:
        """It did not stop: report it as ended all the same."""
        self.end(None)

    def running(self) -> None:
        """The handler starts now, and so does its time."""
        if self.bounds.timeout is not None:
            self._timer = self.loop.call_later(self.bounds.timeout, self._expire)

    def end(self, outcome: Outcome | None) -> None:
        """Settle the attempt, unless it is settled."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.outcome.done():
            settled = self._settled(outcome)
            self.ctx._close()  # noqa: SLF001
            self.outcome.settle(settled)

    @property
    def timed_out(self) -> bool:
        return isinstance(self.ctx._reason, Failed)  # noqa: SLF001

    def produced(self, result: Any) -> Outcome:
        """The outcome of a handler that returned."""
        if result is None:
            return Succeeded()
        if isinstance(result, Snooze):
            return Snoozed(result.delay)
        return Succeeded(_output(result, self.bounds.max_output_bytes))

    def _settled(self, outcome: Outcome | None) -> Outcome:
        """Told to stop, only success still counts; out of time, nothing does."""
        reason = self.ctx._reason  # noqa: SLF001
        if reason is not None and (isinstance(reason, Failed) or not isinstance(outcome, Succeeded)):
            outcome = reason
        return _with_cost(outcome or Failed("Stopped", "The handler ended without a result."), self.ctx)

    def _expire(self) -> None:
        message = f"The handler ran longer than its {self.bounds.timeout:g} seconds."
        self.ctx._stop(Failed("Timeout", message, timed_out=True))  # noqa: SLF001

    def _told_to_stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.bounds.grace, self._give_up)
        self.interrupt()

    def _give_up(self) -> None:
        logger.warning(
            "handler_did_not_stop",
            job_id=str(self.ctx.job_id),
            definition_key=self.ctx.definition_key,
            grace_seconds=self.bounds.grace,
        )
        self.abandon()

    def forsake(self) -> None:
        """Whoever waited was cancelled: nobody wants the outcome, and the handler must not run on."""
        self.ctx.release()
        self.ctx._close()  # noqa: SLF001


class _Wanted(asyncio.Future[Outcome]):
    """An outcome that knows when nobody waits for it any more; a callback for that would cost every job."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(loop=attempt.loop)
        self._attempt: Attempt | None = attempt

    def cancel(self, msg: Any | None = None) -> bool:
        canceled = super().cancel(msg)
        if canceled and self._attempt is not None:
            self._attempt.forsake()
        return canceled

    def settle(self, outcome: Outcome) -> None:
        self.set_result(outcome)
        # no circle of references is left for the garbage collector
        self._attempt = None


def failure(error: BaseException) -> Outcome:
    """What an exception of a handler means."""
    if isinstance(error, Snooze):
        return Snoozed(error.delay)
    quiet = isinstance(error, PayloadInvalid | OutputInvalid | Stopped)
    return Failed(
        kind=clean(type(error).__name__, LONGEST_KIND),
        message=_message(error),
        retryable=not isinstance(error, Fatal),
        traceback=None if quiet else _traceback(error),
    )


def _message(error: BaseException) -> str:
    try:
        return clean(str(error), LONGEST_MESSAGE)
    except Exception:  # noqa: BLE001 - __str__ is the user's code
        return "(an exception that cannot be shown as text)"


def _traceback(error: BaseException) -> str | None:
    """The end of the traceback, without the frames of ours above the handler."""
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_globals.get("__package__") == __package__:
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # noqa: BLE001 - no memory, or code of the user's that fails again
        return None
    kept = text if len(text) <= LONGEST_TRACEBACK else "…" + text[1 - LONGEST_TRACEBACK :]
    # bytes are what the bound is about
    return clean(kept, LONGEST_TRACEBACK).encode()[-LONGEST_TRACEBACK:].decode(errors="ignore")


def _output(result: Any, max_bytes: int) -> Any:
    if inspect.iscoroutine(result):
        result.close()
        raise OutputInvalid("The function returned a coroutine; define it with `async def`.")
    try:
        return payload.encode(result, max_bytes=max_bytes)[0]
    except FairleadError as error:
        fault = error.faults[0]
        where = f" at {fault.path}" if fault.path else ""
        raise OutputInvalid(f"The output cannot be kept as JSON: {fault.message}{where}.") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise OutputInvalid(f"The output cannot be kept as JSON: {error}.") from None


def _with_cost(outcome: Outcome, ctx: Context) -> Outcome:
    match outcome:
        case Succeeded(output) if ctx.cost_cents:
            return Succeeded(output, ctx.cost_cents)
        case Failed() if ctx.cost_cents:
            return Failed(
                kind=outcome.kind,
                message=outcome.message,
                retryable=outcome.retryable,
                timed_out=outcome.timed_out,
                traceback=outcome.traceback,
                cost_cents=ctx.cost_cents,
            )
    return outcome
