"""From a claimed job to its outcome: the handler, its context, its time."""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from fairlead.handlers import function
from fairlead.handlers.attempt import Bounds
from fairlead.handlers.context import Context, Progress
from fairlead.handlers.deadlines import Deadlines
from fairlead.handlers.registry import Registry
from fairlead.handlers.threads import Threads
from fairlead.model.job import Lease, NewJob
from fairlead.model.outcome import Failed
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
        self._deadlines = Deadlines()
        self._bounds = lru_cache(1000)(self._bounds_of)

    def __call__(self, attempt: Attempt) -> None:
        """Start an attempt."""
        job = attempt.held.job
        handler = self._registry.get(job.definition_key)
        if handler is None:
            why = f"this worker has no function for {job.definition_key}"
            attempt.ended(Failed("HandlerMissing", why))
            return
        ctx = attempt.run = Context(
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
            on_progress=self._progress_of(attempt.held.lease),
        )
        function.start(handler, ctx, attempt.ended, self._bounds(job.timeout_seconds), self._threads)

    def _bounds_of(self, seconds: float) -> Bounds:
        return Bounds(seconds, self._deadlines)

    def _progress_of(self, lease: Lease) -> Callable[[Progress], object] | None:
        if self._on_progress is None:
            return None
        tell = self._on_progress
        return lambda progress: tell(lease, progress)
