"""Fairlead: the main class of the library."""

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar, overload
from uuid import UUID

import structlog

from fairlead.actions import definitions, enqueue, gates, jobs, tenants
from fairlead.actions import quotas as tenant_quotas
from fairlead.actions import usage as used
from fairlead.actions import why as explanation
from fairlead.actions.catalog import Catalog
from fairlead.actions.usage import UsageReport
from fairlead.db import migrate
from fairlead.db.commit_hooks import CommitHooks
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.joined import build_sender, drive
from fairlead.db.tx import Database, Tx
from fairlead.errors import AlreadyOpen, CommandInvalid, Fault, NotOpen, SignatureInvalid
from fairlead.handlers.commands import Command, load_commands
from fairlead.handlers.context import with_parent
from fairlead.handlers.registry import Registry
from fairlead.handlers.supervised import Supervised
from fairlead.handlers.threads import Threads
from fairlead.library.handles import EnqueuedJob, JobFunction
from fairlead.library.leases import JobClaimer, JobLease, KeyedFunction
from fairlead.library.triggers import Triggers
from fairlead.library.workflows import Workflows
from fairlead.model.access import Principal, Tenant, trusted_principal
from fairlead.model.gate import Gate
from fairlead.model.job import EnqueueResult, Job, NewJob
from fairlead.model.outcome import Backoff
from fairlead.model.quota import QuotaUse
from fairlead.model.request import parse_id, parse_request, unknown_tenant
from fairlead.model.why import Why
from fairlead.runtime.database_notice import report_embedded
from fairlead.runtime.execution import Execution, ExecutionServices
from fairlead.runtime.periodic import Periodic
from fairlead.runtime.served_definitions import ServedDefinitions
from fairlead.runtime.tick import Tick, tick
from fairlead.runtime.worker_process import WorkerPlan, WorkerProcess
from fairlead.settings import Settings, compile_patterns, config_file, load, read_document
from fairlead.version import __version__

log = structlog.get_logger(__name__)

MAX_THREADS = 256
_TENANT_DEFAULTS: dict[str, Any] = {
    "name": None,
    "timezone": "UTC",
    "weight": 1,
    "max_running": None,
    "quotas": None,
}

P = ParamSpec("P")
R = TypeVar("R")


class Fairlead(Triggers, Workflows):
    """Defines, enqueues and runs jobs on one database.

    Without `FAIRLEAD_DATABASE_URL` (or `database_url=`) it starts an embedded PostgreSQL.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        settings: Settings | None = None,
        actor: str | None = None,
        name: str | None = None,
    ) -> None:
        """`name` identifies the code base that owns schedules in a shared database; the default is its package."""
        self.settings = settings or load({"database_url": database_url})
        self.principal: Principal = trusted_principal(actor or f"app:{_current_user()}")
        self.catalog = Catalog(self.settings)
        self.functions: dict[str, JobFunction[Any, Any]] = {}
        self.registry = Registry()
        self.commands: dict[str, Command] = {}
        self.threads = Threads(MAX_THREADS)
        Triggers.__init__(self, name, Periodic(self._execution_of, lambda: self.threads, __version__))
        Workflows.__init__(self)
        self.commit_hooks = CommitHooks()
        self._database: Database | None = None
        self._is_opening = False
        self._embedded: EmbeddedPostgres | None = None
        self._claims: JobClaimer | None = None

    # Opening and closing

    async def open(self) -> None:
        """Connect (and start the embedded database if needed), and publish the functions' definitions.

        AlreadyOpen if it is open; it can be opened again after close.
        """
        if self._database is not None:
            self._database.check_loop()
        if self._database is not None or self._is_opening:
            raise AlreadyOpen("This Fairlead is open already. Use it as it is, or close it first.")
        self._is_opening = True
        try:
            url = self.settings.database_url or await self._start_embedded()
            await migrate.check(self.settings.direct_url or url, self.settings.schema)
            database = Database(url, self.settings, hooks=self.commit_hooks)
            await database.open()
            self._database = database
            await self._publish()
            await self._publish_flows()
        except BaseException:
            await self.close()
            raise
        finally:
            self._is_opening = False

    async def close(self) -> None:
        """Disconnect; the last user of an embedded database stops it."""
        if self._database is not None:
            self._database.check_loop()
        await self.cancel_periodic()
        database, self._database = self._database, None
        embedded, self._embedded = self._embedded, None
        self._claims = None
        self._published.clear()  # the next open may use another database
        if database is not None:
            await database.close()
        if embedded is not None:
            await asyncio.to_thread(embedded.stop)
        if not self.threads.stuck:
            self.threads.close()
            self.threads = Threads(MAX_THREADS)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def database(self) -> Database:
        """The open database."""
        if self._database is None:
            raise NotOpen("This Fairlead is not open. Use `async with fl:`, or `await fl.open()` first.")
        return self._database

    @property
    def is_open(self) -> bool:
        return self._database is not None

    @property
    def direct_url(self) -> str:
        """The database URL that bypasses the pooler."""
        return self.settings.direct_url or self.database.url

    async def _start_embedded(self) -> str:
        self._embedded = EmbeddedPostgres(self.settings.data_dir)
        url = await asyncio.to_thread(self._embedded.start)
        report_embedded(self.settings.data_dir, joined=self._embedded.joined)
        await migrate.up(url, self.settings.schema)
        return url

    async def _publish(self) -> None:
        if not self.functions:
            return

        async def put_all(tx: Tx) -> None:
            for key in sorted(self.functions):
                await definitions.patch(tx, self.principal, key, self.functions[key].says)

        await self.database.transact(put_all)

    # Jobs as functions

    @overload
    def job(self, function: Callable[P, R], /) -> "JobFunction[P, R]": ...

    @overload
    def job(
        self,
        function: None = None,
        /,
        *,
        key: str | None = None,
        timeout: int | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        priority: int | None = None,
        max_running: int | None = None,
        max_running_per_tenant: int | None = None,
        description: str | None = None,
        isolate: bool = False,
    ) -> Callable[[Callable[P, R]], "JobFunction[P, R]"]: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function a job. Its parameters, except `ctx`, become the schema of the payload.

        Options given here override the definition; all others can be changed by an administrator.
        """

        def register(function: Callable[P, R]) -> JobFunction[P, R]:
            made = JobFunction(self, function, options)
            if made.key in self.functions:
                raise SignatureInvalid(
                    f"There are two functions for the key {made.key!r}; give one of them another."
                )
            self.registry.add(made.key, function, isolate=bool(options.get("isolate")))
            self.functions[made.key] = made
            return made

        return register if function is None else register(function)

    def as_job(self, function: Callable[..., Any], options: Mapping[str, Any]) -> JobFunction[Any, Any]:
        """Make a function a job."""
        made: JobFunction[Any, Any] = self.job(**options)(function)
        return made

    # Enqueueing

    async def enqueue(
        self,
        definition: str,
        *,
        tenant: str | UUID,
        payload: Mapping[str, Any] | None = None,
        priority: int | None = None,
        scheduled_for: datetime | None = None,
        delay: float | timedelta | None = None,
        max_attempts: int | None = None,
        dedupe_key: str | None = None,
        correlation_id: str | None = None,
        host_id: UUID | None = None,
        resource_id: UUID | None = None,
        tx: Any = None,
    ) -> "EnqueuedJob":
        """Enqueue a job; it is durable when this returns. With `tx=` it joins that transaction instead."""
        new = NewJob(
            definition=definition,
            tenant=str(tenant) if isinstance(tenant, UUID) else tenant,
            payload={} if payload is None else payload,
            priority=priority,
            scheduled_for=scheduled_for,
            delay=delay,
            max_attempts=max_attempts,
            dedupe_key=dedupe_key,
            correlation_id=correlation_id,
            host_id=host_id,
            resource_id=resource_id,
        )
        return await self.submit(new, tx=tx)

    async def submit(self, new: NewJob, *, tx: Any = None) -> "EnqueuedJob":
        """Enqueue a NewJob; in a handler, as a child of its job."""
        new = with_parent(new)
        if tx is not None:
            [enqueued] = await self._join([new], tx)
        else:
            enqueued = await self._enqueue_alone(new)
        return EnqueuedJob(self, enqueued)

    async def enqueue_many(
        self,
        requests: Sequence[NewJob | Mapping[str, Any]],
        *,
        tx: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> list["EnqueuedJob"]:
        """Enqueue all requests or none; the result has their order. `progress` is called with the number done so far."""
        new = [with_parent(one if isinstance(one, NewJob) else parse_request(one)) for one in requests]
        if tx is not None:
            enqueued = await self._join(new, tx)
        else:
            enqueued = await self.database.transact(
                lambda own: enqueue.enqueue_many(own, self.principal, self.catalog, new, progress=progress),
                unhurried=True,
            )
        return [EnqueuedJob(self, one) for one in enqueued]

    async def _enqueue_alone(self, new: NewJob) -> EnqueueResult:
        tries = 0

        async def once(tx: Tx) -> EnqueueResult:
            nonlocal tries
            tries += 1
            # this side chooses the id, so a call whose response was lost is recognised and not repeated
            return await enqueue.enqueue(tx, self.principal, self.catalog, new, again=tries > 1)

        return await self.database.reach(once)

    async def _join(self, new: Sequence[NewJob], tx: Any) -> list[EnqueueResult]:
        send = build_sender(tx, f"{self.settings.schema}.enqueue_joined")
        return await drive(enqueue.enqueue_joined(self.principal, self.catalog, new), send)

    # Running jobs

    async def work(
        self,
        stop: asyncio.Event,
        abandon: asyncio.Event | None = None,
        *,
        concurrency: int = 100,
        stopping: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Run jobs of these functions and commands until `stop` is set; then drain, until `abandon` is set.

        `stopping` is called with the number of running jobs when draining begins.
        """
        await self.sync_schedules()
        served = await self._find_served()
        plan = WorkerPlan(
            url=self.database.url,
            settings=self.settings,
            start=self._execution,
            threads=self.threads,
            served=served.ids,
            keys=served.keys,
            concurrency=concurrency,
            version=__version__,
            stopping=stopping,
        )
        async with served.keep_searching(self.database, self.principal):
            await WorkerProcess(plan).run(stop, abandon)

    async def tick(self, limit: int = 100) -> Tick:
        """Claim up to `limit` due jobs, run them in this process, and return their statuses.

        It first dispatches waiting events and fires due schedules.
        """
        seconds = self.settings.lease_seconds
        with closing(Supervised(seconds)) as supervised:
            start = self._execution(ExecutionServices(supervised=supervised))
            return await tick(
                self.database,
                start,
                served=(await self._find_served()).ids,
                limit=limit,
                lease_seconds=seconds,
            )

    async def claim(
        self, n: int = 1, *, definitions: Sequence[str | KeyedFunction] | None = None
    ) -> list[JobLease]:
        """Claim up to `n` due jobs to run in your own loop: of these definitions, or of all."""
        if self._claims is None:
            self._claims = JobClaimer(self.database, self.principal)
        return await self._claims.claim(n, definitions)

    def _execution(self, means: ExecutionServices) -> Execution:
        return self._execution_of(self.registry, means)

    def _execution_of(self, registry: Registry, means: ExecutionServices) -> Execution:
        return Execution(
            registry,
            threads=self.threads,
            enqueue=self.submit,
            runs=self,
            commands=self.commands,
            means=means,
            redact_patterns=compile_patterns(self.settings.redact_patterns),
        )

    def allow_commands(self, file: Path | None = None) -> None:
        """Also serve the commands of this fairlead.toml (by default the settings file)."""
        found = load_commands(file or config_file())
        _require_distinct_keys(found, self.functions)
        self.commands = found

    def allow_builtins(self, file: Path | None = None) -> None:
        """Serve the built-in functions that are configured (by default in the settings file).

        Your own function with the same key replaces a built-in one.
        """
        # imports an HTTP client, which few applications need and which is slow to import
        from fairlead.handlers.built_in import load_builtins  # noqa: PLC0415

        for function, options in load_builtins(self.settings, read_document(file or config_file())):
            if options["key"] not in self.functions:
                _require_distinct_keys(self.commands, [options["key"]])
                self.as_job(function, options)

    async def _find_served(self) -> ServedDefinitions:
        served = ServedDefinitions(self.functions, self.commands)
        await served.look(self.database, self.principal)
        return served

    # Reading and changing jobs

    async def read(self, job_id: UUID | str) -> Job:
        """The current state of a job."""
        wanted = parse_id(job_id)
        job, _ = await self.database.transact(lambda tx: jobs.show_job(tx, self.principal, wanted))
        return job

    async def cancel(self, job_id: UUID | str) -> Job:
        """Cancel a job: at once if it is queued; if it runs, its worker is asked to stop it."""
        wanted = parse_id(job_id)
        return await self.database.transact(lambda tx: jobs.cancel(tx, self.principal, wanted))

    async def retry(self, job_id: UUID | str, *, payload: Mapping[str, Any] | None = None) -> Job:
        """Queue a failed, dead-lettered or canceled job again, with a fresh budget."""
        wanted = parse_id(job_id)
        return await self.database.transact(
            lambda tx: jobs.retry(tx, self.principal, self.catalog, wanted, payload=payload)
        )

    async def why(self, job_id: UUID | str) -> Why:
        """Why a job is not running: every reason that applies, most decisive first."""
        wanted = parse_id(job_id)
        return await self.database.transact(lambda tx: explanation.explain_job(tx, self.principal, wanted))

    async def usage(
        self,
        *,
        tenant: str | UUID | None = None,
        by: str = "hour",
        per: str = "definition",
        since: datetime | None = None,
        until: datetime | None = None,
        timezone: str | None = None,
    ) -> UsageReport:
        """What attempts used, by `hour`, `day` or `month` and per `definition`, `tenant` or `nothing`; newest first."""
        return await self.database.transact(
            lambda tx: used.report_usage(
                tx,
                self.principal,
                tenant=None if tenant is None else str(tenant),
                by=by,
                per=per,
                since=since,
                until=until,
                timezone=timezone,
            )
        )

    # Pausing

    async def pause(
        self,
        *,
        tenant: str | UUID | None = None,
        definition: str | None = None,
        host: str | UUID | None = None,
        note: str | None = None,
    ) -> Gate:
        """Pause a tenant, a definition or a host, or (none named) the whole system: nothing more is claimed; running jobs go on."""
        return await self.database.transact(
            lambda tx: gates.pause(
                tx, self.principal, tenant=tenant, definition=definition, host=host, note=note
            )
        )

    async def resume(
        self,
        *,
        tenant: str | UUID | None = None,
        definition: str | None = None,
        host: str | UUID | None = None,
        note: str | None = None,
    ) -> Gate:
        """End a pause; without a pause nothing changes."""
        return await self.database.transact(
            lambda tx: gates.resume(
                tx, self.principal, tenant=tenant, definition=definition, host=host, note=note
            )
        )

    # Tenants

    async def add_tenant(
        self,
        slug: str,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        weight: int = 1,
        max_running: int | None = None,
        quotas: Mapping[str, int | None] | None = None,
        exist_ok: bool = False,
    ) -> Tenant:
        """Add a tenant; with `exist_ok`, an existing tenant stays unchanged, whatever the other options are.

        Change one with `fairlead tenants set`, or PATCH /admin/tenants.
        """
        said: dict[str, Any] = {
            "name": name,
            "timezone": timezone,
            "weight": weight,
            "max_running": max_running,
            "quotas": quotas,
        }

        async def add(tx: Tx) -> Tenant:
            if exist_ok and (there := await tenants.find(tx, self.principal, slug)):
                _warn_of_differences(there, said)
                return there
            return await tenants.add(tx, self.principal, slug=slug, **said)

        return await self.database.transact(add)

    async def set_quotas(self, tenant: str, **numbers: int | None) -> Tenant:
        """Set a tenant's own quotas: 0 means no limit, None the settings' quota. Quotas that are not named stay."""
        changes = {"quotas": numbers}
        return await self.database.transact(lambda tx: tenants.change(tx, self.principal, tenant, changes))

    async def quotas(self, tenant: str) -> list[QuotaUse]:
        """How much a tenant uses of each of its quotas."""

        async def read(tx: Tx) -> list[QuotaUse]:
            found = await tenants.find(tx, self.principal, tenant)
            if found is None:
                raise unknown_tenant(tenant)
            return await tenant_quotas.list_uses(tx, self.principal, found.id)

        return await self.database.transact(read)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """A transaction of this Fairlead, for actions."""
        async with self.database.transaction() as tx:
            yield tx


def _require_distinct_keys(commands: Mapping[str, Command], functions: Iterable[str]) -> None:
    if both := sorted(commands.keys() & set(functions)):
        raise CommandInvalid(
            f"{both[0]!r} is a function and a command; give one of them another key.",
            [Fault(f"commands.{both[0]}", "is also a function")],
        )


def _warn_of_differences(there: Tenant, said: Mapping[str, Any]) -> None:
    """Log options that differ from the existing tenant; options with their default values do not count."""
    here = {name: getattr(there, name) for name in said}
    kept = {name: value for name, value in here.items() if said[name] not in (value, _TENANT_DEFAULTS[name])}
    if kept:
        change_with = f"fairlead tenants set {there.slug}"
        log.warning("tenant_kept", tenant=there.slug, kept=kept, change_with=change_with)


def _current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
