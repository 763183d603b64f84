"""The tenant that the running code works for, and the job that it runs: of a thread, a request or a task."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fairlead.handlers.context import Context

_tenant: ContextVar[str | None] = ContextVar("fairlead_tenant", default=None)
_job: ContextVar[Context | None] = ContextVar("fairlead_job_context", default=None)


@contextmanager
def use_tenant(tenant: str | None) -> Iterator[None]:
    """Enqueue tasks for this tenant within the block, unless a task names another; None means the default tenant."""
    before = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(before)


def current_tenant() -> str | None:
    """The tenant of the surrounding `use_tenant`; in a task, the tenant that the task runs for."""
    return _tenant.get()


def current_job_context() -> Context | None:
    """Fairlead's context of the running task: `log`, `progress`, `is_canceled` …; None outside a worker."""
    return _job.get()


@contextmanager
def use_job_context(ctx: Context) -> Iterator[None]:
    """Run a task with this context, for its tenant."""
    before = _job.set(ctx)
    try:
        with use_tenant(ctx.tenant):
            yield
    finally:
        _job.reset(before)
