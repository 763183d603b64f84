"""One attempt: it ends once, when the handler ends, at its timeout, or when it is stopped."""

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from fairlead.deadlines import Deadlines
from fairlead.errors import FairleadError
from fairlead.handlers.context import (
    Context,
    Fatal,
    Reason,
    Snooze,
    StepFailed,
    Stopped,
    Suspend,
    current_job,
    log_fields,
)
from fairlead.handlers.log import clean_text
from fairlead.handlers.registry import PayloadInvalid
from fairlead.model import payload
from fairlead.model.job import NewJob
from fairlead.model.outcome import (
    LONGEST_MESSAGE,
    SUCCEEDED,
    Failed,
    Lost,
    Outcome,
    Snoozed,
    Succeeded,
    Suspended,
)
from fairlead.model.secrets.redact import Mask

logger = structlog.get_logger(__name__)

# The handler: a function or a command.
H = TypeVar("H")
T = TypeVar("T")

GRACE_SECONDS = 5.0
MAX_OUTPUT_BYTES = 1_048_576
LONGEST_TRACEBACK = 8_192
LONGEST_KIND = 200


class OutputInvalid(Fatal):
    """The handler's output cannot be stored; a retry would not help."""


class Bounds(NamedTuple):
    """An attempt's limits, and the object that watches its timeout."""

    timeout: float | None
    deadlines: Deadlines
    grace: float = GRACE_SECONDS
    max_output_bytes: int = MAX_OUTPUT_BYTES


class AttemptContext(Context):
    """A context as its attempt and its worker use it."""

    def open(self, loop: asyncio.AbstractEventLoop, on_stop: Callable[[], None]) -> Reason | None:
        """Open it for a handler that starts now, unless there is a reason not to start; that reason."""
        if self._reason is None:
            self._loop = loop
            self._thread = threading.get_ident()
            self._on_stop = on_stop
        return self._reason

    def close(self) -> None:
        """End the handler's access: what it does from now on has no effect."""
        self._over = True
        # These lead to the attempt, which leads back here: circles that only the collector would find.
        self._on_stop = None
        self._on_progress = None
        self.make_ends = None
        self.durable = None
        if self._log is not None:
            self._log.close()

    def settle(self, outcome: Outcome | None) -> Outcome:
        """Close; the final outcome: after a stop only a success counts, after a timeout nothing does."""
        self.close()
        reason = self._reason
        if reason is not None and (isinstance(reason, Failed) or not isinstance(outcome, Succeeded)):
            outcome = reason
        outcome = outcome or Failed("Stopped", "The handler ended without a result.")
        return _with_cost(outcome, self.cost_cents) if self.cost_cents else outcome

    def stop(self, reason: Reason) -> None:
        """Stop the handler."""
        self._stop(reason)

    @property
    def is_over(self) -> bool:
        """Whether the attempt has ended, although its handler may still run."""
        return self._over

    @property
    def has_expired(self) -> bool:
        return isinstance(self._reason, Failed)

    def limit_grace(self, grace: float) -> float:
        """How long a stopped handler has to end by itself: less than `grace`, if its lease ends sooner."""
        return grace if self._grace is None else min(self._grace, grace)

    def call_on_loop(self, call: Callable[[], None]) -> None:
        """Call on the loop's thread: at once if this is it."""
        self._on_loop(call)

    @property
    def is_in_thread(self) -> bool:
        """Whether the caller is a handler that runs in a thread."""
        return self._is_in_thread

    def run_on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and wait for it in this thread."""
        if self._loop is None:
            work.close()
            raise Stopped
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def enqueue_child(self, new: NewJob) -> Any:
        """Enqueue a job that an isolated handler requests."""
        return await self._ask(new)


class HandlerAttempt(Generic[H]):
    """Runs a handler. It ends once and calls `then` with the outcome; later results are ignored.

    Subclasses define how to launch the handler, how to interrupt it, and what to do
    when it has not ended `grace` seconds after that.
    """

    # Class attributes, since there are thousands of attempts a second and most never change these.
    over = False
    forsaken = False
    _timed = False
    _abandon_timer: asyncio.TimerHandle | None = None

    def __init__(
        self, handler: H, ctx: AttemptContext, bounds: Bounds, then: Callable[[Outcome], None]
    ) -> None:
        self.handler = handler
        self.ctx = ctx
        self.loop = asyncio.get_running_loop()
        self.bounds = bounds
        self._then = then

    def start(self) -> None:
        """Launch the handler; an exception becomes a failed outcome."""
        if (reason := self.ctx.open(self.loop, self._stop_handler)) is not None:
            self.end(reason)
            return
        before = current_job.set(self.ctx.job_id)
        try:
            self.launch()
        except Exception as error:  # noqa: BLE001 - it fails this job, not the worker
            self.end(failure_outcome(error, self.ctx.mask))
        finally:
            current_job.reset(before)

    def launch(self) -> None:
        """Start the handler."""
        raise NotImplementedError

    def interrupt(self) -> None:
        """Ask the handler to stop."""
        raise NotImplementedError

    def abandon(self) -> None:
        """End the attempt although the handler did not stop."""
        self.end(None)

    def running(self) -> None:
        """Start the timeout: the handler starts now."""
        if self.bounds.timeout is not None:
            self._timed = True
            self.bounds.deadlines.add(self, self.bounds.timeout, self._expire)

    def end(self, outcome: Outcome | None) -> None:
        """End the attempt, unless it has ended."""
        self._cancel_timeout()
        if self._abandon_timer is not None:
            self._abandon_timer.cancel()
        if not self.over:
            self.over = True
            self._then(self.ctx.settle(outcome))

    def outcome_of_result(self, result: Any) -> Outcome:
        """The outcome for a return value: Snoozed for a `Snooze`, otherwise Succeeded. OutputInvalid if it cannot be stored."""
        if result is None:
            return SUCCEEDED
        if isinstance(result, Snooze):
            return Snoozed(result.delay)
        return Succeeded(encode_output(result, self.bounds.max_output_bytes)[0])

    def _expire(self) -> None:
        message = f"The handler ran longer than its timeout of {self.bounds.timeout:g} s."
        self.ctx.stop(Failed("Timeout", message, timed_out=True))

    def _stop_handler(self) -> None:
        self._cancel_timeout()
        self._abandon_timer = self.loop.call_later(self._grace, self._give_up)
        self.interrupt()

    @property
    def _grace(self) -> float:
        return self.ctx.limit_grace(self.bounds.grace)

    def _cancel_timeout(self) -> None:
        if self._timed and self.bounds.timeout is not None:
            self._timed = False
            self.bounds.deadlines.leave(self, self.bounds.timeout)

    def _give_up(self) -> None:
        logger.warning("handler_did_not_stop", **log_fields(self.ctx), grace_seconds=self._grace)
        self.abandon()

    def forsake(self) -> None:
        """Stop the handler without an outcome: the caller that waited for it was cancelled."""
        self.over = self.forsaken = True
        self.ctx.release()
        self.ctx.close()


def failure_outcome(error: BaseException, mask: Mask | None = None) -> Outcome:
    """The outcome for a handler's exception, without secrets; a group is fatal only if all its exceptions are."""
    leaves = _leaves(error)
    # a group of one exception, as a task group raises it, is reported as that exception
    reported = leaves[0] if len(leaves) == 1 else error
    if isinstance(reported, Snooze):
        return Snoozed(reported.delay)
    if waits := [leaf for leaf in leaves if isinstance(leaf, Suspend)]:
        if len(waits) == len(leaves):
            places = tuple(place for one in waits for place in one.places)
            return Suspended(min(one.delay for one in waits), places)
        leaves = [leaf for leaf in leaves if not isinstance(leaf, Suspend)]
        reported = leaves[0] if len(leaves) == 1 else error
    if isinstance(reported, StepFailed):
        return Failed(
            reported.type,
            clean_text(reported.message, LONGEST_MESSAGE, mask),
            retryable=reported.retryable,
            traceback=_traceback(error, mask),
        )
    quiet = isinstance(error, PayloadInvalid | OutputInvalid | Stopped)
    return Failed(
        kind=clean_text(type(reported).__name__, LONGEST_KIND, mask),
        message=_message(reported, mask),
        retryable=not all(isinstance(leaf, Fatal) for leaf in leaves),
        traceback=None if quiet else _traceback(error, mask),
    )


def _leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in a group, at any depth; or the exception itself."""
    found, left = [], [error]
    while left:
        one = left.pop()
        if isinstance(one, BaseExceptionGroup):
            left += reversed(one.exceptions)
        else:
            found.append(one)
    return found


def _message(error: BaseException, mask: Mask | None) -> str:
    try:
        return clean_text(str(error), LONGEST_MESSAGE, mask)
    except Exception:  # noqa: BLE001 - __str__ is the user's code
        return "(an exception without a text: its __str__ failed)"


def _traceback(error: BaseException, mask: Mask | None) -> str | None:
    """The end of the traceback, without Fairlead's frames above the handler."""
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_globals.get("__package__") == __package__:
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # noqa: BLE001 - out of memory, or the user's code fails again
        return None
    text = text if mask is None else mask.text(text)
    kept = text if len(text) <= LONGEST_TRACEBACK else "…" + text[1 - LONGEST_TRACEBACK :]
    # the limit is in bytes
    return clean_text(kept, LONGEST_TRACEBACK).encode()[-LONGEST_TRACEBACK:].decode(errors="ignore")


def encode_output(result: Any, max_bytes: int) -> tuple[Any, bytes]:
    """A result as JSON values and as JSON text; raises OutputInvalid if it cannot be stored."""
    if inspect.iscoroutine(result):
        result.close()
        raise OutputInvalid("The function returned a coroutine; define it with `async def`.")
    try:
        return payload.encode(result, max_bytes=max_bytes)
    except FairleadError as error:
        fault = error.faults[0]
        where = f" at {fault.path}" if fault.path else ""
        raise OutputInvalid(f"The output cannot be stored as JSON: {fault.message}{where}.") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise OutputInvalid(f"The output cannot be stored as JSON: {error}.") from None


def _with_cost(outcome: Outcome, cents: int) -> Outcome:
    if isinstance(outcome, Lost):
        return outcome  # a lost attempt reports nothing
    return msgspec.structs.replace(outcome, cost_cents=cents)
