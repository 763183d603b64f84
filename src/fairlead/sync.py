"""The synchronous face: the same Fairlead, its loop in a thread of its own.

With `tx=` nothing leaves the calling thread: the statement goes through the caller's own connection,
and no connection of ours is needed at all.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from fairlead import app, handles, leases, workflows
from fairlead.actions import enqueue, events
from fairlead.actions.usage import UsageReport
from fairlead.actions.workflows import Shown
from fairlead.db.joined import Send, drive_sync, is_async, sender
from fairlead.errors import ConnectionNotSupported, NotOpen
from fairlead.model.access import Tenant
from fairlead.model.event import NewEvent
from fairlead.model.job import Enqueued, Job, JobStatus, NewJob
from fairlead.model.request import parsed
from fairlead.model.trigger import Trigger
from fairlead.model.why import Why
from fairlead.model.workflow_run import Run
from fairlead.settings import Settings
from fairlead.store.gates import Gate
from fairlead.triggers import Seconds

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Fairlead:
    """Fairlead for synchronous applications: the same names, without await."""

    def __init__(
        self,
        database_url: str | None = None,
        *,
        settings: Settings | None = None,
        actor: str | None = None,
        name: str | None = None,
    ) -> None:
        self.inner = app.Fairlead(database_url, settings=settings, actor=actor, name=name)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Connect, with the loop in a thread of its own."""
        if self._loop is not None:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fairlead", daemon=True)
        self._thread.start()
        try:
            self._wait(self.inner.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect and end the thread."""
        if self._loop is None or self._thread is None:
            return
        self._wait(self.inner.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @overload
    def job(self, function: Callable[P, R], /) -> "JobFunction[P, R]": ...

    @overload
    def job(
        self, function: None = None, /, **options: Any
    ) -> Callable[[Callable[P, R]], "JobFunction[P, R]"]: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function a job. Options as for the asynchronous face."""

        def register(function: Callable[P, R]) -> JobFunction[P, R]:
            return JobFunction(self, self.inner.job(**options)(function))

        return register if function is None else register(function)

    def every(self, interval: Seconds, /, **options: Any) -> Callable[[Callable[P, R]], "JobFunction[P, R]"]:
        """Run a job every so many seconds. Options as for the asynchronous face."""
        return self._scheduled(self.inner.every(interval, **options))

    def cron(self, expr: str, /, **options: Any) -> Callable[[Callable[P, R]], "JobFunction[P, R]"]:
        """Run a job at the times of a cron expression. Options as for the asynchronous face."""
        return self._scheduled(self.inner.cron(expr, **options))

    def on(self, event: str, /, **options: Any) -> Callable[[Callable[P, R]], "JobFunction[P, R]"]:
        """Run a job for each event of this name. Options as for the asynchronous face."""
        return self._scheduled(self.inner.on(event, **options))

    def _scheduled(
        self, schedule: Callable[[Callable[P, R]], handles.JobFunction[P, R]]
    ) -> Callable[[Callable[P, R]], "JobFunction[P, R]"]:
        def scheduled(function: Callable[P, R]) -> JobFunction[P, R]:
            return JobFunction(
                self, schedule(function.inner if isinstance(function, JobFunction) else function)
            )

        return scheduled

    def sync_schedules(self) -> list[Trigger]:
        """Make the database say what `every`, `cron` and `on` say; what the code has dropped is removed."""
        return self._wait(self.inner.sync_schedules())

    def register(
        self,
        tenant: str | UUID,
        job_id: str,
        start_at: datetime,
        repeat_every: Seconds,
        fn: Callable[..., Any],
        *,
        timeout: int | None = None,
    ) -> Trigger:
        """Run a function for a tenant at `start_at` and then every `repeat_every`; a `def` runs in a thread."""
        return self._wait(self.inner.register(tenant, job_id, start_at, repeat_every, fn, timeout=timeout))

    def unregister(self, tenant: str | UUID, job_id: str) -> None:
        """Remove a schedule that was registered here, from the database too."""
        self._wait(self.inner.unregister(tenant, job_id))

    def cancel_periodic(self) -> None:
        """Stop running registered functions here, and forget them; their schedules stay."""
        self._wait(self.inner.cancel_periodic())

    def emit(
        self,
        name: str,
        *,
        tenant: str | UUID,
        data: Mapping[str, Any] | None = None,
        tx: Any = None,
        **options: Any,
    ) -> UUID:
        """Store an event; with `tx=`, inside that transaction. Options as for the asynchronous face."""
        if tx is None:
            return self._wait(self.inner.emit(name, tenant=tenant, data=data, **options))
        new = NewEvent(name=name, tenant=str(tenant), data={} if data is None else data, **options)
        send = self._sender(tx, "emit_joined")
        return drive_sync(events.joined(self.inner.principal, self.inner.catalog, new), send)

    def enqueue(
        self,
        definition: str,
        *,
        tenant: str | UUID,
        payload: Mapping[str, Any] | None = None,
        tx: Any = None,
        **options: Any,
    ) -> Enqueued:
        """Enqueue a job; with `tx=`, inside that transaction. Options as for the asynchronous face."""
        new = NewJob(
            definition=definition,
            tenant=str(tenant) if isinstance(tenant, UUID) else tenant,
            payload={} if payload is None else payload,
            **options,
        )
        return self.submit(new, tx=tx)

    def submit(self, new: NewJob, *, tx: Any = None) -> Enqueued:
        """Enqueue a request that is put together already."""
        if tx is not None:
            return self._join([new], tx)[0]
        handle = self._wait(self.inner.submit(new))
        return Enqueued(handle.id, handle.deduplicated)

    def enqueue_many(
        self,
        requests: Sequence[NewJob | Mapping[str, Any]],
        *,
        tx: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Enqueued]:
        """Enqueue all of them or none."""
        if tx is None:
            handles = self._wait(self.inner.enqueue_many(requests, progress=progress))
            return [Enqueued(handle.id, handle.deduplicated) for handle in handles]
        return self._join([one if isinstance(one, NewJob) else parsed(one) for one in requests], tx)

    def claim(
        self, n: int = 1, *, definitions: Sequence[str | leases.Keyed] | None = None
    ) -> list["JobLease"]:
        """Take up to `n` due jobs to run in a loop of your own."""
        return [JobLease(self, lease) for lease in self._wait(self.inner.claim(n, definitions=definitions))]

    def add_tenant(self, slug: str, **options: Any) -> Tenant:
        """A new tenant. Options as for the asynchronous face."""
        return self._wait(self.inner.add_tenant(slug, **options))

    def pause(self, **named: Any) -> Gate:
        """Close a gate. Names as for the asynchronous face."""
        return self._wait(self.inner.pause(**named))

    def resume(self, **named: Any) -> Gate:
        """Open a gate again. Names as for the asynchronous face."""
        return self._wait(self.inner.resume(**named))

    def why(self, job_id: UUID | str) -> Why:
        """Why a job is not running."""
        return self._wait(self.inner.why(job_id))

    def usage(self, **asked: Any) -> UsageReport:
        """What runs used. Names as for the asynchronous face."""
        return self._wait(self.inner.usage(**asked))

    def read(self, job_id: UUID | str) -> Job:
        """A job as it stands now."""
        return self._wait(self.inner.read(job_id))

    def cancel(self, job_id: UUID | str) -> Job:
        return self._wait(self.inner.cancel(job_id))

    def retry(self, job_id: UUID | str, *, payload: Mapping[str, Any] | None = None) -> Job:
        return self._wait(self.inner.retry(job_id, payload=payload))

    def workflow(self, key: str, **options: Any) -> workflows.Flow:
        """Write a workflow. Options as for the asynchronous face."""
        return self.inner.workflow(key, **options)

    def start(self, workflow: str | workflows.Flow, *, tenant: str | UUID, **options: Any) -> "WorkflowRun":
        """Start a run of a workflow. Options as for the asynchronous face."""
        return WorkflowRun(self, self._wait(self.inner.start(workflow, tenant=tenant, **options)))

    def chain(self, *steps: Any, tenant: str | UUID, **options: Any) -> "WorkflowRun":
        """Run jobs one after the other. Options as for the asynchronous face."""
        return WorkflowRun(self, self._wait(self.inner.chain(*steps, tenant=tenant, **options)))

    def fan_out(
        self, definition: Any, payloads: Sequence[Any], *, tenant: str | UUID, **options: Any
    ) -> "WorkflowRun":
        """A job for each payload, and one that waits for them. Options as for the asynchronous face."""
        started = self.inner.fan_out(definition, payloads, tenant=tenant, **options)
        return WorkflowRun(self, self._wait(started))

    def _join(self, new: Sequence[NewJob], tx: Any) -> list[Enqueued]:
        send = self._sender(tx, "enqueue_joined")
        return drive_sync(enqueue.joined(self.inner.principal, self.inner.catalog, new), send)

    def _sender(self, tx: Any, function: str) -> Send:
        if is_async(tx):
            raise ConnectionNotSupported(
                f"A {type(tx).__name__} has to be awaited: use the asynchronous Fairlead with it."
            )
        return sender(tx, f"{self.inner.settings.schema}.{function}")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise NotOpen("This Fairlead is not open. Use `with fl:`, or `fl.open()` first.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class WorkflowRun:
    """A run that was started."""

    def __init__(self, fl: Fairlead, inner: workflows.WorkflowRun) -> None:
        self._fl = fl
        self.inner = inner
        self.id = inner.id
        self.deduplicated = inner.deduplicated

    def read(self) -> Shown:
        """The run and its steps as they stand now."""
        return self._fl._wait(self.inner.read())  # noqa: SLF001

    def result(self, timeout: float | None = None) -> Any:
        """Its output once it succeeded; WorkflowRunFailed if it ended otherwise, ResultTimeout if it takes longer."""
        return self._fl._wait(self.inner.result(timeout))  # noqa: SLF001

    def cancel(self) -> Run:
        """Stop it."""
        return self._fl._wait(self.inner.cancel())  # noqa: SLF001

    def retry(self) -> Run:
        """Let it go on from the steps that did not succeed."""
        return self._fl._wait(self.inner.retry())  # noqa: SLF001


class JobFunction(Generic[P, R]):
    """A function that is also a job: call it as before, or enqueue it."""

    def __init__(self, fl: Fairlead, inner: handles.JobFunction[P, R]) -> None:
        self._fl = fl
        self.inner = inner
        self.key = inner.key
        self.__doc__ = inner.__doc__
        self.__name__ = inner.__name__
        self.__wrapped__ = inner.function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.inner(*args, **kwargs)

    def options(self, **options: Any) -> "JobFunction[P, R]":
        """The same job with options of enqueue: priority, scheduled_for, delay, dedupe_key …"""
        return JobFunction(self._fl, self.inner.options(**options))

    def enqueue(self, *, tenant: str | UUID, tx: Any = None, **arguments: Any) -> Enqueued:
        """Enqueue a call with these arguments."""
        return self._fl.submit(self.with_arguments(tenant=tenant, **arguments), tx=tx)

    def with_arguments(self, *, tenant: str | UUID, **arguments: Any) -> NewJob:
        """A call to hand to enqueue_many."""
        return self.inner.with_arguments(tenant=tenant, **arguments)


class JobLease(leases.LeasedJob):
    """A job that is ours for a while: keep it alive, and say once how it ended."""

    def __init__(self, fl: Fairlead, inner: leases.JobLease) -> None:
        super().__init__(inner)
        self.inner = inner
        self._wait = fl._wait  # noqa: SLF001 - of this module

    @property
    def cancel_requested(self) -> bool:
        return self.inner.cancel_requested

    def remaining(self) -> float:
        """Seconds that are left of the lease."""
        return self.inner.remaining()

    def heartbeat(self) -> bool:
        """Renew the lease. Whether the job was canceled."""
        return self._wait(self.inner.heartbeat())

    def progress(self, percent: float, message: str = "") -> None:
        """Say how far the work is, 0 to 100."""
        self._wait(self.inner.progress(percent, message))

    def succeed(self, output: Any = None) -> JobStatus:
        """The work is done."""
        return self._wait(self.inner.succeed(output))

    def fail(self, error: str | BaseException, *, retryable: bool = True) -> JobStatus:
        """The work failed."""
        return self._wait(self.inner.fail(error, retryable=retryable))

    def release(self, delay: float | timedelta = 0) -> JobStatus:
        """Give the job back; no attempt is charged."""
        return self._wait(self.inner.release(delay))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self.inner.__aexit__(kind, error, trace))
