"""Handles of the synchronous Fairlead: jobs, runs, leases, and functions that are also jobs."""

from collections.abc import Coroutine
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar
from uuid import UUID

from fairlead.actions.workflows import RunDetails
from fairlead.library import client, leases, workflows
from fairlead.model.job import Job, JobStatus, NewJob
from fairlead.model.workflow.run import Run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncFairlead(Protocol):
    """The synchronous Fairlead behind a handle."""

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""

    def submit(self, new: NewJob, *, tx: Any = None) -> "EnqueuedJob":
        """Enqueue a request."""


class EnqueuedJob:
    """An enqueued job: its id, and whether it is an active job with the same dedupe key."""

    __slots__ = ("_fl", "deduplicated", "id", "inner")

    def __init__(self, fl: SyncFairlead, inner: client.EnqueuedJob) -> None:
        self._fl = fl
        self.inner = inner
        self.id = inner.id
        self.deduplicated = inner.deduplicated

    def read(self) -> Job:
        """The current state of the job."""
        return self._fl.wait(self.inner.read())

    def result(self, timeout: float | None = None) -> Any:
        """The job's output once it succeeded; JobFailed if it ended otherwise, ResultTimeout if it takes longer."""
        return self._fl.wait(self.inner.result(timeout))

    def __repr__(self) -> str:
        return repr(self.inner)


class WorkflowRun:
    """A started run."""

    def __init__(self, fl: SyncFairlead, inner: workflows.WorkflowRun) -> None:
        self._fl = fl
        self.inner = inner
        self.id = inner.id
        self.deduplicated = inner.deduplicated

    def read(self) -> RunDetails:
        """The current state of the run and its steps."""
        return self._fl.wait(self.inner.read())

    def result(self, timeout: float | None = None, *, look_seconds: float = 0.01) -> Any:
        """Its output once it succeeded; WorkflowRunFailed if it ended otherwise, ResultTimeout if it takes longer."""
        return self._fl.wait(self.inner.result(timeout, look_seconds=look_seconds))

    def cancel(self) -> Run:
        """Cancel the run."""
        return self._fl.wait(self.inner.cancel())

    def retry(self) -> Run:
        """Continue the run from the steps that did not succeed."""
        return self._fl.wait(self.inner.retry())


class JobFunction(Generic[P, R]):
    """A function that is also a job: call it as before, or enqueue it."""

    def __init__(self, fl: SyncFairlead, inner: client.JobFunction[P, R]) -> None:
        self._fl = fl
        self.inner = inner
        self.key = inner.key
        self.__doc__ = inner.__doc__
        self.__name__ = inner.__name__
        self.function = self.__wrapped__ = inner.function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.inner(*args, **kwargs)

    def options(self, **options: Any) -> "JobFunction[P, R]":
        """The same job with options of enqueue: priority, scheduled_for, delay, dedupe_key …"""
        return JobFunction(self._fl, self.inner.options(**options))

    def enqueue(self, *, tenant: str | UUID, tx: Any = None, **arguments: Any) -> EnqueuedJob:
        """Enqueue a call with these arguments."""
        return self._fl.submit(self.with_arguments(tenant=tenant, **arguments), tx=tx)

    def with_arguments(self, *, tenant: str | UUID, **arguments: Any) -> NewJob:
        """A request for enqueue_many."""
        return self.inner.with_arguments(tenant=tenant, **arguments)


class JobLease(leases.LeasedJob):
    """A claimed job: renew its lease, and report its end once."""

    def __init__(self, fl: SyncFairlead, inner: leases.JobLease) -> None:
        super().__init__(inner)
        self.inner = inner
        self._fl = fl

    @property
    def cancel_requested(self) -> bool:
        return self.inner.cancel_requested

    def remaining(self) -> float:
        """The remaining seconds of the lease."""
        return self.inner.remaining()

    def heartbeat(self) -> bool:
        """Renew the lease. Returns True if a cancel was requested."""
        return self._fl.wait(self.inner.heartbeat())

    def progress(self, percent: float, message: str = "") -> None:
        """Report the progress, 0 to 100."""
        self._fl.wait(self.inner.progress(percent, message))

    def succeed(self, output: Any = None) -> JobStatus:
        """Report success."""
        return self._fl.wait(self.inner.succeed(output))

    def fail(self, error: str | BaseException, *, retryable: bool = True) -> JobStatus:
        """Report a failure."""
        return self._fl.wait(self.inner.fail(error, retryable=retryable))

    def release(self, delay: float | timedelta = 0) -> JobStatus:
        """Release the job; no attempt is charged."""
        return self._fl.wait(self.inner.release(delay))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fl.wait(self.inner.__aexit__(kind, error, trace))
