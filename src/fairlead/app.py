"""Fairlead: the library's face."""

import asyncio
import getpass
import inspect
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from fairlead.actions import definitions, enqueue, jobs, tenants
from fairlead.actions.catalog import Catalog
from fairlead.db import migrate
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.joined import drive, sender
from fairlead.db.tx import Database, Tx
from fairlead.errors import NotOpen, SignatureInvalid
from fairlead.model.access import Principal, Tenant, trusted
from fairlead.model.definition import KEY
from fairlead.model.job import Enqueued, Job, NewJob
from fairlead.model.outcome import Backoff
from fairlead.model.request import as_id, parsed
from fairlead.model.signature import argument_schema
from fairlead.settings import Settings, load

P = ParamSpec("P")
R = TypeVar("R")


class Fairlead:
    """Jobs, enqueue and all that goes with them, on one database.

    Without `FAIRLEAD_DATABASE_URL` (or `database_url=`) it runs an embedded PostgreSQL of its own.
    """

    def __init__(
        self, database_url: str | None = None, *, settings: Settings | None = None, actor: str | None = None
    ) -> None:
        self.settings = settings or load({"database_url": database_url})
        self.principal: Principal = trusted(actor or f"app:{_user()}")
        self.catalog = Catalog(self.settings)
        self.functions: dict[str, JobFunction[Any, Any]] = {}
        self._database: Database | None = None
        self._embedded: EmbeddedPostgres | None = None

    # Opening and closing

    async def open(self) -> None:
        """Connect (starting the embedded database if there is no other) and publish the functions' definitions."""
        if self._database is not None:
            return
        try:
            url = self.settings.database_url or await self._start_embedded()
            await migrate.check(self.settings.direct_url or url, self.settings.schema)
            database = Database(url, self.settings)
            await database.open()
            self._database = database
            await self._publish()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect; the last user of an embedded database stops it."""
        database, self._database = self._database, None
        embedded, self._embedded = self._embedded, None
        if database is not None:
            await database.close()
        if embedded is not None:
            await asyncio.to_thread(embedded.stop)

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
    def direct_url(self) -> str:
        """The database without a pooler in between."""
        return self.settings.direct_url or self.database.url

    async def _start_embedded(self) -> str:
        self._embedded = EmbeddedPostgres(self.settings.data_dir)
        url = await asyncio.to_thread(self._embedded.start)
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
    ) -> Callable[[Callable[P, R]], "JobFunction[P, R]"]: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function a job. Its parameters become the schema of the payload; `ctx` is not one of them.

        What is given here is what the code says; the rest is left to whoever runs the system.
        """

        def register(function: Callable[P, R]) -> JobFunction[P, R]:
            made = JobFunction(self, function, options)
            if made.key in self.functions:
                raise SignatureInvalid(
                    f"There are two functions for the key {made.key!r}; give one of them another."
                )
            self.functions[made.key] = made
            return made

        return register if function is None else register(function)

    # Enqueueing

    async def enqueue(
        self,
        definition: str,
        *,
        tenant: str | UUID,
        payload: Mapping[str, Any] | None = None,
        priority: int | None = None,
        scheduled_for: datetime | None = None,
        max_attempts: int | None = None,
        dedupe_key: str | None = None,
        correlation_id: str | None = None,
        tx: Any = None,
    ) -> "EnqueuedJob":
        """Enqueue a job; it is durable when this returns. With `tx=` it joins that transaction instead."""
        new = NewJob(
            definition=definition,
            tenant=str(tenant) if isinstance(tenant, UUID) else tenant,
            payload={} if payload is None else payload,
            priority=priority,
            scheduled_for=scheduled_for,
            max_attempts=max_attempts,
            dedupe_key=dedupe_key,
            correlation_id=correlation_id,
        )
        return await self.submit(new, tx=tx)

    async def submit(self, new: NewJob, *, tx: Any = None) -> "EnqueuedJob":
        """Enqueue a request that is put together already."""
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
        """Enqueue all of them or none, and answer in their order. `progress` is told how many are through."""
        new = [one if isinstance(one, NewJob) else parsed(one) for one in requests]
        if tx is not None:
            enqueued = await self._join(new, tx)
        else:
            enqueued = await self.database.transact(
                lambda own: enqueue.enqueue_many(own, self.principal, self.catalog, new, progress=progress),
                unhurried=True,
            )
        return [EnqueuedJob(self, one) for one in enqueued]

    async def _enqueue_alone(self, new: NewJob) -> Enqueued:
        tries = 0

        async def once() -> Enqueued:
            nonlocal tries
            tries += 1
            # the id is ours, so a call whose answer was lost is recognised and not made twice
            again = tries > 1
            return await self.database.single(
                lambda tx: enqueue.enqueue(tx, self.principal, self.catalog, new, again=again)
            )

        return await self.database.reach(once)

    async def _join(self, new: Sequence[NewJob], tx: Any) -> list[Enqueued]:
        send = sender(tx, f"{self.settings.schema}.enqueue_joined")
        return await drive(enqueue.joined(self.principal, self.catalog, new), send)

    # What became of them

    async def read(self, job_id: UUID | str) -> Job:
        """A job as it stands now."""
        wanted = as_id(job_id)
        job, _ = await self.database.transact(lambda tx: jobs.show(tx, self.principal, wanted))
        return job

    async def cancel(self, job_id: UUID | str) -> Job:
        """Stop a job: at once if it waits; if it runs, its owner is asked to."""
        wanted = as_id(job_id)
        return await self.database.transact(lambda tx: jobs.cancel(tx, self.principal, wanted))

    async def retry(self, job_id: UUID | str, *, payload: Mapping[str, Any] | None = None) -> Job:
        """Queue a failed, dead-lettered or canceled job again, with a fresh budget."""
        wanted = as_id(job_id)
        return await self.database.transact(
            lambda tx: jobs.retry(tx, self.principal, self.catalog, wanted, payload=payload)
        )

    # Whose work it is

    async def add_tenant(
        self,
        slug: str,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        weight: int = 1,
        max_running: int | None = None,
        exist_ok: bool = False,
    ) -> Tenant:
        """A new tenant; with `exist_ok`, the one that is there already stays as it is."""

        async def add(tx: Tx) -> Tenant:
            if exist_ok and (there := await tenants.find(tx, self.principal, slug)):
                return there
            return await tenants.add(
                tx,
                self.principal,
                slug=slug,
                name=name,
                timezone=timezone,
                weight=weight,
                max_running=max_running,
            )

        return await self.database.transact(add)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """A transaction of our own, for the actions."""
        async with self.database.transaction() as tx:
            yield tx


class EnqueuedJob:
    """A job that was handed in: its id, and whether an active one already stood for it."""

    __slots__ = ("_fl", "deduplicated", "id")

    def __init__(self, fl: Fairlead, enqueued: Enqueued) -> None:
        self._fl = fl
        self.id = enqueued.id
        self.deduplicated = enqueued.deduplicated

    async def read(self) -> Job:
        """The job as it stands now."""
        return await self._fl.read(self.id)

    def __repr__(self) -> str:
        return f"<job {self.id}{' (deduplicated)' if self.deduplicated else ''}>"


class JobFunction(Generic[P, R]):
    """A function that is also a job: call it as before, or enqueue it."""

    def __init__(self, fl: Fairlead, function: Callable[P, R], options: Mapping[str, Any]) -> None:
        self._fl = fl
        self._options: dict[str, Any] = {}
        self.function = function
        self.key: str = options.get("key") or function.__name__
        if not KEY.fullmatch(self.key):
            raise SignatureInvalid(
                f"{self.key!r} cannot be a job's key (it must match {KEY.pattern}); give key=."
            )
        self.says = _says(function, options)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def options(self, **options: Any) -> "JobFunction[P, R]":
        """The same job with options of enqueue: priority, scheduled_for, dedupe_key …"""
        again = JobFunction.__new__(JobFunction)
        again.__dict__.update(self.__dict__)
        again._options = {**self._options, **options}  # noqa: SLF001
        return again

    async def enqueue(self, *, tenant: str | UUID, tx: Any = None, **arguments: Any) -> EnqueuedJob:
        """Enqueue a call with these arguments."""
        return await self._fl.enqueue(self.key, tenant=tenant, payload=arguments, tx=tx, **self._options)

    def with_arguments(self, *, tenant: str | UUID, **arguments: Any) -> NewJob:
        """A call to hand to enqueue_many."""
        return NewJob(definition=self.key, tenant=str(tenant), payload=arguments, **self._options)


_NAMED = {"timeout": "timeout_seconds", "priority": "default_priority"}


def _says(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What the code says about the definition, and nothing it does not say."""
    says: dict[str, Any] = {"kind": "function", "arg_schema": argument_schema(function)}
    if text := inspect.getdoc(function):
        says["description"] = text.splitlines()[0]
    says |= {_NAMED.get(name, name): value for name, value in options.items() if value is not None}
    if isinstance(backoff := says.get("backoff"), Backoff):
        says["backoff"] = asdict(backoff)
    definitions.read({"key": function.__name__, **says})
    return says


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
