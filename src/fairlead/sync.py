"""The synchronous Fairlead: the names of `fairlead`, without await.

Generated from src/fairlead/library by `make sync`: change it there.
"""
# fmt: off
# ruff: noqa: A002

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, Self, overload
from uuid import UUID

from fairlead.actions import bulk_jobs
from fairlead.actions.approvals import ApprovalPage
from fairlead.actions.bulk_jobs import BulkResult
from fairlead.actions.jobs import JobFilter, JobPage
from fairlead.actions.usage import UsageReport
from fairlead.actions.workflows import RunDetails
from fairlead.handlers.context import Context
from fairlead.handlers.middleware import Manager
from fairlead.library import app, client, leases, workflows
from fairlead.library.client import (
    AttemptMiddlewareT,
    BatchMiddlewareT,
    EnqueueMiddlewareT,
    Q,
    ResolveSecretT,
    TenantDatabase,
)
from fairlead.library.leases import KeyedFunction
from fairlead.library.synchronous import Handle, SyncClient, unwrap, wait_or_join
from fairlead.library.triggers import P, R, Seconds
from fairlead.library.workflows import Flow
from fairlead.model.access import GLOBAL_TENANT, Tenant
from fairlead.model.approval import Approval, ApprovalStatus
from fairlead.model.durable import JobStep
from fairlead.model.durable_history import JobHistory
from fairlead.model.flow import KeyLimit, Rate
from fairlead.model.gate import Gate
from fairlead.model.job import Attempt, Debounce, Job, JobStatus, NewJob
from fairlead.model.limits import LimitUse
from fairlead.model.outcome import Backoff
from fairlead.model.page import Page
from fairlead.model.quota import QuotaUse
from fairlead.model.schedule.backfill import Backfill, BackfillPreview
from fairlead.model.trigger import Trigger
from fairlead.model.why import Why
from fairlead.model.workflow.run import Run
from fairlead.runtime.tick import Tick
from fairlead.settings import Settings

__all__ = ["EnqueuedJob", "Fairlead", "JobFunction", "JobLease", "WorkflowRun"]


class EnqueuedJob(Handle[client.EnqueuedJob]):
    """An enqueued job: its id, and whether it is an active job with the same dedupe key."""

    __slots__ = ("deduplicated", "id")

    def __init__(self, fl: SyncClient, inner: client.EnqueuedJob) -> None:
        super().__init__(fl, inner)
        self.id = inner.id
        self.deduplicated = inner.deduplicated

    def read(self) -> Job:
        """The current state of the job."""
        return self._fl.wait(self.inner.read())

    def edit(self, *, payload: Mapping[str, Any] | None = None, priority: int | None = None,
            scheduled_for: datetime | None = None, delay: float | timedelta | None = None,
            tags: Sequence[str] | None = None) -> Job:
        """Change the job while it waits; JobNotEditable if it runs or has ended."""
        return self._fl.wait(self.inner.edit(payload=payload, priority=priority, scheduled_for=scheduled_for,
                delay=delay, tags=tags))

    def result(self, timeout: float | None = None) -> Any:
        """The job's output once it succeeded; JobFailed if it ended otherwise, ResultTimeout if it takes longer."""
        return self._fl.wait(self.inner.result(timeout))


class WorkflowRun(Handle[workflows.WorkflowRun]):
    """A started run: its id, and whether a run with the same key existed before."""

    __slots__ = ("deduplicated", "id")

    def __init__(self, fl: SyncClient, inner: workflows.WorkflowRun) -> None:
        super().__init__(fl, inner)
        self.id = inner.id
        self.deduplicated = inner.deduplicated

    def read(self) -> RunDetails:
        """The current state of the run and its steps."""
        return self._fl.wait(self.inner.read())

    def cancel(self) -> Run:
        """Cancel the run: queued jobs are canceled, running jobs are asked to stop, and no step starts any more."""
        return self._fl.wait(self.inner.cancel())

    def retry(self) -> Run:
        """Continue the run from the steps that did not succeed."""
        return self._fl.wait(self.inner.retry())

    def result(self, timeout: float | None = None, *, look_seconds: float = 0.01) -> Any:
        """Its output once it succeeded; WorkflowRunFailed if it ended otherwise, ResultTimeout if it takes longer."""
        return self._fl.wait(self.inner.result(timeout, look_seconds=look_seconds))


class JobFunction(Handle[client.JobFunction[P, R]], Generic[P, R]):
    """A function that is also a job: call it as before, or enqueue it."""

    def __init__(self, fl: SyncClient, inner: client.JobFunction[P, R]) -> None:
        super().__init__(fl, inner)
        self.function = inner.function
        self.key = inner.key
        self.says = inner.says
        self.__doc__ = inner.__doc__
        self.__name__ = inner.__name__
        self.__wrapped__ = inner.__wrapped__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.inner(*args, **kwargs)

    @property
    def around(self) -> tuple[Callable[[Any], Manager], ...]:
        """The middleware around its attempts; the process of an isolated function finds it here."""
        return self.inner.around

    def options(self, **options: Any) -> "JobFunction[P, R]":
        """The same job with options of enqueue: priority, scheduled_for, delay, dedupe_key …"""
        return JobFunction(self._fl, self.inner.options(**options))

    def enqueue(self, *, tenant: str | UUID, tx: Any = None, **arguments: Any) -> EnqueuedJob:
        """Enqueue a call with these arguments."""
        return EnqueuedJob(self._fl, wait_or_join(self._fl, self.inner.enqueue(tenant=tenant, tx=tx,
                **arguments), tx))

    @overload
    def payload(self: "JobFunction[Concatenate[Context, Q], R]", *args: Q.args,
            **kwargs: Q.kwargs) -> dict[str, Any]: ...

    @overload
    def payload(self: "JobFunction[Q, R]", *args: Q.args, **kwargs: Q.kwargs) -> dict[str, Any]: ...

    def payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The payload of a call with these arguments, which type checkers check; TypeError if they do not fit."""
        return self.inner.payload(*args, **kwargs)

    def with_arguments(self, *, tenant: str | UUID, **arguments: Any) -> NewJob:
        """A request for enqueue_many."""
        return self.inner.with_arguments(tenant=tenant, **arguments)


class JobLease(Handle[leases.JobLease]):
    """A claimed job: renew its lease, and report its end once."""

    def __init__(self, fl: SyncClient, inner: leases.JobLease) -> None:
        super().__init__(fl, inner)
        self.job_id = inner.job_id
        self.tenant = inner.tenant
        self.tenant_id = inner.tenant_id
        self.definition_key = inner.definition_key
        self.payload = inner.payload
        self.attempt_no = inner.attempt_no
        self.max_attempts = inner.max_attempts
        self.correlation_id = inner.correlation_id
        self.parent_id = inner.parent_id
        self.timeout_seconds = inner.timeout_seconds

    @property
    def cancel_requested(self) -> bool:
        """Whether the last heartbeat reported that a cancel was requested."""
        return self.inner.cancel_requested

    def remaining(self) -> float:
        """The remaining seconds of the lease, by a monotonic clock; 0 after its end."""
        return self.inner.remaining()

    def heartbeat(self) -> bool:
        """Renew the lease. Returns True if a cancel was requested: stop the work and release the job."""
        return self._fl.wait(self.inner.heartbeat())

    def progress(self, percent: float, message: str = "") -> None:
        """Report the progress, 0 to 100."""
        self._fl.wait(self.inner.progress(percent, message))

    def succeed(self, output: Any = None, *, tx: Any = None) -> JobStatus:
        """Report success. Returns the job's new status. With `tx=` it joins that transaction, and ends the job when it commits."""
        return wait_or_join(self._fl, self.inner.succeed(output, tx=tx), tx)

    def fail(self, error: str | BaseException, *, retryable: bool = True) -> JobStatus:
        """Report a failure: the job is retried after its backoff, if it is retryable and attempts are left. Returns its status."""
        return self._fl.wait(self.inner.fail(error, retryable=retryable))

    def release(self, delay: float | timedelta = 0) -> JobStatus:
        """Release the job, to run again after `delay` (seconds); no attempt is charged. Returns its status."""
        return self._fl.wait(self.inner.release(delay))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
            trace: TracebackType | None) -> None:
        self._fl.wait(self.inner.__aexit__(kind, error, trace))


class Fairlead(SyncClient):
    """Defines, enqueues and runs jobs on one database."""

    def __init__(self, database_url: str | None = None, *, settings: Settings | None = None,
            actor: str | None = None, name: str | None = None) -> None:
        super().__init__(app.Fairlead(database_url, settings=settings, actor=actor, name=name))

    def tick(self, limit: int = 100) -> Tick:
        """Claim up to `limit` due jobs, run them in this process, and return their statuses: of every cell up to `limit`."""
        return self.wait(self.inner.tick(limit))

    def claim(self, n: int = 1, *,
            definitions: Sequence[str | KeyedFunction] | None = None) -> list[JobLease]:
        """Claim up to `n` due jobs to run in your own loop: of these definitions, or of all."""
        return [JobLease(self, one) for one in self.wait(self.inner.claim(n, definitions=definitions))]

    def allow_commands(self, file: Path | None = None) -> None:
        """Also serve the commands of this fairlead.toml (by default the settings file)."""
        self.inner.allow_commands(file)

    def allow_secrets(self, file: Path | None = None) -> None:
        """Let references to the secrets of this fairlead.toml (by default the settings file) be resolved."""
        self.inner.allow_secrets(file)

    def allow_builtins(self, file: Path | None = None) -> None:
        """Serve the built-in functions that are configured (by default in the settings file)."""
        self.inner.allow_builtins(file)

    def usage(self, *, tenant: str | UUID | None = None, by: str = "hour", per: str = "definition",
            since: datetime | None = None, until: datetime | None = None,
            timezone: str | None = None) -> UsageReport:
        """What attempts used, by `hour`, `day` or `month` and per `definition`, `tenant` or `nothing`; newest first."""
        return self.wait(self.inner.usage(tenant=tenant, by=by, per=per, since=since, until=until,
                timezone=timezone))

    def pause(self, *, tenant: str | UUID | None = None, definition: str | None = None,
            host: str | UUID | None = None, note: str | None = None) -> Gate:
        """Pause a tenant, a definition or a host, or (none named) the whole system: nothing more is claimed; running jobs go on."""
        return self.wait(self.inner.pause(tenant=tenant, definition=definition, host=host, note=note))

    def resume(self, *, tenant: str | UUID | None = None, definition: str | None = None,
            host: str | UUID | None = None, note: str | None = None) -> Gate:
        """End a pause; without a pause nothing changes."""
        return self.wait(self.inner.resume(tenant=tenant, definition=definition, host=host, note=note))

    def add_tenant(self, slug: str, *, name: str | None = None, timezone: str = "UTC", weight: int = 1,
            max_running: int | None = None, quotas: Mapping[str, int | None] | None = None,
            exist_ok: bool = False, cell: str | None = None) -> Tenant:
        """Add a tenant, in the given cell or in the home cell; with `exist_ok`, an existing tenant stays unchanged, whatever the other options are."""
        return self.wait(self.inner.add_tenant(slug, name=name, timezone=timezone, weight=weight,
                max_running=max_running, quotas=quotas, exist_ok=exist_ok, cell=cell))

    def set_quotas(self, tenant: str, **numbers: int | None) -> Tenant:
        """Set a tenant's own quotas: 0 means no limit, None the settings' quota. Quotas that are not named stay."""
        return self.wait(self.inner.set_quotas(tenant, **numbers))

    def quotas(self, tenant: str) -> list[QuotaUse]:
        """How much a tenant uses of each of its quotas."""
        return self.wait(self.inner.quotas(tenant))

    def set_rate(self, rate: Rate | str | None, *, tenant: str | None = None, definition: str | None = None,
            each_tenant: bool = False) -> Rate | None:
        """Set the rate of a tenant, of a definition or (none named) of the system; None removes it."""
        return self.wait(self.inner.set_rate(rate, tenant=tenant, definition=definition,
                each_tenant=each_tenant))

    def limits(self, tenant: str | None = None) -> list[LimitUse]:
        """Rates and limits by key, what is left of each, and what it holds back: of a tenant, or of all. Up to 1000."""
        return self.wait(self.inner.limits(tenant))

    @property
    def is_open(self) -> bool:
        return self.inner.is_open

    @property
    def direct_url(self) -> str:
        """The database URL that bypasses the pooler."""
        return self.inner.direct_url

    @overload
    def job(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...

    @overload
    def job(self, function: None = None, /, *, key: str | None = None, timeout: int | None = None,
            max_attempts: int | None = None, backoff: Backoff | None = None, priority: int | None = None,
            max_running: int | None = None, max_running_per_tenant: int | None = None,
            rate: Rate | None = None, rate_per_tenant: Rate | None = None, by_key: KeyLimit | None = None,
            slots: int | None = None, requires: Mapping[str, str] | None = None, prefers: Mapping[str,
            str] | None = None, description: str | None = None, isolate: bool = False, durable: bool = False,
            batch: int | None = None, batch_wait: float | None = None,
            batch_across_tenants: bool = False) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function a job. Its parameters, except `ctx`, become the schema of the payload."""
        made: Any = self.inner.job(function, **options)
        if function is not None:
            return JobFunction(self, made)
        return lambda function: JobFunction(self, made(unwrap(function)))

    def around_attempt(self, function: AttemptMiddlewareT) -> AttemptMiddlewareT:
        """Run a function with one `yield` around each attempt of a function, except batches; the first is the outermost."""
        return self.inner.around_attempt(function)

    def around_batch(self, function: BatchMiddlewareT) -> BatchMiddlewareT:
        """Run a function with one `yield` around each call of a batch handler; it gets the list of jobs."""
        return self.inner.around_batch(function)

    def around_enqueue(self, function: EnqueueMiddlewareT) -> EnqueueMiddlewareT:
        """Call an `async def` for the requests of each enqueue; it awaits `store(requests)` and returns the result."""
        return self.inner.around_enqueue(function)

    def resolve_secret(self, function: ResolveSecretT) -> ResolveSecretT:
        """Ask this function for the text of each secret that payloads refer to and fairlead.toml does not have."""
        return self.inner.resolve_secret(function)

    def enqueue(self, definition: str, *, tenant: str | UUID, payload: Mapping[str, Any] | None = None,
            priority: int | None = None, scheduled_for: datetime | None = None,
            delay: float | timedelta | None = None, max_attempts: int | None = None,
            dedupe_key: str | None = None, correlation_id: str | None = None,
            tags: Sequence[str] | None = None, timeout: float | timedelta | None = None,
            expires_in: float | timedelta | None = None, unique_for: float | timedelta | None = None,
            debounce: Debounce | None = None, host_id: UUID | None = None, resource_id: UUID | None = None,
            tx: Any = None) -> EnqueuedJob:
        """Enqueue a job; it is durable when this returns. With `tx=` it joins that transaction instead."""
        return EnqueuedJob(self, wait_or_join(self, self.inner.enqueue(definition, tenant=tenant,
                payload=payload, priority=priority, scheduled_for=scheduled_for, delay=delay,
                max_attempts=max_attempts, dedupe_key=dedupe_key, correlation_id=correlation_id, tags=tags,
                timeout=timeout, expires_in=expires_in, unique_for=unique_for, debounce=debounce,
                host_id=host_id, resource_id=resource_id, tx=tx), tx))

    def submit(self, new: NewJob, *, tx: Any = None) -> EnqueuedJob:
        """Enqueue a NewJob; in a handler, as a child of its job."""
        return EnqueuedJob(self, wait_or_join(self, self.inner.submit(new, tx=tx), tx))

    def enqueue_many(self, requests: Sequence[NewJob | Mapping[str, Any]], *, tx: Any = None,
            progress: Callable[[int], None] | None = None) -> list[EnqueuedJob]:
        """Enqueue all requests or none; the result has their order. `progress` is called with the number done so far."""
        return [EnqueuedJob(self, one) for one in wait_or_join(self, self.inner.enqueue_many(requests, tx=tx,
                progress=progress), tx)]

    def for_tenant(self, tenant: str | UUID) -> TenantDatabase:
        """The cell and the database of a tenant: open the transactions that you pass as `tx=` there."""
        return self.wait(self.inner.for_tenant(tenant))

    def read(self, job_id: UUID | str, *, tenant: str | None = None) -> Job:
        """The current state of a job; a known `tenant` makes the search in several cells shorter."""
        return self.wait(self.inner.read(job_id, tenant=tenant))

    def show(self, job_id: UUID | str, *, tx: Any = None) -> tuple[Job, list[Attempt]]:
        """The current state of a job and its newest attempts, first to last. With `tx=` it reads in that transaction."""
        return wait_or_join(self, self.inner.show(job_id, tx=tx), tx)

    def edit(self, job_id: UUID | str, *, payload: Mapping[str, Any] | None = None,
            priority: int | None = None, scheduled_for: datetime | None = None,
            delay: float | timedelta | None = None, tags: Sequence[str] | None = None) -> Job:
        """Change a queued job: values that are not given stay as they are. JobNotEditable if it runs or has ended."""
        return self.wait(self.inner.edit(job_id, payload=payload, priority=priority,
                scheduled_for=scheduled_for, delay=delay, tags=tags))

    def approve(self, approval_id: UUID | str, values: Any = None, *, comment: str | None = None) -> Approval:
        """Approve, with the values of the form: the function goes on. ApprovalClosed if it is no longer open."""
        return self.wait(self.inner.approve(approval_id, values, comment=comment))

    def reject(self, approval_id: UUID | str, values: Any = None, *, comment: str | None = None) -> Approval:
        """Reject: the function goes on, and learns it. ApprovalClosed if it is no longer open."""
        return self.wait(self.inner.reject(approval_id, values, comment=comment))

    def read_approval(self, approval_id: UUID | str) -> Approval:
        """An approval with its form, and the answer if there is one."""
        return self.wait(self.inner.read_approval(approval_id))

    def list_approvals(self, *, tenant: str | None = None,
            status: ApprovalStatus | str | None = ApprovalStatus.OPEN, job_id: UUID | str | None = None,
            limit: int = 50, cursor: str | None = None) -> ApprovalPage:
        """A page of approvals, newest first: the open ones, or those of another status; None means any. Go on from a"""
        return self.wait(self.inner.list_approvals(tenant=tenant, status=status, job_id=job_id, limit=limit,
                cursor=cursor))

    def cancel(self, job_id: UUID | str) -> Job:
        """Cancel a job: at once if it is queued; if it runs, its worker is asked to stop it."""
        return self.wait(self.inner.cancel(job_id))

    def retry(self, job_id: UUID | str, *, payload: Mapping[str, Any] | None = None,
            from_step: str | int | None = None) -> Job:
        """Queue a failed, dead-lettered or canceled job again, with a fresh budget."""
        return self.wait(self.inner.retry(job_id, payload=payload, from_step=from_step))

    def replay(self, job_id: UUID | str, *, from_step: str | int | None = None) -> Job:
        """Enqueue an ended job again as a new job with the same payload; the original stays as it is."""
        return self.wait(self.inner.replay(job_id, from_step=from_step))

    def signal(self, job_id: UUID | str, name: str, data: Any = None) -> UUID:
        """Send a signal to a durable function: it ends the first wait for its name, or is kept for the next. Its id."""
        return self.wait(self.inner.signal(job_id, name, data))

    def steps(self, job_id: UUID | str, *, limit: int = 1000, after: str | None = None) -> Page[JobStep]:
        """The recorded steps and waits of a durable function. If it has `more`, go on `after` the place of the last one."""
        return self.wait(self.inner.steps(job_id, limit=limit, after=after))

    def history(self, job_id: UUID | str) -> JobHistory:
        """A job of a durable function with all that it has recorded: `fairlead.testing.replay` compares new code with it."""
        return self.wait(self.inner.history(job_id))

    def why(self, job_id: UUID | str) -> Why:
        """Why a job is not running: every reason that applies, most decisive first."""
        return self.wait(self.inner.why(job_id))

    def list_jobs(self, wanted: JobFilter, *, limit: int = 50, cursor: str | None = None) -> JobPage:
        """A page of the jobs that match, newest first. While it has a `next_cursor`, older jobs follow: a page may be"""
        return self.wait(self.inner.list_jobs(wanted, limit=limit, cursor=cursor))

    def cancel_jobs(self, wanted: JobFilter, *, limit: int = bulk_jobs.MOST, dry_run: bool = False,
            cursor: str | None = None) -> BulkResult:
        """Cancel the queued and running jobs that match; `dry_run` only counts them. Go on from a `next_cursor`."""
        return self.wait(self.inner.cancel_jobs(wanted, limit=limit, dry_run=dry_run, cursor=cursor))

    def retry_jobs(self, wanted: JobFilter, *, limit: int = bulk_jobs.MOST, dry_run: bool = False,
            cursor: str | None = None) -> BulkResult:
        """Queue the failed, dead-lettered and canceled jobs that match again; `dry_run` only counts them."""
        return self.wait(self.inner.retry_jobs(wanted, limit=limit, dry_run=dry_run, cursor=cursor))

    def emit(self, name: str, *, tenant: str | UUID, data: Mapping[str, Any] | None = None,
            correlation_id: str | None = None, occurred_at: datetime | None = None,
            caused_by: UUID | None = None, tx: Any = None) -> UUID:
        """Store an event, which fires its triggers; returns its id. With `tx=` it joins that transaction."""
        return wait_or_join(self, self.inner.emit(name, tenant=tenant, data=data,
                correlation_id=correlation_id, occurred_at=occurred_at, caused_by=caused_by, tx=tx), tx)

    def on(self, event: str, /, *, tenant: str | UUID, payload: Mapping[str, Any] | str | None = None,
            filter: Mapping[str, Any] | None = None, window: int | None = None, name: str | None = None,
            **options: Any) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Run a job for each event of this name of a tenant that passes the filter. `options` are those of `job`."""
        made = self.inner.on(event, tenant=tenant, payload=payload, filter=filter, window=window, name=name,
                **options)
        return lambda function: JobFunction(self, made(unwrap(function)))

    def every(self, interval: Seconds, /, *, start_at: datetime | None = None, end_at: datetime | None = None,
            jitter: Seconds | None = None, tenant: str | UUID = GLOBAL_TENANT, name: str | None = None,
            payload: Mapping[str, Any] | None = None, catch_up: str | None = None, overlap: str | None = None,
            **options: Any) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Run a job at an interval, from `start_at` or from when it is first stored. `options` are those of `job`."""
        made = self.inner.every(interval, start_at=start_at, end_at=end_at, jitter=jitter, tenant=tenant,
                name=name, payload=payload, catch_up=catch_up, overlap=overlap, **options)
        return lambda function: JobFunction(self, made(unwrap(function)))

    def cron(self, expr: str, /, *, timezone: str | None = None, end_at: datetime | None = None,
            jitter: Seconds | None = None, tenant: str | UUID = GLOBAL_TENANT, name: str | None = None,
            payload: Mapping[str, Any] | None = None, catch_up: str | None = None, overlap: str | None = None,
            **options: Any) -> Callable[[Callable[P, R]], JobFunction[P, R]]:
        """Run a job at the times of a cron expression, in this zone or in the tenant's. `options` are those of `job`."""
        made = self.inner.cron(expr, timezone=timezone, end_at=end_at, jitter=jitter, tenant=tenant,
                name=name, payload=payload, catch_up=catch_up, overlap=overlap, **options)
        return lambda function: JobFunction(self, made(unwrap(function)))

    def sync_schedules(self) -> list[Trigger]:
        """Store the triggers of `every`, `cron` and `on`, and remove those that the code no longer has."""
        return self.wait(self.inner.sync_schedules())

    def sync_triggers(self) -> None:
        """Store the triggers of `on` for existing tenants; schedules stay unchanged, and nothing is removed."""
        self.wait(self.inner.sync_triggers())

    def backfill(self, schedule: UUID | str | KeyedFunction, since: datetime, until: datetime | None = None,
            *, tenant: str | UUID = GLOBAL_TENANT, priority: int | None = None, progress: Callable[[int],
            None] | None = None) -> Backfill:
        """Enqueue a job for each instant from `since` to before `until` (default: now) that has none; all or none."""
        return self.wait(self.inner.backfill(schedule, since, until, tenant=tenant, priority=priority,
                progress=progress))

    def preview_backfill(self, schedule: UUID | str | KeyedFunction, since: datetime,
            until: datetime | None = None, *, tenant: str | UUID = GLOBAL_TENANT,
            count: int = 100) -> BackfillPreview:
        """Count the instants of a range, list the first `count`, and see which have jobs and how far these are."""
        return self.wait(self.inner.preview_backfill(schedule, since, until, tenant=tenant, count=count))

    def register(self, tenant: str | UUID, job_id: str, start_at: datetime, repeat_every: Seconds,
            fn: Callable[..., Any], *, end_at: datetime | None = None, jitter: Seconds | None = None,
            timeout: int | None = None) -> Trigger:
        """Run a function for a tenant at `start_at` and then every `repeat_every` (0: once); runs never overlap."""
        return self.wait(self.inner.register(tenant, job_id, start_at, repeat_every, fn, end_at=end_at,
                jitter=jitter, timeout=timeout))

    def unregister(self, tenant: str | UUID, job_id: str) -> None:
        """Remove a schedule that was registered here, also from the database; its queued jobs are canceled."""
        self.wait(self.inner.unregister(tenant, job_id))

    def cancel_periodic(self) -> None:
        """Stop running registered functions in this process; their schedules stay, and other instances continue."""
        self.wait(self.inner.cancel_periodic())

    def workflow(self, key: str, *, tenant: str = GLOBAL_TENANT, description: str = "",
            input_schema: Any = True) -> Flow:
        """Define a workflow for all tenants, or for one. It is published on open, or at its first start."""
        return self.inner.workflow(key, tenant=tenant, description=description, input_schema=input_schema)

    def allow_engine(self) -> None:
        """Serve ENGINE_RUN, jobs that run a workflow and end with it, and the jobs of steps that wait."""
        self.inner.allow_engine()

    def start(self, workflow: str | Flow, *, tenant: str | UUID, input: Any = None,
            version: int | None = None, key: str | None = None, correlation_id: str | None = None,
            started_by_job: UUID | None = None, part: str | None = None) -> WorkflowRun:
        """Start a run of a workflow; it is durable when this returns. There is at most one run per `key`."""
        return WorkflowRun(self, self.wait(self.inner.start(workflow, tenant=tenant, input=input,
                version=version, key=key, correlation_id=correlation_id, started_by_job=started_by_job,
                part=part)))

    def chain(self, *steps: Any, tenant: str | UUID, key: str | None = None,
            correlation_id: str | None = None) -> WorkflowRun:
        """Run jobs one after the other: each a definition, or a definition and its payload."""
        return WorkflowRun(self, self.wait(self.inner.chain(*steps, tenant=tenant, key=key,
                correlation_id=correlation_id)))

    def fan_out(self, definition: Any, payloads: Sequence[Any], *, tenant: str | UUID, join: Any = None,
            payload: Any = None, on_failure: str | None = None, key: str | None = None,
            correlation_id: str | None = None, started_by_job: UUID | None = None,
            part: str | None = None) -> WorkflowRun:
        """Run a job for each payload, then one of `join`, whose payload may use `{{steps.tasks.output}}`."""
        return WorkflowRun(self, self.wait(self.inner.fan_out(definition, payloads, tenant=tenant, join=join,
                payload=payload, on_failure=on_failure, key=key, correlation_id=correlation_id,
                started_by_job=started_by_job, part=part)))

    def run_inline(self, flow: Flow, *, tenant: str | UUID, input: Any = None, key: str | None = None,
            correlation_id: str | None = None, started_by_job: UUID | None = None,
            part: str | None = None) -> WorkflowRun:
        """Start a run of a workflow that is not published."""
        return WorkflowRun(self, self.wait(self.inner.run_inline(flow, tenant=tenant, input=input, key=key,
                correlation_id=correlation_id, started_by_job=started_by_job, part=part)))

    def read_run(self, run_id: UUID | str) -> RunDetails:
        """The current state of a run and its steps."""
        return self.wait(self.inner.read_run(run_id))

    def run_standing(self, run_id: UUID | str) -> Run:
        """The current state of a run, without its steps."""
        return self.wait(self.inner.run_standing(run_id))

    def cancel_run(self, run_id: UUID | str) -> Run:
        """Cancel a run: queued jobs are canceled, running jobs are asked to stop, and no step starts any more."""
        return self.wait(self.inner.cancel_run(run_id))

    def retry_run(self, run_id: UUID | str) -> Run:
        """Continue a failed or canceled run from the steps that did not succeed."""
        return self.wait(self.inner.retry_run(run_id))
