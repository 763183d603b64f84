"""From a claimed job to its outcome: the handler, its context, its time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fairlead.handlers import function
from fairlead.handlers.context import Context, Progress
from fairlead.handlers.registry import Registry
from fairlead.handlers.threads import Threads
from fairlead.model.job import Lease, NewJob
from fairlead.model.outcome import Failed, Outcome
from fairlead.runtime.source import Held
from fairlead.runtime.worker import Attempt

Enqueue = Callable[[NewJob], Awaitable[Any]]
OnProgress = Callable[[Lease, Progress], object]


class Execution:
    """Runs held jobs with the registry's handlers."""

    def __init__(
        self, registry: Registry, *, threads: Threads, enqueue: Enqueue, on_progress: OnProgress | None = None
    ) -> None:
        self._registry = registry
        self._threads = threads
        self._enqueue = enqueue
        self._on_progress = on_progress

    def __call__(self, held: Held, attempt: Attempt) -> asyncio.Future[Outcome]:
        """Start an attempt; the future is its outcome."""
        job = held.job
        handler = self._registry.get(job.definition_key)
        if handler is None:
            missing: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            missing.set_result(
                Failed("HandlerMissing", f"this worker has no function for {job.definition_key}")
            )
            return missing
        ctx = Context(
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
            on_progress=self._progress_of(held.lease),
        )
        attempt.stop = ctx.cancel
        attempt.log = ctx.kept_log
        return function.start(handler, ctx, timeout=job.timeout_seconds, threads=self._threads)

    def _progress_of(self, lease: Lease) -> Callable[[Progress], object] | None:
        if self._on_progress is None:
            return None
        tell = self._on_progress
        return lambda progress: tell(lease, progress)
