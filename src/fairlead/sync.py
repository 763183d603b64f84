"""The synchronous Fairlead: its event loop runs in a separate thread.

With `tx=` everything happens in the calling thread: the statement uses the caller's connection,
and Fairlead needs no connection of its own.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from fairlead.actions import enqueue, events
from fairlead.actions.usage import UsageReport
from fairlead.actions.workflows import RunDetails
from fairlead.db.joined import Send, build_sender, drive_sync, is_async
from fairlead.errors import AlreadyOpen, ConnectionNotSupported, NotOpen, WrongLoop
from fairlead.handlers.context import current_job, with_parent
from fairlead.library import app, client, leases, workflows
from fairlead.library.sync_handles import EnqueuedJob, JobFunction, JobLease, WorkflowRun
from fairlead.library.triggers import Seconds
from fairlead.loop_thread import LoopThread, run_on_loop, running_loop
from fairlead.model.access import Tenant
from fairlead.model.event import NewEvent
from fairlead.model.gate import Gate
from fairlead.model.job import Job, NewJob
from fairlead.model.quota import QuotaUse
from fairlead.model.request import parse_request
from fairlead.model.trigger import Trigger
from fairlead.model.why import Why
from fairlead.model.workflow.run import Run
from fairlead.runtime.tick import Tick
from fairlead.settings import Settings

__all__ = ["EnqueuedJob", "Fairlead", "JobFunction", "JobLease", "WorkflowRun"]

LOOK_SECONDS = 0.1
WOULD_WAIT_FOR_ITSELF = (
    "An `async def` on the loop of a synchronous Fairlead would wait for itself: "
    "make it a `def`, which runs in a thread, or await the methods of `fl.inner`."
)

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
        self._own: LoopThread | None = None

    def open(self) -> None:
        """Connect, and start the loop's thread; does nothing if a worker has opened it.

        AlreadyOpen if it is open; it can be opened again after close.
        """
        if self._own is not None:
            raise AlreadyOpen("This Fairlead is open already. Use it as it is, or close it first.")
        if self.inner.is_open:
            return
        self._own = LoopThread("fairlead")
        try:
            self.wait(self.inner.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect and end the thread."""
        if self._own is None:
            return
        self.wait(self.inner.close())
        self._own.close()
        self._own = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self.inner.is_open

    @property
    def direct_url(self) -> str:
        """The database URL that bypasses the pooler."""
        return self.inner.direct_url

    def allow_commands(self, file: Path | None = None) -> None:
        """Also serve the commands of this fairlead.toml (by default the settings file)."""
        self.inner.allow_commands(file)

    def allow_builtins(self, file: Path | None = None) -> None:
        """Serve the built-in functions that are configured."""
        self.inner.allow_builtins(file)

    def allow_engine(self) -> None:
        """Serve ENGINE_RUN: jobs that run a workflow and end with it."""
        self.inner.allow_engine()

    @overload
    def job(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...

    @overload
    def job(
        self, function: None = None, /, **options: Any
    ) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function a job. Options as for the asynchronous Fairlead."""

        def register(function: Callable[P, R]) -> JobFunction[P, R]:
            return JobFunction(self, self.inner.job(**options)(function))

        return register if function is None else register(function)

    def every(self, interval: Seconds, /, **options: Any) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Run a job at an interval. Options as for the asynchronous Fairlead."""
        return self._wrap_decorator(self.inner.every(interval, **options))

    def cron(self, expr: str, /, **options: Any) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Run a job at the times of a cron expression. Options as for the asynchronous Fairlead."""
        return self._wrap_decorator(self.inner.cron(expr, **options))

    def on(self, event: str, /, **options: Any) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Run a job for each event of this name. Options as for the asynchronous Fairlead."""
        return self._wrap_decorator(self.inner.on(event, **options))

    def _wrap_decorator(
        self, schedule: Callable[[Callable[P, R]], client.JobFunction[P, R]]
    ) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        def schedule_function(function: Callable[P, R]) -> JobFunction[P, R]:
            return JobFunction(
                self, schedule(function.inner if isinstance(function, JobFunction) else function)
            )

        return schedule_function

    def sync_schedules(self) -> list[Trigger]:
        """Store the triggers of `every`, `cron` and `on`, and remove those that the code no longer has."""
        return self.wait(self.inner.sync_schedules())

    def sync_triggers(self) -> None:
        """Store the triggers of `on`; schedules stay unchanged."""
        self.wait(self.inner.sync_triggers())

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
        return self.wait(self.inner.register(tenant, job_id, start_at, repeat_every, fn, timeout=timeout))

    def unregister(self, tenant: str | UUID, job_id: str) -> None:
        """Remove a schedule that was registered here, from the database too."""
        self.wait(self.inner.unregister(tenant, job_id))

    def cancel_periodic(self) -> None:
        """Stop running registered functions here, and forget them; their schedules stay."""
        self.wait(self.inner.cancel_periodic())

    def emit(
        self,
        name: str,
        *,
        tenant: str | UUID,
        data: Mapping[str, Any] | None = None,
        tx: Any = None,
        **options: Any,
    ) -> UUID:
        """Store an event; with `tx=`, inside that transaction. Options as for the asynchronous Fairlead."""
        if tx is None:
            return self.wait(self.inner.emit(name, tenant=tenant, data=data, **options))
        options.setdefault("caused_by", current_job.get())
        new = NewEvent(name=name, tenant=str(tenant), data={} if data is None else data, **options)
        send = self._sender(tx, "emit_joined")
        return drive_sync(events.emit_joined(self.inner.principal, self.inner.catalog, new), send)

    def enqueue(
        self,
        definition: str,
        *,
        tenant: str | UUID,
        payload: Mapping[str, Any] | None = None,
        tx: Any = None,
        **options: Any,
    ) -> EnqueuedJob:
        """Enqueue a job; with `tx=`, inside that transaction. Options as for the asynchronous Fairlead."""
        new = NewJob(
            definition=definition,
            tenant=str(tenant) if isinstance(tenant, UUID) else tenant,
            payload={} if payload is None else payload,
            **options,
        )
        return self.submit(new, tx=tx)

    def submit(self, new: NewJob, *, tx: Any = None) -> EnqueuedJob:
        """Enqueue a NewJob."""
        if tx is not None:
            return self._join([with_parent(new)], tx)[0]
        return EnqueuedJob(self, self.wait(self.inner.submit(new)))

    def enqueue_many(
        self,
        requests: Sequence[NewJob | Mapping[str, Any]],
        *,
        tx: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[EnqueuedJob]:
        """Enqueue all requests or none."""
        if tx is not None:
            return self._join(
                [with_parent(one if isinstance(one, NewJob) else parse_request(one)) for one in requests], tx
            )
        enqueued = self.wait(self.inner.enqueue_many(requests, progress=progress))
        return [EnqueuedJob(self, one) for one in enqueued]

    def work(
        self, stop: threading.Event, abandon: threading.Event | None = None, *, concurrency: int = 100
    ) -> None:
        """Run jobs of these functions and commands until `stop` is set; then drain, until `abandon` is set."""
        self.wait(self._work(stop, abandon, concurrency))

    async def _work(self, stop: threading.Event, abandon: threading.Event | None, concurrency: int) -> None:
        events = {signal: asyncio.Event() for signal in (stop, abandon) if signal is not None}
        watchers = [asyncio.create_task(_mirror_event(signal, event)) for signal, event in events.items()]
        try:
            abandoned = None if abandon is None else events[abandon]
            await self.inner.work(events[stop], abandoned, concurrency=concurrency)
        finally:
            for watcher in watchers:
                watcher.cancel()

    def tick(self, limit: int = 100) -> Tick:
        """Claim up to `limit` due jobs, run them in this process, and return their statuses."""
        return self.wait(self.inner.tick(limit))

    def claim(
        self, n: int = 1, *, definitions: Sequence[str | leases.KeyedFunction] | None = None
    ) -> list[JobLease]:
        """Claim up to `n` due jobs to run in your own loop."""
        return [JobLease(self, lease) for lease in self.wait(self.inner.claim(n, definitions=definitions))]

    def add_tenant(self, slug: str, **options: Any) -> Tenant:
        """Add a tenant. Options as for the asynchronous Fairlead."""
        return self.wait(self.inner.add_tenant(slug, **options))

    def set_quotas(self, tenant: str, **numbers: int | None) -> Tenant:
        """Set a tenant's own quotas: 0 means no limit, None the settings' quota."""
        return self.wait(self.inner.set_quotas(tenant, **numbers))

    def quotas(self, tenant: str) -> list[QuotaUse]:
        """How much a tenant uses of each of its quotas."""
        return self.wait(self.inner.quotas(tenant))

    def pause(self, **named: Any) -> Gate:
        """Pause. Names as for the asynchronous Fairlead."""
        return self.wait(self.inner.pause(**named))

    def resume(self, **named: Any) -> Gate:
        """End a pause. Names as for the asynchronous Fairlead."""
        return self.wait(self.inner.resume(**named))

    def why(self, job_id: UUID | str) -> Why:
        """Why a job is not running."""
        return self.wait(self.inner.why(job_id))

    def usage(self, **asked: Any) -> UsageReport:
        """What attempts used. Names as for the asynchronous Fairlead."""
        return self.wait(self.inner.usage(**asked))

    def read(self, job_id: UUID | str) -> Job:
        """The current state of a job."""
        return self.wait(self.inner.read(job_id))

    def cancel(self, job_id: UUID | str) -> Job:
        return self.wait(self.inner.cancel(job_id))

    def retry(self, job_id: UUID | str, *, payload: Mapping[str, Any] | None = None) -> Job:
        return self.wait(self.inner.retry(job_id, payload=payload))

    def workflow(self, key: str, **options: Any) -> workflows.Flow:
        """Write a workflow. Options as for the asynchronous Fairlead."""
        return self.inner.workflow(key, **options)

    def start(self, workflow: str | workflows.Flow, *, tenant: str | UUID, **options: Any) -> WorkflowRun:
        """Start a run of a workflow. Options as for the asynchronous Fairlead."""
        return WorkflowRun(self, self.wait(self.inner.start(workflow, tenant=tenant, **options)))

    def chain(self, *steps: Any, tenant: str | UUID, **options: Any) -> WorkflowRun:
        """Run jobs one after the other. Options as for the asynchronous Fairlead."""
        return WorkflowRun(self, self.wait(self.inner.chain(*steps, tenant=tenant, **options)))

    def fan_out(
        self, definition: Any, payloads: Sequence[Any], *, tenant: str | UUID, **options: Any
    ) -> WorkflowRun:
        """A job for each payload, and one that waits for them. Options as for the asynchronous Fairlead."""
        started = self.inner.fan_out(definition, payloads, tenant=tenant, **options)
        return WorkflowRun(self, self.wait(started))

    def run_inline(self, flow: workflows.Flow, *, tenant: str | UUID, **options: Any) -> WorkflowRun:
        """Start a run of a workflow that is not published. Options as for the asynchronous Fairlead."""
        return WorkflowRun(self, self.wait(self.inner.run_inline(flow, tenant=tenant, **options)))

    def read_run(self, run_id: UUID | str) -> RunDetails:
        """The current state of a run and its steps."""
        return self.wait(self.inner.read_run(run_id))

    def run_standing(self, run_id: UUID | str) -> Run:
        """The current state of a run, without its steps."""
        return self.wait(self.inner.run_standing(run_id))

    def cancel_run(self, run_id: UUID | str) -> Run:
        """Cancel a run."""
        return self.wait(self.inner.cancel_run(run_id))

    def retry_run(self, run_id: UUID | str) -> Run:
        """Continue a failed or canceled run from the steps that did not succeed."""
        return self.wait(self.inner.retry_run(run_id))

    def _join(self, new: Sequence[NewJob], tx: Any) -> list[EnqueuedJob]:
        send = self._sender(tx, "enqueue_joined")
        enqueued = drive_sync(enqueue.enqueue_joined(self.inner.principal, self.inner.catalog, new), send)
        return [EnqueuedJob(self, client.EnqueuedJob(self.inner, one)) for one in enqueued]

    def _sender(self, tx: Any, function: str) -> Send:
        if is_async(tx):
            raise ConnectionNotSupported(
                f"A {type(tx).__name__} has to be awaited: use the asynchronous Fairlead with it."
            )
        return build_sender(tx, f"{self.inner.settings.schema}.{function}")

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of `inner` on its loop and return its result."""
        try:
            loop = self._loop()
        except BaseException:
            work.close()
            raise
        return run_on_loop(loop, work)

    def _loop(self) -> asyncio.AbstractEventLoop:
        # in a worker, `inner` is open on the worker's loop
        inner = self.inner.database.loop if self.inner.is_open else None
        loop = inner if self._own is None else self._own.loop
        if loop is None:
            raise NotOpen("This Fairlead is not open. Use `with fl:`, or `fl.open()` first.")
        if loop is running_loop():
            raise WrongLoop(WOULD_WAIT_FOR_ITSELF)
        return loop


async def _mirror_event(told: threading.Event, event: asyncio.Event) -> None:
    """Set the asyncio event when a thread sets the threading event."""
    while not told.is_set():  # noqa: ASYNC110 - a thread that waits for it could not be cancelled
        await asyncio.sleep(LOOK_SECONDS)
    event.set()
