"""Client, with which the whole library reaches its database: jobs as functions, enqueued and read."""

import asyncio
import getpass
import inspect
import math
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import count
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload
from uuid import UUID

import msgspec

from fairlead.actions import definitions, edit_job, enqueue, jobs, tenants
from fairlead.actions.catalog import Catalog
from fairlead.actions.enqueue_groups import EnqueueGroups
from fairlead.db.database import Database
from fairlead.db.joined import Exchange, build_sender, drive
from fairlead.db.tx import Tx
from fairlead.errors import (
    ApprovalUnknown,
    DefinitionInvalid,
    EncryptionKeyUnavailable,
    Fault,
    InvalidInput,
    JobFailed,
    JobUnknown,
    NotOpen,
    ResultTimeout,
    SignatureInvalid,
    TenantMoved,
    TenantUnknown,
    WorkflowRunUnknown,
    WrongCell,
)
from fairlead.handlers.batch_job import BatchJob, BatchOptions
from fairlead.handlers.context import Context, with_parent, with_parents
from fairlead.handlers.middleware import Around, EnqueueMiddleware, Manager, Middleware, StoreJobs
from fairlead.handlers.registry import Registry, find_payload_type
from fairlead.handlers.secrets import ResolveSecret, SecretResolver
from fairlead.keys.keyring import Keyring
from fairlead.library.cells import Cells
from fairlead.model.access import Principal, Tenant, trusted_principal
from fairlead.model.cells import Cell
from fairlead.model.definition import KEY, KEY_WORDS, DefinitionSpec
from fairlead.model.flow import KeyLimit, Rate
from fairlead.model.job import Attempt, Debounce, EnqueueResult, Job, JobEdit, JobStatus, NewJob
from fairlead.model.outcome import Backoff
from fairlead.model.request import parse_id, parse_request, unknown_tenant
from fairlead.model.signature import bind_arguments, derive_argument_schema, derive_payload_schema
from fairlead.settings import Settings, compile_patterns

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
ResolveSecretT = TypeVar("ResolveSecretT", bound=ResolveSecret)
AttemptMiddlewareT = TypeVar("AttemptMiddlewareT", bound=Callable[[Context], Around])
BatchMiddlewareT = TypeVar("BatchMiddlewareT", bound=Callable[[Sequence[BatchJob[Any]]], Around])
EnqueueMiddlewareT = TypeVar("EnqueueMiddlewareT", bound=EnqueueMiddleware)
Action = Callable[Concatenate[Tx, Principal, P], Awaitable[T]]

LONGEST_PAUSE = 0.5
# How often an enqueue in the caller's transaction loads the keys of its tenants.
KEY_ROUNDS = 5


async def poll_until(
    look: Callable[[], Awaitable[T]],
    over: Callable[[T], bool],
    *,
    timeout: float | None,  # noqa: ASYNC109 - the name that users expect
    look_seconds: float,
) -> T:
    """Poll, less and less often, until `over` is true or the timeout; returns the last result.

    The last poll is never before the timeout.
    """
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
        raise InvalidInput(
            f"timeout must be a number of seconds, or None, not {timeout!r:.100}.",
            [Fault("timeout", "must be a number of seconds")],
        )
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    pause = look_seconds
    while not over(seen := await look()) and (left := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(pause, left))
        pause = max(look_seconds, min(pause * 1.5, LONGEST_PAUSE))
    return seen


class TenantDatabase(NamedTuple):
    """Where a tenant lives: its cell (None: there is only one database), the database's URL and the schema."""

    tenant: str
    cell: str | None
    database_url: str
    schema: str

    def __repr__(self) -> str:  # a password may be in the URL
        return f"<the database of {self.tenant!r}, cell {self.cell or 'home'}>"


class EnqueuedJob:
    """An enqueued job: its id, and whether it is an active job with the same dedupe key."""

    __slots__ = ("_fl", "_tenant", "deduplicated", "id")

    def __init__(self, fl: "Client", enqueued: EnqueueResult, tenant: str) -> None:
        self._fl = fl
        self._tenant = tenant
        self.id = enqueued.id
        self.deduplicated = enqueued.deduplicated

    async def read(self) -> Job:
        """The current state of the job."""
        return await self._fl.read(self.id, tenant=self._tenant)

    async def edit(
        self,
        *,
        payload: Mapping[str, Any] | None = None,
        priority: int | None = None,
        scheduled_for: datetime | None = None,
        delay: float | timedelta | None = None,
        tags: Sequence[str] | None = None,
    ) -> Job:
        """Change the job while it waits; JobNotEditable if it runs or has ended."""
        return await self._fl.edit(
            self.id, payload=payload, priority=priority, scheduled_for=scheduled_for, delay=delay, tags=tags
        )

    async def result(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - the name that users expect
        """The job's output once it succeeded; JobFailed if it ended otherwise, ResultTimeout if it takes longer."""
        job = await poll_until(
            self.read, lambda job: job.status.terminal, timeout=timeout, look_seconds=0.005
        )
        if job.status is JobStatus.SUCCEEDED:
            return job.output
        if job.status.terminal:
            raise job_failure(job)
        raise ResultTimeout(
            f"Job {self.id} is still {job.status} after {timeout:g} s. Ask why: fairlead jobs why {self.id}"
        )

    def __repr__(self) -> str:
        return f"<job {self.id}{' (deduplicated)' if self.deduplicated else ''}>"


def job_failure(job: Job) -> JobFailed:
    """The error for a job that ended without output."""
    if job.status is JobStatus.CANCELED:
        error = JobFailed(
            f"Job {job.id} was canceled{f', after: {job.last_error}' if job.last_error else ''}"
        )
    else:
        error = JobFailed(f"Job {job.id} is {job.status}: {job.last_error or 'no error was recorded'}")
    error.job_id, error.status, error.last_error = job.id, job.status, job.last_error
    return error


class JobFunction(Generic[P, R]):
    """A function that is also a job: call it as before, or enqueue it."""

    def __init__(self, fl: "Client", function: Callable[P, R], options: Mapping[str, Any]) -> None:
        _check_options(function, options)
        self._fl = fl
        self._options: dict[str, Any] = {}
        self.function = function
        self.key: str = options.get("key") or function.__name__
        if not KEY.fullmatch(self.key):
            raise SignatureInvalid(
                f"{self.key!r} cannot be a job's key: it {KEY_WORDS}. Give another with key=."
            )
        self._is_batch = options.get("batch") is not None
        self.says = _build_definition_fields(function, options)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def around(self) -> tuple[Callable[[Any], Manager], ...]:
        """The middleware around its attempts; the process of an isolated function finds it here."""
        return self._fl.middleware.attempts

    def options(self, **options: Any) -> "JobFunction[P, R]":
        """The same job with options of enqueue: priority, scheduled_for, delay, dedupe_key …"""
        again = JobFunction.__new__(JobFunction)
        again.__dict__.update(self.__dict__)
        again._options = {**self._options, **options}  # noqa: SLF001
        return again

    async def enqueue(self, *, tenant: str | UUID, tx: Any = None, **arguments: Any) -> EnqueuedJob:
        """Enqueue a call with these arguments."""
        return await self._fl.submit(self.with_arguments(tenant=tenant, **arguments), tx=tx)

    @overload
    def payload(
        self: "JobFunction[Concatenate[Context, Q], R]", *args: Q.args, **kwargs: Q.kwargs
    ) -> dict[str, Any]: ...

    @overload
    def payload(self: "JobFunction[Q, R]", *args: Q.args, **kwargs: Q.kwargs) -> dict[str, Any]: ...

    def payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The payload of a call with these arguments, which type checkers check; TypeError if they do not fit."""
        if self._is_batch:
            raise SignatureInvalid(
                f"{self.key} is a batch handler: its payloads are of the type that BatchJob has, not its arguments."
            )
        return bind_arguments(self.function, args, kwargs)

    def with_arguments(self, *, tenant: str | UUID, **arguments: Any) -> NewJob:
        """A request for enqueue_many."""
        return NewJob(definition=self.key, tenant=str(tenant), payload=arguments, **self._options)


# Options of the function, which the definition does not store.
_OF_FUNCTION = frozenset({"isolate", "durable", "batch", "batch_wait", "batch_across_tenants"})
_FIELD_NAMES = {"timeout": "timeout_seconds", "priority": "default_priority"}
_NUMBER, _TEXT, _FLAG = (int, "a whole number"), (str, "a string"), (bool, "True or False")
_LABELS = (Mapping, 'labels such as {"gpu": "true"}')
_RATE = ((Rate, Mapping), "a Rate such as Rate(100, per_seconds=60)")
# The options of `job`: their types, and what to write.
_OPTION_TYPES: dict[str, tuple[Any, str]] = {
    "key": _TEXT,
    "timeout": (int, "a whole number of seconds"),
    "max_attempts": _NUMBER,
    "backoff": ((Backoff, Mapping), "a Backoff such as Backoff(base_seconds=5)"),
    "priority": _NUMBER,
    "max_running": _NUMBER,
    "max_running_per_tenant": _NUMBER,
    "rate": _RATE,
    "rate_per_tenant": _RATE,
    "by_key": ((KeyLimit, Mapping), 'a KeyLimit such as KeyLimit("/customerId")'),
    "slots": _NUMBER,
    "requires": _LABELS,
    "prefers": _LABELS,
    "description": _TEXT,
    "isolate": _FLAG,
    "durable": _FLAG,
    "batch": _NUMBER,
    "batch_wait": ((int, float), "a number of seconds"),
    "batch_across_tenants": _FLAG,
}


def _check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise DefinitionInvalid for unknown options and wrong types, with the names that the decorator has."""
    name = getattr(function, "__name__", repr(function))
    if unknown := sorted(options.keys() - _OPTION_TYPES.keys() - set(DefinitionSpec.__struct_fields__)):
        raise DefinitionInvalid(
            f"The job {name!r} cannot have the option {unknown[0]!r}. Options: {', '.join(_OPTION_TYPES)}.",
            [Fault(one, "unknown option") for one in unknown],
        )
    for option, (types, words) in _OPTION_TYPES.items():
        value = options.get(option)
        # True is an int for Python
        if value is None or (isinstance(value, types) and (types is bool or not isinstance(value, bool))):
            continue
        raise DefinitionInvalid(
            f"The job {name!r} has a wrong option: {option} must be {words}, not {value!r:.100}.",
            [Fault(option, f"must be {words}")],
        )


def _name_options(function: Callable[..., Any], error: DefinitionInvalid) -> DefinitionInvalid:
    """The error with the decorator's names of the options, and with the function."""
    options = {field: option for option, field in _FIELD_NAMES.items()}
    faults = [Fault(options.get(fault.path, fault.path), fault.message) for fault in error.faults]
    if not faults or faults[0].path not in _OPTION_TYPES:
        return error
    why = f"{faults[0].path} {faults[0].message}"
    return DefinitionInvalid(f"The job {function.__name__!r} has a wrong option: {why}.", faults)


def _build_definition_fields(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the definition that the code sets."""
    schema = (
        derive_argument_schema(function)
        if options.get("batch") is None
        else derive_payload_schema(function, find_payload_type(function))
    )
    says: dict[str, Any] = {"kind": "function", "arg_schema": schema}
    if text := inspect.getdoc(function):
        says["description"] = text.splitlines()[0]
    says |= {
        _FIELD_NAMES.get(name, name): value
        for name, value in options.items()
        if value is not None and name not in _OF_FUNCTION
    }
    says |= {
        name: msgspec.to_builtins(value)
        for name, value in says.items()
        if isinstance(value, Backoff | Rate | KeyLimit)
    }
    try:
        definitions.parse({"key": function.__name__, **says})
    except DefinitionInvalid as error:
        raise _name_options(function, error) from None
    return says


def _build_batch_options(options: Mapping[str, Any]) -> BatchOptions | None:
    """How the jobs of a batch handler are collected; None for other functions. SignatureInvalid for bad values."""
    more = {
        name.removeprefix("batch_"): value
        for name, value in options.items()
        if name in ("batch_wait", "batch_across_tenants") and value is not None
    }
    if options.get("batch") is not None:
        return BatchOptions(options["batch"], **more)
    if any(more.values()):
        raise SignatureInvalid("batch_wait and batch_across_tenants need batch=, the most jobs of a batch.")
    return None


def _find_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Client:
    """A database and its principal: makes functions jobs, enqueues jobs and reads them."""

    def __init__(self, settings: Settings, actor: str | None, name: str | None) -> None:
        self.settings = settings
        self.name = name
        self.principal: Principal = trusted_principal(actor or f"app:{_current_user()}")
        self.catalog = Catalog(settings)
        self.functions: dict[str, JobFunction[Any, Any]] = {}
        self.registry = Registry()
        self.middleware = Middleware()
        self.secrets = SecretResolver()
        self._database: Database | None = None
        self._groups: EnqueueGroups | None = None
        # None: home, or no directory
        self.cell: Cell | None = None

    @cached_property
    def cells(self) -> Cells[Self]:
        """The cells of all tenants; without a directory this one."""
        return Cells(self, self.principal, self._open_cell)

    async def _open_cell(self, cell: Cell) -> Self:
        """An open client of another cell."""
        raise NotImplementedError

    async def close(self) -> None:
        """Disconnect."""
        raise NotImplementedError

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

    async def _act(self, action: Action[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an action in a transaction, as this client's principal."""
        return await self.database.transact(lambda tx: action(tx, self.principal, *args, **kwargs))

    async def _search(self, action: Action[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an action about one id in the cell that has it."""
        return await self.cells.search(
            lambda fl: fl._act(action, *args, **kwargs),  # noqa: SLF001 - a client of the same kind
            (JobUnknown, WorkflowRunUnknown, ApprovalUnknown),
        )

    async def _act_unhurried(self, action: Action[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an action of any length: no time limit applies."""
        return await self.database.transact(
            lambda tx: action(tx, self.principal, *args, **kwargs), unhurried=True
        )

    async def _act_unhurried_in(
        self, tenant: str, action: Action[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`_act_unhurried` in the cell of a tenant."""
        return await self.cells.in_cell(tenant, lambda fl: fl._act_unhurried(action, *args, **kwargs))  # noqa: SLF001

    async def _act_in(
        self, tenant: str | UUID | None, action: Action[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an action in the cell of a tenant; without one, in the home cell."""
        if tenant is None:
            return await self._act(action, *args, **kwargs)
        return await self.cells.in_cell(str(tenant), lambda fl: fl._act(action, *args, **kwargs))  # noqa: SLF001

    def _act_once(self, action: Callable[..., Awaitable[T]], new: Any) -> Awaitable[T]:
        """Store a request, also over a lost connection: its id is known, so that no try stores it twice."""
        tries = count()
        return self.database.reach(
            lambda tx: action(tx, self.principal, self.catalog, new, again=next(tries) > 0)
        )

    async def _join(self, exchange: Exchange[T], function: str, tx: Any) -> T:
        """Send a request to a stored function, inside the caller's transaction."""
        try:
            return await drive(exchange, build_sender(tx, f"{self.settings.schema}.{function}"))
        except (TenantMoved, TenantUnknown) as error:
            if self.cell is None and isinstance(error, TenantUnknown) and not self.cells:
                raise
            raise WrongCell(
                f"{error.message} This transaction is on the database of another cell: open it on that of the tenant, "
                "which `await fl.for_tenant(tenant)` names."
            ) from error

    # Jobs as functions

    @overload
    def job(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...

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
        rate: Rate | None = None,
        rate_per_tenant: Rate | None = None,
        by_key: KeyLimit | None = None,
        slots: int | None = None,
        requires: Mapping[str, str] | None = None,
        prefers: Mapping[str, str] | None = None,
        description: str | None = None,
        isolate: bool = False,
        durable: bool = False,
        batch: int | None = None,
        batch_wait: float | None = None,
        batch_across_tenants: bool = False,
    ) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...

    def job(self, function: Any = None, /, **options: Any) -> Any:
        """Make a function a job. Its parameters, except `ctx`, become the schema of the payload.

        With `durable`, it may have steps whose results survive it, and waits: `ctx.step`, `ctx.sleep` and others.
        With `batch`, it is called with a list of up to that many jobs, which come within `batch_wait` seconds.
        Options given here override the definition; all others can be changed by an administrator.
        """
        if function is None:
            return lambda function: self.as_job(function, options)
        if not callable(function):
            raise SignatureInvalid(f"A job needs a function, not {function!r}. To name it: @fl.job(key=…).")
        return self.as_job(function, options)

    def as_job(
        self,
        function: Callable[P, R],
        options: Mapping[str, Any],
        check: Callable[[JobFunction[P, R]], object] = lambda _: None,
    ) -> JobFunction[P, R]:
        """Make a function a job, unless `check` raises an error: nothing of it is kept then."""
        batch = _build_batch_options(options)
        made = JobFunction(self, function, options)
        if made.key in self.functions:
            raise SignatureInvalid(
                f"There are two functions for the key {made.key!r}; give one of them another."
            )
        check(made)
        self.registry.add(
            made.key,
            function,
            isolate=bool(options.get("isolate")),
            batch=batch,
            durable=bool(options.get("durable")),
        )
        self.functions[made.key] = made
        return made

    # Middleware

    def around_attempt(self, function: AttemptMiddlewareT) -> AttemptMiddlewareT:
        """Run a function with one `yield` around each attempt of a function, except batches; the first is the outermost."""
        self.middleware.add_for_attempts(function)
        return function

    def around_batch(self, function: BatchMiddlewareT) -> BatchMiddlewareT:
        """Run a function with one `yield` around each call of a batch handler; it gets the list of jobs."""
        self.middleware.add_for_batches(function)
        return function

    def around_enqueue(self, function: EnqueueMiddlewareT) -> EnqueueMiddlewareT:
        """Call an `async def` for the requests of each enqueue; it awaits `store(requests)` and returns the result."""
        self.middleware.add_for_enqueues(function)
        return function

    def resolve_secret(self, function: ResolveSecretT) -> ResolveSecretT:
        """Ask this function for the text of each secret that payloads refer to and fairlead.toml does not have."""
        self.secrets.use(function)
        return function

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
        tags: Sequence[str] | None = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of the job's attempts
        expires_in: float | timedelta | None = None,
        unique_for: float | timedelta | None = None,
        debounce: Debounce | None = None,
        host_id: UUID | None = None,
        resource_id: UUID | None = None,
        tx: Any = None,
    ) -> EnqueuedJob:
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
            tags=tags,  # type: ignore[arg-type] # check_request refuses what is no list of texts
            timeout=timeout,
            expires_in=expires_in,
            unique_for=unique_for,
            debounce=debounce,
            host_id=host_id,
            resource_id=resource_id,
        )
        return await self.submit(new, tx=tx)

    async def submit(self, new: NewJob, *, tx: Any = None) -> EnqueuedJob:
        """Enqueue a NewJob; in a handler, as a child of its job."""
        new = with_parent(new)
        if self.middleware.enqueues:

            async def store(requests: Sequence[NewJob]) -> list[EnqueueResult]:
                return [await self._store(one, tx) for one in requests]

            [job] = await self._enqueue_within([new], store)
            return job
        return EnqueuedJob(self, await self._store(new, tx), new.tenant)

    async def _store(self, new: NewJob, tx: Any) -> EnqueueResult:
        if tx is not None:
            [enqueued] = await self._enqueue_joined([new], tx)
            return enqueued
        return await self.cells.in_cell(
            new.tenant,
            lambda fl: (fl._groups or fl._open_groups()).enqueue(new),  # noqa: SLF001
        )

    async def _enqueue_within(self, requests: Sequence[NewJob], store: StoreJobs) -> list[EnqueuedJob]:
        """Enqueue through the middleware, which may change the requests."""
        stored: Sequence[NewJob] = requests

        async def store_last(requests: Sequence[NewJob]) -> list[EnqueueResult]:
            nonlocal stored
            stored = requests
            return await store(requests)

        results = await self.middleware.enqueue(requests, store_last)
        return [EnqueuedJob(self, one, of.tenant) for of, one in zip(stored, results, strict=True)]

    def _open_groups(self) -> EnqueueGroups:
        self._groups = EnqueueGroups(self.principal, self.catalog, self.database)
        return self._groups

    async def enqueue_many(
        self,
        requests: Sequence[NewJob | Mapping[str, Any]],
        *,
        tx: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[EnqueuedJob]:
        """Enqueue all requests or none; the result has their order. `progress` is called with the number done so far."""
        new = with_parents([one if isinstance(one, NewJob) else parse_request(one) for one in requests])

        async def store(requests: Sequence[NewJob]) -> list[EnqueueResult]:
            if tx is not None:
                return await self._enqueue_joined(requests, tx)
            return await self._enqueue_in_cells(requests, progress)

        if self.middleware.enqueues:
            return await self._enqueue_within(new, store)
        enqueued = await store(new)
        return [EnqueuedJob(self, one, of.tenant) for of, one in zip(new, enqueued, strict=True)]

    async def _enqueue_in_cells(
        self, new: Sequence[NewJob], progress: Callable[[int], None] | None
    ) -> list[EnqueueResult]:
        """Enqueue all of them or none; with a directory, all or none of each cell, one cell after the other."""

        async def enqueue_in(fl: Self, part: Sequence[NewJob]) -> list[EnqueueResult]:
            return await fl._act_unhurried(enqueue.enqueue_many, fl.catalog, part, progress=progress)

        names = {one.tenant for one in new}
        if not self.cells or len(names) == 1:
            first = next(iter(names), "")
            return await self.cells.in_cell(first, lambda fl: enqueue_in(fl, new))
        await asyncio.gather(*map(self.cells.find, names))
        parts: dict[int, list[int]] = {}
        for place, one in enumerate(new):
            parts.setdefault(id(self.cells.find_known(one.tenant)), []).append(place)
        answers: dict[int, EnqueueResult] = {}
        for places in parts.values():
            part = [new[place] for place in places]
            done = await self.cells.in_cell(part[0].tenant, lambda fl, part=part: enqueue_in(fl, part))  # type: ignore[misc]
            answers.update(zip(places, done, strict=True))
        return [answers[place] for place in range(len(new))]

    async def _enqueue_joined(self, new: Sequence[NewJob], tx: Any) -> list[EnqueueResult]:
        names = {one.tenant for one in new}
        fl = await self._find_joined(names)
        for _ in range(KEY_ROUNDS):
            exchange = enqueue.enqueue_joined(fl.principal, fl.catalog, new, fl._keyring)  # noqa: SLF001 - a client of the same kind
            try:
                return await self._join_in(fl, names, exchange, "enqueue_joined", tx)
            except enqueue.KeysNeeded as needed:
                await fl._load_keys(needed.tenants)  # noqa: SLF001 - a client of the same kind
        raise EncryptionKeyUnavailable("The keys of these tenants keep changing; try again.")

    @property
    def _keyring(self) -> Keyring:
        """The keys of this process for secrets at rest."""
        return self._own_keyring if self._database is None else self._database.keyring

    @cached_property
    def _own_keyring(self) -> Keyring:
        ring = Keyring(self.settings)
        if ring.current_master is None:
            # it has no connection of its own to ask with: if the database encrypts, enqueue_joined refuses plain secrets
            ring.note_state(is_on=False)
        return ring

    async def _load_keys(self, tenants: Collection[str]) -> None:
        """Load the keys of tenants over a connection of this client: the caller's may not commit what it writes."""
        if self._database is None:
            if self._keyring.current_master is None and not self._keyring.is_known_on:
                self._keyring.note_state(is_on=False)
                return
            self._keyring.require_master()
            raise EncryptionKeyUnavailable(
                "These jobs have secrets that are encrypted, and this Fairlead is not open: open it (`with fl:`, or "
                "`await fl.open()`), so that it can read the tenant's key."
            )
        database = self._database
        work = database.transact(lambda tx: enqueue.load_keys(tx, tenants))
        loop = database.loop
        if loop is not None and loop is not _find_running_loop():
            # a synchronous caller in a thread of its own: see db/joined.py, run_without_loop
            asyncio.run_coroutine_threadsafe(work, loop).result()
        else:
            await work

    async def _join_in(
        self, fl: Self, names: Iterable[str], exchange: Exchange[T], function: str, tx: Any
    ) -> T:
        """Send a request of these tenants to the stored function of their cell."""
        try:
            return await fl._join(exchange, function, tx)
        except WrongCell:
            for name in names:
                self.cells.forget(name)
            raise

    async def _find_joined(self, tenants: Iterable[str]) -> Self:
        """The client whose database a transaction for these tenants must be on; they must share a cell."""
        if not self.cells:
            return self
        found = {tenant: await self.cells.find_remembered(tenant) for tenant in tenants}
        if len({id(fl) for fl in found.values()}) > 1:
            raise WrongCell(
                "The tenants of these jobs live in different cells, and a transaction is on one database: enqueue the "
                "jobs of each cell in a transaction on its database (fl.for_tenant)."
            )
        return next(iter(found.values()), self)

    async def for_tenant(self, tenant: str | UUID) -> TenantDatabase:
        """The cell and the database of a tenant: open the transactions that you pass as `tx=` there."""
        name = str(tenant)
        fl = await self.cells.find(name)
        await fl._act(get_tenant, name)  # noqa: SLF001 - TenantUnknown if there is none
        cell = fl.cell or next((one for one in self.cells.by_name.values() if one.is_home), None)
        return TenantDatabase(
            name, None if cell is None else cell.name, await fl.database.find_url(), fl.settings.schema
        )

    async def read(self, job_id: UUID | str, *, tenant: str | None = None) -> Job:
        """The current state of a job; a known `tenant` makes the search in several cells shorter."""

        async def show(fl: Self) -> Job:
            job, _ = await fl._act(jobs.show_job, parse_id(job_id))
            return job

        if tenant is not None and (known := self.cells.find_known(tenant)) is not self:
            try:
                return await show(known)
            except JobUnknown:  # the tenant has moved
                await self.cells.find(tenant)
        return await self.cells.search(show, (JobUnknown,))

    async def show(self, job_id: UUID | str, *, tx: Any = None) -> tuple[Job, list[Attempt]]:
        """The current state of a job and its newest attempts, first to last. With `tx=` it reads in that transaction."""
        if tx is None:
            job, attempts = await self._search(jobs.show_job, parse_id(job_id))
            return job, list(attempts)
        patterns = compile_patterns(self.settings.redact_patterns)
        exchange = jobs.show_joined(self.principal, parse_id(job_id), patterns)
        return await drive(exchange, build_sender(tx, f"{self.settings.schema}.read_joined"))

    async def edit(
        self,
        job_id: UUID | str,
        *,
        payload: Mapping[str, Any] | None = None,
        priority: int | None = None,
        scheduled_for: datetime | None = None,
        delay: float | timedelta | None = None,
        tags: Sequence[str] | None = None,
    ) -> Job:
        """Change a queued job: values that are not given stay as they are. JobNotEditable if it runs or has ended."""
        change = JobEdit(
            payload=payload, priority=priority, scheduled_for=scheduled_for, delay=delay, tags=tags
        )
        return await self._search(edit_job.edit, self.catalog, parse_id(job_id), change)


async def get_tenant(tx: Tx, principal: Principal, tenant: str) -> Tenant:
    """The tenant with this slug or id; TenantUnknown if there is none."""
    found = await tenants.find(tx, principal, tenant)
    if found is None:
        raise unknown_tenant(tenant)
    return found


def _current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
