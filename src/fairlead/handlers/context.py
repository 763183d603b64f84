"""The context of a handler: the job's data, progress, cost, log, cancellation, child jobs."""

import asyncio
import hashlib
import math
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

import msgspec
import structlog
from uuid_utils.compat import uuid7

from fairlead.errors import DurableUnavailable, TransactionUnavailable
from fairlead.handlers.log import Log, attempt_fields, clean_text
from fairlead.handlers.transaction import HandlerTransaction, TransactionEnds
from fairlead.model.approval import MAX_DESCRIPTION, MAX_TITLE, NewApproval
from fairlead.model.approval_rules import parse_roles
from fairlead.model.durable import Place, StepKind
from fairlead.model.job import NewJob
from fairlead.model.outcome import MOST_CENTS, Canceled, Failed, Released, Snoozed
from fairlead.model.secrets.redact import Mask

if TYPE_CHECKING:
    from fairlead.handlers.durable import DurableRun
    from fairlead.handlers.step_call import Retry

logger = structlog.get_logger(__name__)

# The job whose handler runs here, also in its thread and its tasks: jobs and events that it creates refer to it.
current_job: ContextVar[UUID | None] = ContextVar("current_job", default=None)

PROGRESS_SECONDS = 0.5
LONGEST_PROGRESS_MESSAGE = 1000
LONGEST_RUN_NAME = 200
LONGEST_SNOOZE = 10 * 365 * 86_400.0
NO_TRANSACTION = (
    "A job can end in a transaction only in a worker that is connected to the database, in a function that runs in the "
    "worker's own process. An isolated function, an HTTP worker and an agent report the end themselves: return the result, "
    "and make the changes idempotent (by job id), or define the function without isolate=True and run it with `fairlead worker`."
)


NOT_DURABLE = (
    "Steps and waits need a durable function in a worker that is connected to the database: define it with "
    "@fl.job(durable=True), and run it with `fairlead worker`. An HTTP worker and an agent cannot run it."
)


def with_parent(new: NewJob) -> NewJob:
    """The request with the current job as its parent, if a handler makes it."""
    parent = current_job.get()
    if parent is None or new.parent_id is not None:
        return new
    return msgspec.structs.replace(new, parent_id=parent)


def with_parents(requests: Sequence[NewJob]) -> Sequence[NewJob]:
    """`with_parent` for each request."""
    return requests if current_job.get() is None else [with_parent(new) for new in requests]


class Fatal(Exception):
    """Raised by a handler that failed and must not be retried."""


class Runs(Protocol):
    """Starts runs of workflows."""

    async def start(
        self,
        workflow: Any,
        *,
        tenant: str | UUID,
        input: Any = None,  # noqa: A002 - the word that users know
        version: int | None = None,
        part: str | None = None,
        correlation_id: str | None = None,
        started_by_job: UUID | None = None,
    ) -> Any:
        """Start a run of a workflow."""

    async def fan_out(
        self,
        definition: Any,
        payloads: Sequence[Any],
        *,
        tenant: str | UUID,
        join: Any = None,
        payload: Any = None,
        on_failure: str | None = None,
        part: str | None = None,
        correlation_id: str | None = None,
        started_by_job: UUID | None = None,
    ) -> Any:
        """Start many jobs and one that waits for them."""


class Snooze(Exception):
    """Raised or returned by a handler to run again after `delay`; no attempt is charged."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__(delay)
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not _is_number(seconds, int | float):
            raise TypeError(f"Snooze takes seconds or a timedelta, not {type(delay).__name__}.")
        if not 0 <= seconds <= LONGEST_SNOOZE:
            raise ValueError(f"Snooze takes 0 to {LONGEST_SNOOZE:.0f} seconds, not {seconds}.")
        self.delay = float(seconds)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


class Suspend(BaseException):
    """Ends an attempt of a durable function that waits; not an Exception, so that `except Exception` does not catch it."""

    def __init__(self, delay: float, places: Sequence[Place]) -> None:
        super().__init__("the function waits")
        self.delay = delay
        self.places = tuple(places)


class StepFailed(Exception):
    """A step of a durable function failed: `type` and `message` are of its last exception. The same in every replay."""

    def __init__(self, step: str, type: str, message: str, *, retryable: bool = True) -> None:  # noqa: A002
        super().__init__(f"{step}: {type}: {message}")
        self.step = step
        self.type = type
        self.message = message
        self.retryable = retryable


class ChildFailed(StepFailed):
    """A job that a durable function called did not succeed."""


class Nondeterministic(Fatal):
    """The code of a durable function asks for other steps than the job has recorded; a retry helps after a change of the code."""

    code = "nondeterministic"


class Stopped(BaseException):
    """Ends a handler that must stop; not an Exception, so that `except Exception` does not catch it."""


Reason = Canceled | Released | Snoozed | Failed


class Progress(NamedTuple):
    percent: float
    message: str


class ProcessResult(NamedTuple):
    """The result of a command's process."""

    pid: int | None
    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str


class _Pause:
    """Awaited, it yields to the event loop once; without await it has no effect."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_PAUSE = _Pause()


class Context:
    """One attempt as its handler sees it.

    On the event loop `progress` and `enqueue` are awaited; in a thread they are called without await.
    After the attempt is over, a handler that still runs has no effect through it.
    """

    # Class attributes, since most attempts never change these.
    cost_cents = 0
    last_progress: Progress | None = None
    _report_due = False
    _reported_at = -math.inf
    _log: Log | None = None
    _calls: Counter[str] | None = None
    _reason: Reason | None = None
    _grace: float | None = None
    _on_stop: Callable[[], None] | None = None
    _over = False
    _loop: asyncio.AbstractEventLoop | None = None
    _thread = 0
    # Set if the payload has secrets: they are masked in the log.
    mask: Mask | None = None
    # Set if the payload refers to secrets: results of steps, which are stored, must not have them.
    resolved: Mask | None = None
    # Whether the handler runs in a process of its own, which is killed when the handler has ended.
    is_isolated = False
    # Set by an attempt that ran a process.
    ran: ProcessResult | None = None
    # Set by the worker, for log lines.
    worker_id: str | None = None
    # Set by a worker with a database connection.
    make_ends: Callable[["Context"], TransactionEnds] | None = None
    _ends: TransactionEnds | None = None
    # Set for a durable function.
    durable: "DurableRun | None" = None

    def __init__(
        self,
        *,
        job_id: UUID,
        tenant: str,
        tenant_id: UUID,
        definition_key: str,
        attempt_no: int,
        max_attempts: int,
        payload: Any,
        correlation_id: str | None = None,
        parent_id: UUID | None = None,
        enqueue: Callable[[NewJob], Awaitable[Any]] | None = None,
        runs: Runs | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        progress_seconds: float = PROGRESS_SECONDS,
    ) -> None:
        self.job_id = job_id
        self.tenant = tenant
        self.tenant_id = tenant_id
        self.definition_key = definition_key
        self.attempt_no = attempt_no
        self.max_attempts = max_attempts
        self.payload = payload
        self.correlation_id = correlation_id
        self.parent_id = parent_id
        self._enqueue = enqueue
        self._runs = runs
        self._on_progress = on_progress
        self._progress_seconds = progress_seconds

    # For handlers

    @property
    def log(self) -> Log:
        """`debug`, `info`, `warning`, `error`: an event and fields, stored with the attempt."""
        if self._log is None:
            self._log = self._new_log()
            if self._over:
                self._log.close()
        return self._log

    def kept_log(self) -> str:
        """The text that the handler logged; empty without creating a log if there is none."""
        return "" if self._log is None else self._log.text

    @property
    def is_logging(self) -> bool:
        """Whether the handler runs and has logged."""
        return self._log is not None and not self._over

    def take_new_lines(self) -> list[str]:
        """The stored lines of the log that were not taken before."""
        return [] if self._log is None else self._log.take_new_lines()

    def progress(self, percent: float, message: str = "") -> Awaitable[None]:
        """Report progress from 0 to 100. Stored about twice a second: the last update wins."""
        if not _is_number(percent, int | float) or not 0 <= percent <= 100:
            raise ValueError(f"Progress takes 0 to 100 percent, not {percent!r}.")
        if not self._over:
            self.last_progress = Progress(
                float(percent), clean_text(str(message), LONGEST_PROGRESS_MESSAGE, self.mask)
            )
            if self._on_progress is not None and not self._report_due:
                self._report_due = True
                self._on_loop(self._report)
        return _PAUSE

    def add_cost(self, cents: int) -> None:
        """Add to this attempt's cost; it counts even if the attempt fails or is released."""
        if not _is_number(cents, int) or not 0 <= cents <= MOST_CENTS - self.cost_cents:
            raise ValueError(f"Cost takes whole cents, from 0 to {MOST_CENTS} in total, not {cents!r}.")
        if not self._over:
            self.cost_cents += cents

    @property
    def is_canceled(self) -> bool:
        """Whether the handler should stop: canceled, out of time, or the worker shuts down."""
        return self._reason is not None or self._over

    def check_canceled(self) -> None:
        """End the handler here if it should stop."""
        if self.is_canceled:
            raise Stopped

    def enqueue(
        self, definition: Any, *, payload: Any = None, tenant: str | None = None, **options: Any
    ) -> Any:
        """Enqueue a child job, for this tenant by default: its id and whether it was deduplicated.

        `definition` is a key or a function made with @fl.job; options are those of enqueue.
        """
        if self._over:
            raise Stopped
        new = NewJob(
            definition=getattr(definition, "key", definition),
            tenant=tenant or self.tenant,
            payload={} if payload is None else payload,
            parent_id=self.job_id,
            **{"correlation_id": self.correlation_id, **options},
        )
        return self._wait_or_return(self._ask(new))

    def start(
        self,
        workflow: Any,
        *,
        input: Any = None,  # noqa: A002 - the word that users know
        version: int | None = None,
        key: str | None = None,
    ) -> Any:
        """Start a run of a workflow for this tenant.

        A retried job finds the runs that it has started: by `key`, or else by the workflow and the call's number.
        """
        part = self._run_arguments("start", workflow, key)
        return self._wait_or_return(
            self._start(lambda runs: runs.start(workflow, input=input, version=version, **part))
        )

    def fan_out(
        self,
        definition: Any,
        payloads: Sequence[Any],
        *,
        join: Any = None,
        payload: Any = None,
        on_failure: str | None = None,
        key: str | None = None,
    ) -> Any:
        """Start a sub-task for each payload and, when all have ended, one job of `join`: its payload may use `{{steps.tasks.output}}`.

        A retried job finds the runs that it has started: by `key`, or else by the definition and the call's number.
        """
        part = self._run_arguments("fan_out", definition, key)
        return self._wait_or_return(
            self._start(
                lambda runs: runs.fan_out(
                    definition,
                    payloads,
                    join=join,
                    payload=payload,
                    on_failure=on_failure,
                    **part,
                )
            )
        )

    # For durable functions

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        retry: "Retry | None" = None,
        timeout: float | timedelta | None = None,
        secret: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Call a function once, and store its result: later attempts get the stored result.

        On the event loop a plain function runs in a thread. `retry` sets how often it is tried; then StepFailed is raised.
        With `secret`, people do not see the result.
        """
        options = self._durable.build_options(retry, timeout, secret=secret)
        return self._durable.step(name, function, args, kwargs, options)

    def sleep(self, duration: float | timedelta | None = None, /, **parts: float) -> Any:
        """Sleep for seconds, a timedelta, or parts such as `days=3`; no worker is needed meanwhile."""
        run = self._durable
        seconds = run.count_seconds(duration, parts)
        return self._wait_or_return(run.sleep(run.ask(StepKind.SLEEP, "sleep"), seconds, None))

    def sleep_until(self, moment: datetime, /) -> Any:
        """Sleep until a moment, with its time zone."""
        run = self._durable
        if moment.tzinfo is None:
            raise ValueError("sleep_until takes a datetime with a time zone, such as datetime.now(UTC).")
        return self._wait_or_return(run.sleep(run.ask(StepKind.SLEEP, "sleep"), None, moment))

    def wait_for_event(
        self,
        name: str,
        /,
        *,
        where: dict[str, Any] | None = None,
        timeout: float | timedelta | None = None,
        lookback: float | timedelta | None = None,
    ) -> Any:
        """Wait for an event of this tenant that matches the filter: a ReceivedEvent, or None after the timeout.

        An event counts that came since the job was enqueued, or within `lookback`, and that no wait of this job has received.
        """
        run = self._durable
        asked = run.ask(StepKind.EVENT, name)
        seconds = None if timeout is None else run.count_seconds(timeout)
        back = None if lookback is None else run.count_seconds(lookback)
        return self._wait_or_return(run.wait_for_event(asked, where or {}, seconds, back))

    def wait_for_signal(self, name: str, /, *, timeout: float | timedelta | None = None) -> Any:
        """Wait for a signal to this job: a ReceivedSignal, or None after the timeout. Signals that came before count."""
        run = self._durable
        asked = run.ask(StepKind.SIGNAL, name)
        seconds = None if timeout is None else run.count_seconds(timeout)
        return self._wait_or_return(run.wait_for_signal(asked, seconds))

    def wait_for_approval(
        self,
        name: str,
        /,
        *,
        title: str,
        description: str | None = None,
        form: dict[str, Any] | None = None,
        roles: Sequence[str] | None = None,
        timeout: float | timedelta | None = None,
        escalate: str | None = None,
        escalate_after: float | timedelta | None = None,
    ) -> Any:
        """Wait until a person approves or rejects: an ApprovalAnswer, which is true if approved, or None after the timeout.

        `form` is a JSON Schema of the values that the answer has. `roles` may answer: by default operators and tenant
        admins. `escalate` names an event that is emitted after `escalate_after`, else after the timeout, if there is no answer.
        """
        run = self._durable
        asked = run.ask(StepKind.APPROVAL, name)
        seconds = None if timeout is None else run.count_seconds(timeout)
        later = seconds if escalate_after is None else run.count_seconds(escalate_after)
        allowed = parse_roles(roles)

        def build() -> NewApproval:
            return NewApproval(
                id=uuid7(),
                title=clean_text(str(title), MAX_TITLE, self.mask),
                description=None
                if description is None
                else clean_text(str(description), MAX_DESCRIPTION, self.mask),
                form=form if self.mask is None else self.mask.value(form, names=False),
                roles=allowed,
                escalate=escalate,
                escalate_seconds=None if escalate is None else later,
                seconds=seconds,
            )

        return self._wait_or_return(run.wait_for_approval(asked, build, seconds))

    def call(self, definition: Any, payload: Any = None, /, **options: Any) -> Any:
        """Enqueue a child job for this tenant, wait for its end, and return its output; ChildFailed if it did not succeed.

        `definition` is a key or a function made with @fl.job; options are those of enqueue.
        """
        run = self._durable
        key = getattr(definition, "key", definition)
        asked = run.ask(StepKind.CALL, key)

        def build(job_id: UUID) -> NewJob:
            return NewJob(
                id=job_id,
                definition=key,
                tenant=self.tenant,
                payload={} if payload is None else payload,
                parent_id=self.job_id,
                **{"correlation_id": self.correlation_id, **options},
            )

        return self._wait_or_return(run.call(asked, build))

    def gather(self, *calls: Any, return_exceptions: bool = False) -> Any:
        """Run steps, waits, calls and coroutines of your own in parallel; their results in order.

        It waits for all, then raises the first failure. In a plain function, give functions without parameters.
        """
        if self._is_in_thread:
            return self._durable.gather_in_thread(calls, return_exceptions=return_exceptions)
        return self._durable.gather(calls, return_exceptions=return_exceptions)

    def now(self) -> Any:
        """The time when this call first ran, in UTC: the same in every attempt."""
        return self._wait_or_return(self._durable.now(self._durable.ask(StepKind.NOW, "now")))

    def random(self) -> float:
        """A random number from 0 to 1: the same in every attempt. Not for secrets: it follows from the job's id."""
        return self._durable.random()

    def version(self, name: str, /) -> Any:
        """Whether this job runs the code behind this version; False while it replays what older code has recorded."""
        return self._wait_or_return(self._durable.version(name))

    @property
    def _durable(self) -> "DurableRun":
        if self._over:
            raise Stopped
        if self.durable is None:
            raise DurableUnavailable(NOT_DURABLE)
        return self.durable

    def tx(self) -> HandlerTransaction:
        """A transaction of this job's database: the job succeeds in it at the end of the block, and all of it commits or nothing.

        `async with ctx.tx() as connection:` on the event loop, `with` in a thread: a connection of psycopg. An exception
        rolls it back, and so does a lost lease.
        """
        return HandlerTransaction(self._open_ends(), in_thread=self._is_in_thread)

    def succeed(self, output: Any = None, *, tx: Any) -> Any:
        """End this job with this output in your own transaction, which must be on the job's database.

        `tx` is what the `tx=` of enqueue takes. The job has succeeded when the transaction commits; if it rolls back,
        nothing has happened. Raises LeaseLost if another worker may run the job: roll back.
        """
        ends = self._open_ends()
        if self._is_in_thread:
            ends.succeed_in_thread(output, tx)
            return None
        return ends.succeed(output, tx)

    def _open_ends(self) -> TransactionEnds:
        if self._over:
            raise Stopped
        if self._ends is None:
            if self.make_ends is None:
                raise TransactionUnavailable(NO_TRANSACTION)
            self._ends = self.make_ends(self)
        return self._ends

    @property
    def _is_in_thread(self) -> bool:
        return self._loop is not None and threading.get_ident() != self._thread

    def _run_arguments(self, call: str, what: Any, key: str | None) -> dict[str, Any]:
        """The arguments that link a run to this job and identify it among the job's runs."""
        name = f"{call}:{getattr(what, 'key', what)}"
        if key is not None:
            name = f"{call}={key}"
        else:
            calls = self._calls = self._calls or Counter()
            calls[name] += 1
            name += f"#{calls[name]}"
        if len(name) > LONGEST_RUN_NAME:
            name = f"{call}:{hashlib.sha256(name.encode()).hexdigest()}"
        return {
            "tenant": self.tenant_id,
            "part": name,
            "correlation_id": self.correlation_id or str(self.job_id),
            "started_by_job": self.job_id,
        }

    def _wait_or_return(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """Return the coroutine on the event loop; in another thread, wait for its result."""
        if not self._is_in_thread or self._loop is None:
            return answer
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()

    # For the worker, on its loop

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the worker; None before the handler has started."""
        return self._loop

    def cancel(self) -> None:
        """Stop the handler because the job was canceled."""
        self._stop(Canceled())

    def release(self) -> None:
        """Stop the handler because the worker shuts down."""
        self._stop(Released())

    def lose(self, grace: float) -> None:
        """Stop the handler because its lease is lost: in `grace` seconds another worker may run the job."""
        self._grace = grace
        self._stop(Released())

    def _stop(self, reason: Reason) -> None:
        if self._over:
            return
        first = self._reason is None
        if first or isinstance(self._reason, Released):
            self._reason = reason
        if first and self._on_stop is not None:
            self._on_stop()

    def _new_log(self) -> Log:
        return Log(mask=self.mask, **log_fields(self))

    def _on_loop(self, call: Callable[[], None]) -> None:
        if self._loop is None or threading.get_ident() == self._thread:
            call()
        else:
            self._loop.call_soon_threadsafe(call)

    def _report(self) -> None:
        if self._over or self._loop is None or self._on_progress is None or self.last_progress is None:
            self._report_due = False
            return
        wait = self._reported_at + self._progress_seconds - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._report)
            return
        self._report_due = False
        self._reported_at = self._loop.time()
        try:
            self._on_progress(self.last_progress)
        except Exception:
            # a progress update that fails must not fail the handler
            logger.exception("progress_not_told", job_id=str(self.job_id))

    async def _start(self, started: Callable[[Runs], Awaitable[Any]]) -> Any:
        if self._over:
            raise Stopped
        if self._runs is None:
            raise RuntimeError("An isolated function or an HTTP worker cannot start workflow runs.")
        return await started(self._runs)

    async def _ask(self, new: NewJob) -> Any:
        if self._over:
            raise Stopped
        if self._enqueue is None:
            raise RuntimeError("This context cannot enqueue: it was created without `enqueue`.")
        return await self._enqueue(new)


def log_fields(ctx: Context) -> dict[str, Any]:
    """The log fields of an attempt; safe from any thread."""
    return attempt_fields(
        job_id=ctx.job_id,
        tenant_id=ctx.tenant_id,
        definition_key=ctx.definition_key,
        attempt_no=ctx.attempt_no,
        worker_id=ctx.worker_id,
    )
