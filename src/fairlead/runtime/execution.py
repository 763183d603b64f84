"""Runs a claimed job: finds its handler, builds its context, applies its timeout."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import structlog

from fairlead import tracing
from fairlead.deadlines import Deadlines
from fairlead.errors import FairleadError
from fairlead.handlers import function
from fairlead.handlers.attempt import AttemptContext, Bounds
from fairlead.handlers.batch import Batches
from fairlead.handlers.command import CommandAttempt, CommandServices
from fairlead.handlers.commands import Command, SecretMissing
from fairlead.handlers.context import Progress, Runs
from fairlead.handlers.middleware import Middleware
from fairlead.handlers.registry import Handler, Registry
from fairlead.handlers.secrets import SecretRefused, SecretResolver
from fairlead.handlers.supervised import Supervised
from fairlead.handlers.threads import Threads
from fairlead.model.job import Lease, NewJob
from fairlead.model.outcome import Canceled, Failed, Outcome
from fairlead.model.secrets.redact import (
    Mask,
    Patterns,
    build_mask,
    fill_references,
    find_references,
    find_secrets,
)
from fairlead.runtime.durable_steps import DurableSteps
from fairlead.runtime.failure_log import job_log_fields
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.joined_ends import JoinedEnds
from fairlead.runtime.worker_attempt import WorkerAttempt

log = structlog.get_logger(__name__)

Enqueue = Callable[[NewJob], Awaitable[Any]]
OnProgress = Callable[[Lease, Progress], object]
# the job, the stream, the text, and how many bytes of one attempt are stored
OnOutput = Callable[[HeldJob, str, str, int], object]
OutcomeCallback = Callable[[Outcome], None]


class ExecutionServices(NamedTuple):
    """What a process gives to an execution: callbacks for progress and output, and the supervisor of commands."""

    on_progress: OnProgress | None = None
    on_said: OnOutput | None = None
    # called when an attempt with output has ended, before its outcome is written
    settle: Callable[[Lease], Awaitable[None]] | None = None
    supervised: Supervised | None = None
    # how many jobs can run at once
    slots: int | None = None
    # lets handlers end their jobs in their own transactions; None without a database connection
    ends: JoinedEnds | None = None
    # records the steps of durable functions; None without a database connection
    steps: DurableSteps | None = None
    # takes a callback for the moment when the process begins to drain
    on_drain: Callable[[Callable[[], None]], object] | None = None


class Execution:
    """Runs held jobs with the registry's functions and with this process's commands."""

    def __init__(
        self,
        registry: Registry,
        *,
        threads: Threads,
        enqueue: Enqueue,
        runs: Runs | None = None,
        commands: Mapping[str, Command] | None = None,
        means: ExecutionServices = ExecutionServices(),  # noqa: B008 - immutable
        redact_patterns: Patterns = (),
        middleware: Middleware | None = None,
        secrets: SecretResolver | None = None,
    ) -> None:
        self._registry = registry
        self._middleware = middleware or Middleware()
        self._secrets = secrets or SecretResolver()
        self._batches = Batches(threads, most=means.slots)
        if means.on_drain is not None:
            means.on_drain(self._batches.flush)
        self._commands = commands or {}
        self._means = means
        self._threads = threads
        self._enqueue = enqueue
        self._runs = runs
        self._settling: set[asyncio.Task[None]] = set()
        self._redact_patterns = redact_patterns
        self._deadlines = Deadlines()
        self._bounds = lru_cache(1000)(self._build_bounds)
        self._traced = tracing.has_tracer_provider()

    def __call__(self, attempt: WorkerAttempt) -> None:
        """Start an attempt."""
        job = attempt.held.job
        handler = self._registry.get(job.definition_key, job.tenant_id) or self._commands.get(
            job.definition_key
        )
        if handler is None:
            why = f"this worker has no function or command for {job.definition_key}"
            attempt.handle_end(Failed("HandlerMissing", why))
            return
        ctx = attempt.run = AttemptContext(
            job_id=job.job_id,
            tenant=job.tenant,
            tenant_id=job.tenant_id,
            definition_key=job.definition_key,
            attempt_no=job.attempt_no,
            max_attempts=job.max_attempts,
            payload=job.payload,
            correlation_id=job.correlation_id,
            parent_id=job.parent_id,
            enqueue=self._enqueue,
            runs=self._runs,
            on_progress=self._progress_callback(attempt),
        )
        ctx.worker_id = attempt.worker_id
        if self._means.ends is not None:
            self._means.ends.attach(ctx, attempt, handler)
        if names := find_references(job.payload, job.secret_paths):
            self._run_task(self._resolve_secrets(names, handler, ctx, attempt))
        else:
            self._begin(handler, ctx, attempt)

    def _begin(self, handler: Handler | Command, ctx: AttemptContext, attempt: WorkerAttempt) -> None:
        if self._traced or attempt.held.job.trace is not None:
            self._start_traced(handler, ctx, attempt)
        else:
            self._start(handler, ctx, attempt)

    async def _resolve_secrets(
        self, names: Sequence[str], handler: Handler | Command, ctx: AttemptContext, attempt: WorkerAttempt
    ) -> None:
        """Put the texts of secrets in the place of references, in this process only, and start the attempt."""
        job = attempt.held.job
        try:
            texts = await self._secrets.resolve(names, ctx)
        except SecretMissing as error:
            attempt.handle_end(Failed("SecretMissing", f"a secret of the payload is not available: {error}"))
            return
        except SecretRefused as error:
            attempt.handle_end(
                Failed("SecretRefused", f"the job may not use a secret: {error}", retryable=False)
            )
            return
        ctx.payload = fill_references(job.payload, job.secret_paths, texts)
        ctx.resolved = Mask(texts.values())
        self._begin(handler, ctx, attempt)

    def _run_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    def _start_traced(self, handler: Handler | Command, ctx: AttemptContext, attempt: WorkerAttempt) -> None:
        """Run the handler in a span that ends with it."""
        job = attempt.held.job
        span = tracing.start_run_span(
            job.definition_key,
            trace_of_job=job.trace,
            job_id=job.job_id,
            tenant=job.tenant,
            tenant_id=job.tenant_id,
            attempt_no=job.attempt_no,
            worker_id=attempt.worker_id,
        )
        with span or nullcontext():
            self._start(handler, ctx, attempt, span)

    def _start(
        self,
        handler: Handler | Command,
        ctx: AttemptContext,
        attempt: WorkerAttempt,
        span: tracing.RunSpan | None = None,
    ) -> None:
        job = attempt.held.job
        # an `async def` function begins when the event loop comes to it, and any other now
        begins_later = (
            isinstance(handler, Handler)
            and handler.is_async
            and not handler.isolate
            and handler.batch is None
        )
        if not begins_later and not attempt.begin():
            _build_end(attempt, None, span)(Canceled())
            return
        if isinstance(handler, Command):
            self._start_command(handler, ctx, attempt, span)
            return
        if job.secret_paths or self._redact_patterns:
            ctx.mask = build_mask(ctx.payload, job.secret_paths, self._redact_patterns)
        if handler.durable and ctx.mask is None:
            ctx.mask = Mask(())  # secret steps add their results
        end, bounds = _build_end(attempt, ctx.mask, span), self._bounds(job.timeout_seconds)
        if handler.durable and self._means.steps is not None:
            handler = self._prepare_durable(self._means.steps, handler, ctx, attempt)
        if handler.batch is not None:
            # a suspect must start alone; other jobs settle when the handler has run for a while
            if not job.probation:
                attempt.settles_at += handler.batch.wait
            handler = handler.within(self._middleware.batches)
            self._batches.start(
                handler,
                ctx,
                end,
                bounds,
                alone=bool(job.probation),
                slots=attempt.slots,
                span=span,
                may_begin=attempt.keeps_lease,
            )
            return
        if self._middleware.attempts:
            handler = handler.within(self._middleware.attempts + handler.around)
        function.start_attempt(handler, ctx, end, bounds, self._threads, may_begin=attempt.begin)

    def _prepare_durable(
        self, steps: DurableSteps, handler: Handler, ctx: AttemptContext, attempt: WorkerAttempt
    ) -> Handler:
        """The handler of a durable function: it first reads what earlier attempts have recorded."""
        run = steps.attach(ctx, attempt)
        return handler.within((run.around,))

    def _start_command(
        self, command: Command, ctx: AttemptContext, attempt: WorkerAttempt, span: tracing.RunSpan | None
    ) -> None:
        job, fail = attempt.held.job, _build_end(attempt, None, span)
        if self._means.supervised is None:
            fail(Failed("HandlerMissing", "this process runs no commands"))
            return
        try:
            env, secrets = command.environment()
        except SecretMissing as error:
            fail(Failed("SecretMissing", f"a secret of the command {command.key} is not available: {error}"))
            return
        secrets += find_secrets(ctx.payload, job.secret_paths)
        if secrets or self._redact_patterns:
            ctx.mask = Mask(secrets, self._redact_patterns)
        bounds = Bounds(
            min(job.timeout_seconds, command.spec.timeout), self._deadlines, command.spec.grace_seconds
        )
        way = CommandServices(
            self._means.supervised, self._output_callback(attempt, command.spec.max_log_bytes)
        )
        end = self._write_output_first(attempt, _build_end(attempt, ctx.mask, span))
        CommandAttempt(command, ctx, bounds, end, env=env, way=way).start()

    def _output_callback(self, attempt: WorkerAttempt, max_bytes: int) -> Callable[[str, str], object]:
        said = self._means.on_said
        return lambda stream, text: None if said is None else said(attempt.held, stream, text, max_bytes)

    def _write_output_first(self, attempt: WorkerAttempt, end: OutcomeCallback) -> OutcomeCallback:
        """Write the attempt's output before its outcome: no output is accepted after that."""
        settle = self._means.settle
        if settle is None:
            return end

        async def write_output(outcome: Outcome) -> None:
            try:
                await settle(attempt.held.lease)
            except FairleadError as error:
                log.warning(
                    "output_not_kept",
                    **job_log_fields(attempt.held.job, attempt.worker_id),
                    why=error.message,
                )
            end(outcome)

        def then(outcome: Outcome) -> None:
            self._run_task(write_output(outcome))

        return then

    def _build_bounds(self, seconds: float) -> Bounds:
        return Bounds(seconds, self._deadlines)

    def _progress_callback(self, attempt: WorkerAttempt) -> Callable[[Progress], object] | None:
        tell = self._means.on_progress
        if tell is None:
            return None
        # a write would wait for the transaction in which the handler has ended its job
        return lambda progress: tell(attempt.held.lease, progress) if attempt.joined is None else None


def _build_end(attempt: WorkerAttempt, mask: Mask | None, span: tracing.RunSpan | None) -> OutcomeCallback:
    """The callback for the attempt's outcome, which the span and the worker get without secrets."""
    if mask is None and span is None:
        return attempt.handle_end

    def end(outcome: Outcome) -> None:
        if mask is not None:
            outcome = mask.outcome(outcome)
        if span is not None:
            span.end_run(_outcome_name(attempt, outcome), _span_error(attempt, outcome))
        attempt.handle_end(outcome)

    return end


def _outcome_name(attempt: WorkerAttempt, outcome: Outcome) -> str:
    """The outcome's name in a span: the attempt's status, or `snoozed`."""
    if attempt.lost:
        return "lost"
    if attempt.is_given_back:
        return "released"
    if isinstance(outcome, Failed) and outcome.timed_out:
        return "timeout"
    if isinstance(outcome, Canceled) and attempt.released:
        return "released"
    return type(outcome).__name__.lower()


def _span_error(attempt: WorkerAttempt, outcome: Outcome) -> tracing.SpanError | None:
    if attempt.lost:
        return tracing.SpanError("LeaseLost", "the lease was lost before the handler ended")
    if isinstance(outcome, Failed):
        return tracing.SpanError(outcome.kind, outcome.message, outcome.traceback)
    return None
