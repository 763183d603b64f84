"""Middleware that binds the job to structlog's context variables: every line that is logged while it runs has them.

`fl.around_attempt(bind_job)` and `fl.around_batch(bind_batch)`; structlog needs the processor `merge_contextvars`, which its
default configuration has.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from structlog.contextvars import bound_contextvars

from fairlead.handlers.batch_job import BatchJob
from fairlead.handlers.context import Context


def bind_job(ctx: Context) -> Iterator[None]:
    """Bind `job_id`, `tenant`, `definition_key`, `attempt_no`, and `correlation_id` if the job has one."""
    bound: dict[str, Any] = {
        "job_id": str(ctx.job_id),
        "tenant": ctx.tenant,
        "definition_key": ctx.definition_key,
        "attempt_no": ctx.attempt_no,
    }
    if ctx.correlation_id is not None:
        bound["correlation_id"] = (
            ctx.correlation_id if ctx.mask is None else ctx.mask.mask_chosen(ctx.correlation_id)
        )
    with bound_contextvars(**bound):
        yield


def bind_batch(jobs: Sequence[BatchJob[Any]]) -> Iterator[None]:
    """Bind `definition_key`, the number of `jobs`, and `tenant` if they have the same."""
    bound: dict[str, Any] = {"definition_key": jobs[0].ctx.definition_key, "jobs": len(jobs)}
    if len(tenants := {job.tenant for job in jobs}) == 1:
        bound["tenant"] = tenants.pop()
    with bound_contextvars(**bound):
        yield
