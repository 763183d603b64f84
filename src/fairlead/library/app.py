"""Fairlead: the main class of the library."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from datetime import datetime
from inspect import signature
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import structlog

from fairlead.actions import definitions, gates, tenants
from fairlead.actions import limits as rate_limits
from fairlead.actions import quotas as tenant_quotas
from fairlead.actions import usage as used
from fairlead.actions.cells import resolve_url
from fairlead.actions.usage import UsageReport
from fairlead.db import migrate
from fairlead.db.commit_hooks import CommitHooks
from fairlead.db.database import Database
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.tx import Tx
from fairlead.errors import AlreadyOpen, CommandInvalid, Fault, TenantExists, TenantMoved, TenantMoving
from fairlead.handlers.built_in import load_builtins
from fairlead.handlers.commands import Command, load_commands
from fairlead.handlers.registry import Registry
from fairlead.handlers.secrets import load_secrets
from fairlead.handlers.supervised import Supervised
from fairlead.handlers.threads import Threads
from fairlead.library.approvals import Approvals
from fairlead.library.cell_tenants import add_in_cell
from fairlead.library.cell_workers import CellWorkers
from fairlead.library.cells import CellAnswer
from fairlead.library.client import get_tenant
from fairlead.library.jobs import Jobs
from fairlead.library.leases import JobClaimer, JobLease, KeyedFunction
from fairlead.library.triggers import Triggers
from fairlead.library.workflows import Workflows
from fairlead.model.access import Principal, Tenant
from fairlead.model.cells import Cell
from fairlead.model.flow import Rate
from fairlead.model.gate import Gate
from fairlead.model.job import JobStatus
from fairlead.model.labels import check_labels
from fairlead.model.limits import LimitUse
from fairlead.model.quota import QuotaUse
from fairlead.runtime.database_notice import report_embedded
from fairlead.runtime.durable_steps import DurableSteps
from fairlead.runtime.execution import Execution, ExecutionServices
from fairlead.runtime.joined_ends import JoinedEnds
from fairlead.runtime.periodic import Periodic
from fairlead.runtime.recycling import Recycling
from fairlead.runtime.served_definitions import ServedDefinitions
from fairlead.runtime.store_source import new_worker_id
from fairlead.runtime.tick import Tick, tick
from fairlead.runtime.worker_process import WorkerPlan
from fairlead.settings import Settings, compile_patterns, config_file, load, read_document
from fairlead.store import allotments
from fairlead.store.allotments import HomeDefinitions
from fairlead.version import __version__

log = structlog.get_logger(__name__)

MAX_THREADS = 256


class Fairlead(Triggers, Workflows, Approvals, Jobs):
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
        super().__init__(settings or load({"database_url": database_url}), actor, name)
        self.commands: dict[str, Command] = {}
        self.threads = Threads(MAX_THREADS)
        self.periodic = Periodic(self._execution_of, lambda: self.threads, __version__)
        self.commit_hooks = CommitHooks()
        self._is_opening = False
        self._embedded: EmbeddedPostgres | None = None
        self._claims: JobClaimer | None = None
        # of another cell than the home cell: the definitions of the home cell when it was opened
        self._home_definitions: HomeDefinitions | None = None

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
            if self.cell is None:
                await self.cells.refresh()
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
        await self.cells.close()
        await self.cancel_periodic()
        database, self._database = self._database, None
        self._groups = None
        embedded, self._embedded = self._embedded, None
        self._claims = None
        self._published.clear()  # the next open may use another database
        if database is not None:
            await database.close()
        if embedded is not None:
            await asyncio.to_thread(embedded.stop)
        if not self.threads.stuck and self.cell is None:  # the cells share them
            self.threads.close()
            self.threads = Threads(MAX_THREADS)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _open_cell(self, cell: Cell) -> Self:
        """An open Fairlead of another cell: with the same functions, workflows and principal, and its own database."""
        url = resolve_url(cell.url or "")
        settings = replace(
            self.settings,
            database_url=url,
            direct_url=None,
            schema=cell.schema_name,
            citus=cell.is_citus,
        )
        member = type(self)(settings=settings, name=self.name)
        member.cell, member.principal = cell, self.principal
        member.functions, member.registry, member.commands = self.functions, self.registry, self.commands
        member.threads, member.commit_hooks = self.threads, self.commit_hooks
        member.middleware, member.secrets = self.middleware, self.secrets
        member._share_flows(self)  # noqa: SLF001 - of the same class
        home_definitions = await self.database.single(allotments.read_definitions)
        member._home_definitions = home_definitions  # noqa: SLF001 - of the same class
        await member.open()
        try:
            await member.database.single(allotments.begin)
        except BaseException:
            await member.close()
            raise
        return member

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
            if self._home_definitions is not None:
                # first, since the functions do not know the limits that were set in the home cell
                await allotments.add_definitions(tx, self._home_definitions)
            for key in sorted(self.functions):
                await definitions.publish(tx, self.principal, key, self.functions[key].says)

        await self.database.transact(put_all)

    # Running jobs

    async def work(
        self,
        stop: asyncio.Event,
        abandon: asyncio.Event | None = None,
        *,
        concurrency: int = 100,
        labels: Mapping[str, str] | None = None,
        stopping: Callable[[int], object] = lambda _: None,
        recycling: Recycling | None = None,
    ) -> None:
        """Run jobs of these functions and commands until `stop` is set; then drain, until `abandon` is set.

        `concurrency` is the number of slots, and `labels` are the worker's, such as `{"gpu": "true"}`; by default the settings'.
        It serves all cells. `stopping` is called with the number of running jobs when draining begins. `recycling` watches
        the jobs and the memory of this process: `fairlead worker` uses it.
        """
        if labels is not None:
            check_labels(labels)
        over = abandon or asyncio.Event()
        await CellWorkers(self, concurrency, stopping, over, recycling, labels=labels).run(stop)

    async def tick(self, limit: int = 100) -> Tick:
        """Claim up to `limit` due jobs, run them in this process, and return their statuses: of every cell up to `limit`.

        It first dispatches waiting events and fires due schedules.
        """
        if self.cell is None and self.cells:
            answers = await self.cells.gather(lambda fl: fl._tick(self, limit))  # noqa: SLF001 - the same class
            return _add_ticks(answers)
        return await self._tick(self, limit)

    async def _tick(self, home: Self, limit: int) -> Tick:
        """A tick of this cell; jobs enqueue through `home`, which finds every tenant."""
        seconds = self.settings.lease_seconds
        worker = new_worker_id()
        ends = JoinedEnds(self.database, worker=worker)
        with closing(Supervised(seconds)) as supervised:
            services = ExecutionServices(supervised=supervised, ends=ends, steps=DurableSteps(self.database))
            start = home._execution(services)
            try:
                return await tick(
                    self.database,
                    start,
                    ends,
                    worker=worker,
                    served=(await self._find_served()).ids,
                    limit=limit,
                    lease_seconds=seconds,
                )
            finally:
                await ends.close()

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
            middleware=self.middleware,
            secrets=self.secrets,
        )

    def allow_commands(self, file: Path | None = None) -> None:
        """Also serve the commands of this fairlead.toml (by default the settings file)."""
        found = load_commands(file or config_file())
        _require_distinct_keys(found, self.functions)
        self.commands = found

    def allow_secrets(self, file: Path | None = None) -> None:
        """Let references to the secrets of this fairlead.toml (by default the settings file) be resolved."""
        self.secrets.sources = load_secrets(file or config_file())

    def allow_builtins(self, file: Path | None = None) -> None:
        """Serve the built-in functions that are configured (by default in the settings file).

        Your own function with the same key replaces a built-in one.
        """
        for function, options in load_builtins(self.settings, read_document(file or config_file())):
            if options["key"] not in self.functions:
                _require_distinct_keys(self.commands, [options["key"]])
                self.as_job(function, options)

    async def _plan_work(self, home: Self, **options: Any) -> tuple[WorkerPlan, ServedDefinitions]:
        """The plan of a worker of this cell, and what it serves; jobs enqueue through `home`, which finds every tenant."""
        await self.sync_schedules()
        served = await self._find_served()
        plan = WorkerPlan(
            url=self.database.url,
            settings=self.settings,
            start=home._execution,
            threads=self.threads,
            served=served.ids,
            keys=served.keys,
            version=__version__,
            **options,
        )
        return plan, served

    async def _find_served(self) -> ServedDefinitions:
        served = ServedDefinitions(self.functions, self.commands)
        await served.look(self.database, self.principal)
        return served

    # Usage and gates

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
        whose = None if tenant is None else str(tenant)
        return await self._act_in(
            whose,
            used.report_usage,
            tenant=whose,
            by=by,
            per=per,
            since=since,
            until=until,
            timezone=timezone,
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
        return await self._act_in(
            tenant, gates.pause, tenant=tenant, definition=definition, host=host, note=note
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
        return await self._act_in(
            tenant, gates.resume, tenant=tenant, definition=definition, host=host, note=note
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
        cell: str | None = None,
    ) -> Tenant:
        """Add a tenant, in the given cell or in the home cell; with `exist_ok`, an existing tenant stays unchanged, whatever the other options are.

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

        try:
            if cell is None or await self.cells.member(cell) is self:
                return await self.database.transact(add)
            return await add_in_cell(self, self.principal, cell, slug, said)
        except (TenantExists, TenantMoved, TenantMoving):
            if not exist_ok:
                raise
            there = await self._act_in(slug, get_tenant, slug)  # in whichever cell it lives
            _warn_of_differences(there, said)
            return there

    async def set_quotas(self, tenant: str, **numbers: int | None) -> Tenant:
        """Set a tenant's own quotas: 0 means no limit, None the settings' quota. Quotas that are not named stay."""
        return await self._act_in(tenant, tenants.change, tenant, {"quotas": numbers})

    async def quotas(self, tenant: str) -> list[QuotaUse]:
        """How much a tenant uses of each of its quotas."""

        async def read(tx: Tx, principal: Principal) -> list[QuotaUse]:
            found = await get_tenant(tx, principal, tenant)
            return await tenant_quotas.list_uses(tx, principal, found.id)

        return await self._act_in(tenant, read)

    async def set_rate(
        self,
        rate: Rate | str | None,
        *,
        tenant: str | None = None,
        definition: str | None = None,
        each_tenant: bool = False,
    ) -> Rate | None:
        """Set the rate of a tenant, of a definition or (none named) of the system; None removes it.

        A text such as "100/min+20" is a rate, too. `each_tenant`: the definition's rate for each tenant.
        """
        return await self._act_in(
            tenant, rate_limits.set_rate, rate, tenant=tenant, definition=definition, each_tenant=each_tenant
        )

    async def limits(self, tenant: str | None = None) -> list[LimitUse]:
        """Rates and limits by key, what is left of each, and what it holds back: of a tenant, or of all. Up to 1000."""

        async def read(tx: Tx, principal: Principal) -> list[LimitUse]:
            found = None if tenant is None else await get_tenant(tx, principal, tenant)
            return await rate_limits.list_all(tx, principal, tenant_id=None if found is None else found.id)

        return await self._act_in(tenant, read)

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """A transaction of this Fairlead, for actions."""
        return self.database.transaction()


def _add_ticks(answers: Sequence[CellAnswer[Tick]]) -> Tick:
    """The ticks of all cells as one; a cell that is away is logged."""
    statuses, ran = Counter[JobStatus](), 0
    for answer in answers:
        if answer.error is not None:
            log.warning("cell_away", cell=answer.cell, why=answer.error.message)
        elif answer.value is not None:
            ran += answer.value.ran
            statuses.update(answer.value.statuses)
    return Tick(ran, dict(statuses))


def _require_distinct_keys(commands: Mapping[str, Command], functions: Iterable[str]) -> None:
    if both := sorted(commands.keys() & set(functions)):
        raise CommandInvalid(
            f"{both[0]!r} is a function and a command; give one of them another key.",
            [Fault(f"commands.{both[0]}", "is also a function")],
        )


def _warn_of_differences(there: Tenant, said: Mapping[str, Any]) -> None:
    """Log options that differ from the existing tenant; options with their default values do not count."""
    here = {name: getattr(there, name) for name in said}
    defaults = signature(Fairlead.add_tenant).parameters
    kept = {name: value for name, value in here.items() if said[name] not in (value, defaults[name].default)}
    if kept:
        change_with = f"fairlead tenants set {there.slug}"
        log.warning("tenant_kept", tenant=there.slug, kept=kept, change_with=change_with)
