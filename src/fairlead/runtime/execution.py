"""From a claimed job to its outcome: the handler, its context, its time."""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any

from fairlead.deadlines import Deadlines
from fairlead.handlers import function
from fairlead.handlers.attempt import Bounds
from fairlead.handlers.context import Context, Progress
from fairlead.handlers.registry import Registry
from fairlead.handlers.threads import Threads
from fairlead.model.job import Lease, NewJob
from fairlead.model.outcome import Failed, Outcome
from fairlead.model.redact import Mask, Patterns, mask_for
from fairlead.runtime.worker import Attempt

Enqueue = Callable[[NewJob], Awaitable[Any]]
OnProgress = Callable[[Lease, Progress], object]


class Execution:
    """Runs held jobs with the registry's handlers."""

    def __init__(
        self,
        registry: Registry,
        *,
        threads: Threads,
        enqueue: Enqueue,
        on_progress: OnProgress | None = None,
        redact_patterns: Patterns = (),
    ) -> None:
        self._registry = registry
        self._threads = threads
        self._enqueue = enqueue
        self._on_progress = on_progress
        self._redact_patterns = redact_patterns
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
        ended: Callable[[Outcome], None] = attempt.ended
        if job.secret_paths or self._redact_patterns:
            ended = self._without_secrets(attempt, ctx)
        function.start(handler, ctx, ended, self._bounds(job.timeout_seconds), self._threads)

    def _without_secrets(self, attempt: Attempt, ctx: Context) -> Callable[[Outcome], None]:
        """Have the payload's secrets masked in whatever the attempt says, before it is written anywhere."""
        job = attempt.held.job
        mask = mask_for(job.payload, job.secret_paths, self._redact_patterns)
        if mask is None:
            return attempt.ended
        ctx.mask = mask
        ctx._on_progress = _masked(mask, ctx._on_progress)  # noqa: SLF001
        return lambda outcome: attempt.ended(mask.outcome(outcome))

    def _bounds_of(self, seconds: float) -> Bounds:
        return Bounds(seconds, self._deadlines)

    def _progress_of(self, lease: Lease) -> Callable[[Progress], object] | None:
        if self._on_progress is None:
            return None
        tell = self._on_progress
        return lambda progress: tell(lease, progress)


def _masked(mask: Mask, tell: Callable[[Progress], object] | None) -> Callable[[Progress], object] | None:
    if tell is None:
        return None
    return lambda progress: tell(progress._replace(message=mask.text(progress.message)))
