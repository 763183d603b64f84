"""Runs a batch handler: collects jobs, calls the function once for all of them, and ends each on its own.

Each job of a batch is an attempt like any other: it has its own lease, timeout, cancellation and outcome. The function is
interrupted only if all its jobs must stop.
"""

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import msgspec

from fairlead import tracing
from fairlead.handlers.attempt import (
    AttemptContext,
    Bounds,
    HandlerAttempt,
    OutputInvalid,
    failure_outcome,
)
from fairlead.handlers.batch_job import BatchJob, BatchOptions
from fairlead.handlers.context import Snooze
from fairlead.handlers.function import running_tasks
from fairlead.handlers.registry import Handler
from fairlead.handlers.threads import Threads, ThreadSlot
from fairlead.model.outcome import SUCCEEDED, Canceled, Failed, Outcome
from fairlead.model.secrets.redact import Mask, join_masks

# The definition, and the tenant unless a batch may have jobs of several.
BatchKey = tuple[str, UUID | None]


class BatchMember(HandlerAttempt[Handler]):
    """One job of a batch."""

    run: "BatchRun | None" = None
    # its span, if it is traced
    span: tracing.RunSpan | None = None
    # whether it may still begin: it may have waited for its batch for long
    may_begin: Callable[[], bool] | None = None

    def __init__(
        self,
        handler: Handler,
        ctx: AttemptContext,
        bounds: Bounds,
        then: Callable[[Outcome], None],
        collector: "BatchCollector",
    ) -> None:
        super().__init__(handler, ctx, bounds, then)
        self._collector = collector

    def launch(self) -> None:
        self._collector.add(self)

    def interrupt(self) -> None:
        if self.run is None:
            self._collector.remove(self)
            self.end(None)
        else:
            self.run.stop_if_unneeded()

    def abandon(self) -> None:
        self.end(None)
        if self.run is not None:
            self.run.stop_if_unneeded()

    @property
    def must_stop(self) -> bool:
        return self.over or self.ctx.is_canceled

    def outcome_of(self, result: Any, mask: Mask | None, *, retryable: bool = True) -> Outcome:
        """The outcome for this job's part of the result: an output, an exception or a Snooze."""
        try:
            if not isinstance(result, BaseException):
                return self.outcome_of_result(result)
        except OutputInvalid as error:
            result = error
        outcome = failure_outcome(result, mask)
        if isinstance(outcome, Failed) and not retryable:
            outcome = msgspec.structs.replace(outcome, retryable=False)
        return outcome

    def end_soon(self, outcome: Outcome) -> None:
        """End from any thread."""
        self.ctx.call_on_loop(lambda: self.end(outcome))


class BatchRun:
    """One call of a batch handler."""

    _task: asyncio.Task[None] | None = None
    _slot: ThreadSlot | None = None
    _span: tracing.RunSpan | None = None
    _begun = False
    _interrupted = False

    def __init__(self, handler: Handler, members: Sequence[BatchMember], threads: Threads) -> None:
        self._handler = handler
        self._members = members
        self._threads = threads
        self._mask = join_masks(member.ctx.mask for member in members)  # an exception may name secrets of any
        self._jobs: list[BatchJob[Any]] = []

    def start(self, context: contextvars.Context) -> None:
        """Call the handler, in these context variables, with the jobs whose payloads fit."""
        self._members = [member for member in self._members if self._admit(member)]
        if not self._members:
            return
        try:
            context.run(self._launch)
        except Exception as error:  # noqa: BLE001 - it fails these jobs, not the worker
            self._end_all(self._judge_error(error))

    def _launch(self) -> None:
        if spans := [member.span for member in self._members if member.span is not None]:
            self._span = tracing.start_batch_span(self._handler.key, spans)
        with self._span or nullcontext():
            if not self._handler.is_async:
                self._slot = self._submit()
                return
            self._begin_timeouts()
            task = self._task = asyncio.Task(self._await_handler())
            running_tasks[task] = self._members[0].ctx

    def _submit(self) -> ThreadSlot:
        return self._threads.submit(
            self._call_handler, on_start=self._begin_timeouts, on_return=self._end_all
        )

    def _admit(self, member: BatchMember) -> bool:
        if member.may_begin is not None and not member.may_begin():
            member.end(Canceled())
            return False
        try:
            payload = self._handler.convert_batch_payload(member.ctx.payload)
        except Exception as error:  # noqa: BLE001 - a type may have validators of the user
            member.end(failure_outcome(error, self._mask))
            return False
        member.run = self

        def end(result: Any, retryable: bool) -> None:  # noqa: FBT001 - the type of a callback
            member.end_soon(member.outcome_of(result, self._mask, retryable=retryable))

        self._jobs.append(BatchJob(member.ctx, payload, end))
        return True

    def _begin_timeouts(self) -> None:
        for member in self._members:
            if not member.must_stop:
                member.running()

    async def _await_handler(self) -> None:
        self._begun = True
        try:
            outcomes = self._judge(await self._handler.call_batch(self._jobs))
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit must not end the worker
            outcomes = self._judge_error(error)
        finally:
            if self._task is not None:
                running_tasks.pop(self._task, None)
        self._end_all(outcomes)

    def _call_handler(self) -> list[Outcome]:
        try:
            return self._judge(self._handler.call_batch(self._jobs))
        except BaseException as error:  # noqa: BLE001 - no exception of a handler may end the thread
            return self._judge_error(error)

    def _judge(self, result: Any) -> list[Outcome]:
        """The outcomes for what the handler returned: nothing, a Snooze for all, or a result for each job."""
        if result is None:
            return [SUCCEEDED] * len(self._members)
        if isinstance(result, Snooze):
            raise result
        if not isinstance(result, list | tuple) or len(result) != len(self._members):
            what = f"{len(result)} results" if isinstance(result, list | tuple) else type(result).__name__
            raise OutputInvalid(
                f"A batch handler returns None, or a list with a result for each of its {len(self._members)} jobs, "
                f"in their order; this one returned {what}."
            )
        return [member.outcome_of(one, self._mask) for member, one in zip(self._members, result, strict=True)]

    def _judge_error(self, error: BaseException) -> list[Outcome]:
        return [failure_outcome(error, self._mask)] * len(self._members)

    def _end_all(self, outcomes: list[Outcome] | None) -> None:
        """End the jobs that have no outcome yet."""
        if self._span is not None:
            self._span.end_run("ended", None)
            self._span = None
        for place, member in enumerate(self._members):
            member.end(None if outcomes is None else outcomes[place])

    def stop_if_unneeded(self) -> None:
        """Interrupt the handler if each of its jobs has ended or must stop."""
        if not all(member.must_stop for member in self._members):
            return
        if self._task is not None and not self._interrupted:
            self._interrupted = True
            self._task.cancel()
            if not self._begun:
                running_tasks.pop(self._task, None)
                self._end_all(None)
        elif self._slot is not None:
            self._stop_thread(self._slot)

    def _stop_thread(self, slot: ThreadSlot) -> None:
        """Withdraw a call that waits for a thread; stop waiting for one whose jobs are out of time or have ended."""
        if self._threads.withdraw(slot):
            self._end_all(None)
        elif all(member.over or member.ctx.has_expired for member in self._members):
            self._threads.forsake(slot)
            self._end_all(None)


class BatchCollector:
    """The jobs of one definition that wait for their batch."""

    _timer: asyncio.TimerHandle | None = None

    def __init__(self, options: BatchOptions, most: int, start: Callable[[list[BatchMember]], None]) -> None:
        self._wait = options.wait
        self._most = min(options.size, most)
        self._start = start
        self._waiting: list[BatchMember] = []

    def add(self, member: BatchMember) -> None:
        """Add a job; starts the batch when it is full, or when its first job has waited long enough."""
        self._waiting.append(member)
        if len(self._waiting) >= self._most:
            self.flush()
        elif self._timer is None:
            self._timer = member.loop.call_later(self._wait, self.flush)

    def remove(self, member: BatchMember) -> None:
        """Remove a job that must stop before its batch has started."""
        if member in self._waiting:
            self._waiting.remove(member)

    def flush(self) -> None:
        """Start the batch with the jobs that are there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        members, self._waiting = self._waiting, []
        self._start(members)


class Batches:
    """The batches of a process: jobs are collected by definition and, unless it says otherwise, by tenant."""

    def __init__(self, threads: Threads, *, most: int | None = None) -> None:
        """`most`: how many jobs can run at once in this process; a batch does not wait for more."""
        self._threads = threads
        self._most = most
        self._collectors: dict[BatchKey, BatchCollector] = {}
        # the variables of the worker, not those of the job that fills a batch
        self._context = contextvars.copy_context()

    def start(
        self,
        handler: Handler,
        ctx: AttemptContext,
        then: Callable[[Outcome], None],
        bounds: Bounds,
        *,
        alone: bool = False,
        slots: int = 1,
        span: tracing.RunSpan | None = None,
        may_begin: Callable[[], bool] | None = None,
    ) -> None:
        """Start an attempt, which takes `slots`, in a batch; with `alone`, at once and without others."""
        options = handler.batch
        if options is None:
            raise ValueError(f"{handler.key} is not a batch handler")
        if alone:
            collector = BatchCollector(options, 1, self._start_with(handler))
        else:
            collector = self._collect(handler, options, ctx.tenant_id, slots)
        member = BatchMember(handler, ctx, bounds, then, collector)
        member.span = span
        member.may_begin = may_begin
        member.start()

    def flush(self) -> None:
        """Start all batches with the jobs that are there: no more will come."""
        for collector in list(self._collectors.values()):
            collector.flush()

    def _collect(
        self, handler: Handler, options: BatchOptions, tenant_id: UUID, slots: int
    ) -> BatchCollector:
        key = (handler.key, None if options.across_tenants else tenant_id)
        found = self._collectors.get(key)
        if found is None:
            begin = self._start_with(handler)

            def start(members: list[BatchMember]) -> None:
                self._collectors.pop(key, None)  # there may be many tenants
                begin(members)

            most = options.size if self._most is None else max(1, self._most // slots)
            found = self._collectors[key] = BatchCollector(options, most, start)
        return found

    def _start_with(self, handler: Handler) -> Callable[[list[BatchMember]], None]:
        def start(members: list[BatchMember]) -> None:
            BatchRun(handler, members, self._threads).start(self._context.copy())

        return start
