"""Handles of enqueued jobs, and functions that are also jobs."""

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar
from uuid import UUID

from msgspec.structs import asdict

from fairlead.actions import definitions
from fairlead.errors import JobFailed, ResultTimeout, SignatureInvalid
from fairlead.model.definition import KEY, KEY_WORDS
from fairlead.model.job import EnqueueResult, Job, JobStatus, NewJob
from fairlead.model.outcome import Backoff
from fairlead.model.signature import derive_argument_schema

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LONGEST_PAUSE = 0.5


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
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    pause = look_seconds
    while not over(seen := await look()) and (left := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(pause, left))
        pause = max(look_seconds, min(pause * 1.5, LONGEST_PAUSE))
    return seen


class Enqueuer(Protocol):
    """The Fairlead behind a handle."""

    async def read(self, job_id: UUID | str) -> Job:
        """The current state of a job."""

    async def submit(self, new: NewJob, *, tx: Any = None) -> "EnqueuedJob":
        """Enqueue a request."""


class EnqueuedJob:
    """An enqueued job: its id, and whether it is an active job with the same dedupe key."""

    __slots__ = ("_fl", "deduplicated", "id")

    def __init__(self, fl: Enqueuer, enqueued: EnqueueResult) -> None:
        self._fl = fl
        self.id = enqueued.id
        self.deduplicated = enqueued.deduplicated

    async def read(self) -> Job:
        """The current state of the job."""
        return await self._fl.read(self.id)

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

    def __init__(self, fl: Enqueuer, function: Callable[P, R], options: Mapping[str, Any]) -> None:
        self._fl = fl
        self._options: dict[str, Any] = {}
        self.function = function
        self.key: str = options.get("key") or function.__name__
        if not KEY.fullmatch(self.key):
            raise SignatureInvalid(
                f"{self.key!r} cannot be a job's key: it {KEY_WORDS}. Give another with key=."
            )
        self.says = _build_definition_fields(function, options)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def options(self, **options: Any) -> "JobFunction[P, R]":
        """The same job with options of enqueue: priority, scheduled_for, delay, dedupe_key …"""
        again = JobFunction.__new__(JobFunction)
        again.__dict__.update(self.__dict__)
        again._options = {**self._options, **options}  # noqa: SLF001
        return again

    async def enqueue(self, *, tenant: str | UUID, tx: Any = None, **arguments: Any) -> EnqueuedJob:
        """Enqueue a call with these arguments."""
        return await self._fl.submit(self.with_arguments(tenant=tenant, **arguments), tx=tx)

    def with_arguments(self, *, tenant: str | UUID, **arguments: Any) -> NewJob:
        """A request for enqueue_many."""
        return NewJob(definition=self.key, tenant=str(tenant), payload=arguments, **self._options)


_FIELD_NAMES = {"timeout": "timeout_seconds", "priority": "default_priority"}


def _build_definition_fields(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the definition that the code sets."""
    says: dict[str, Any] = {"kind": "function", "arg_schema": derive_argument_schema(function)}
    if text := inspect.getdoc(function):
        says["description"] = text.splitlines()[0]
    says |= {
        _FIELD_NAMES.get(name, name): value
        for name, value in options.items()
        if value is not None and name != "isolate"
    }
    if isinstance(backoff := says.get("backoff"), Backoff):
        says["backoff"] = asdict(backoff)
    definitions.parse({"key": function.__name__, **says})
    return says
