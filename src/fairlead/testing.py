"""Helpers for users' tests: a Fairlead on a test database, running jobs and triggers, and assertions."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead import sync
from fairlead.actions import events, jobs, triggers
from fairlead.actions.dispatch import dispatch
from fairlead.actions.schedule_firing import fire_due
from fairlead.db.tx import Tx
from fairlead.errors import TriggerUnknown
from fairlead.handlers.attempt import failure_outcome
from fairlead.handlers.durable_replay import Replayed, replay_history
from fairlead.handlers.registry import Handler, Registry
from fairlead.handlers.step_call import count_seconds
from fairlead.library.app import Fairlead
from fairlead.library.client import job_failure
from fairlead.library.leases import KeyedFunction
from fairlead.model.durable_history import JobHistory, parse_history
from fairlead.model.event import Event
from fairlead.model.job import Job, JobStatus
from fairlead.model.outcome import Failed
from fairlead.model.payload import encode
from fairlead.model.trigger import Trigger, TriggerType
from fairlead.runtime.tick import Tick
from fairlead.store import testing as store
from fairlead.test_database import TENANT, fairlead, fixture, postgres

__all__ = [
    "Replayed",
    "assert_emitted",
    "assert_enqueued",
    "assert_not_enqueued",
    "dispatch_events",
    "fairlead",
    "fire_schedules",
    "fixture",
    "list_enqueued",
    "pass_time",
    "postgres",
    "replay",
    "run_due",
    "run_job",
]

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
StoredT = TypeVar("StoredT", Job, Event)

BATCH = 100
PAGE = 1000
PATIENCE_SECONDS = 30.0
LONGEST_LIST = 20


# Helpers for the asynchronous and the synchronous Fairlead


class Helper(Protocol[P, T_co]):
    """A helper that returns a coroutine for a Fairlead, and the result itself for a synchronous one."""

    @overload
    def __call__(self, fl: Fairlead, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T_co]: ...

    @overload
    def __call__(self, fl: sync.Fairlead, /, *args: P.args, **kwargs: P.kwargs) -> T_co: ...


def _for_both_faces(helper: Callable[Concatenate[Fairlead, P], Coroutine[Any, Any, T]]) -> Helper[P, T]:
    @wraps(helper)
    def call(fl: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        __tracebackhide__ = True
        if isinstance(fl, sync.Fairlead):
            return fl.wait(helper(fl.inner, *args, **kwargs))
        return helper(fl, *args, **kwargs)

    return call


# Running


@_for_both_faces
async def run_due(
    fl: Fairlead, *, limit: int = 1000, until_idle: bool = False, raise_errors: bool = False
) -> Tick:
    """Run due jobs, and the jobs that they enqueue, until none is due; returns the number of runs and their statuses.

    It dispatches waiting events and fires due schedules before and in between.
    With `until_idle`, jobs that wait for their time (scheduled, snoozed, backing off) also run now, and sleeps and timeouts
    of durable functions are over. It stops after `limit` runs, so that a job that always comes back cannot hang a test.
    With `raise_errors`, it raises the first exception of a function, after the jobs that started with it have ended; a
    job that fails in another way (isolated, a command, a timeout) raises JobFailed.
    """
    await fl.sync_triggers()
    ran, statuses = 0, Counter[JobStatus]()
    with _record_errors(fl) if raise_errors else nullcontext() as raised:
        while ran < limit:
            if until_idle:
                await fl.database.transact(store.make_all_due)
            tick = await fl.tick(min(BATCH, limit - ran))
            if tick.ran == 0:
                break
            if raised is not None:
                await _raise_first(fl, raised, tick)
            ran += tick.ran
            statuses.update(tick.statuses)
    return Tick(ran, dict(statuses))


@_for_both_faces
async def pass_time(fl: Fairlead, duration: float | timedelta | None = None, /, **parts: float) -> None:
    """Let time pass for waiting jobs: scheduled, snoozed or backing off, and for the sleeps and timeouts of durable functions.

    Seconds, a timedelta, or parts such as `days=3`. `run_due` then runs the jobs that are due.
    """
    seconds = count_seconds(duration, parts)
    await fl.database.transact(lambda tx: store.pass_time(tx, seconds))


def replay(
    function: Callable[..., Any], history: JobHistory | Mapping[str, Any] | str | bytes | Path
) -> Replayed:
    """Run a durable function with what a job of it has recorded, to see whether its code may change under that job.

    `history` is the output of `fairlead jobs history JOB_ID --json`, a file with it, or the result of `fl.history`. No step
    runs, and there is no database. Raises Nondeterministic, with the first difference, if the code asks for other calls.
    """
    if isinstance(history, Path):
        history = history.read_bytes()
    parsed = history if isinstance(history, JobHistory) else parse_history(history)
    plain = getattr(function, "function", function)
    # with a loop of its own, also where a loop runs
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(replay_history(plain, parsed))).result()


@_for_both_faces
async def run_job(
    fl: Fairlead,
    definition: str | KeyedFunction,
    payload: Mapping[str, Any] | None = None,
    *,
    tenant: str | UUID = TENANT,
) -> Any:
    """Enqueue a job, run it with everything else that is due, and return its output; raises what a function raises.

    The payload is checked as for every enqueue. A job that is not due afterwards (it failed or snoozed) raises
    ResultTimeout.
    """
    job = await fl.enqueue(_key_of(definition), tenant=tenant, payload=payload)
    await run_due(fl, raise_errors=True)
    return await job.result(timeout=0)


@contextmanager
def _record_errors(fl: Fairlead) -> Iterator[list[Exception]]:
    """Collect the exceptions of functions within the block, in order."""
    raised: list[Exception] = []
    before, fl.registry = fl.registry, _RecordingRegistry(fl.registry, raised)
    try:
        yield raised
    finally:
        fl.registry = before


class _RecordingRegistry(Registry):
    """A registry whose handlers record their exceptions."""

    def __init__(self, inner: Registry, raised: list[Exception]) -> None:
        super().__init__()
        self._inner = inner
        self._raised = raised

    def get(self, key: str, tenant_id: UUID | None = None) -> Handler | None:
        handler = self._inner.get(key, tenant_id)
        if handler is None or handler.isolate:
            return handler
        record = self._wrap_async if handler.is_async else self._record_error()
        return replace(handler, function=record(handler.function))

    def _wrap_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        async def convert(*arguments: Any, **named: Any) -> Any:
            with self._record_error():
                return await function(*arguments, **named)

        return convert

    @contextmanager
    def _record_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if isinstance(failure_outcome(error), Failed):  # not a snooze
                self._raised.append(error)
            raise


async def _raise_first(fl: Fairlead, raised: Sequence[Exception], tick: Tick) -> None:
    if raised:
        raise raised[0]
    if bad := [status for status in (JobStatus.FAILED, JobStatus.DEAD_LETTER) if tick.statuses.get(status)]:
        ended = [job for job in await _list_jobs(fl) if job.status in bad]
        raise job_failure(max(ended, key=lambda job: job.finished_at or job.queued_at))


@_for_both_faces
async def dispatch_events(fl: Fairlead) -> int:
    """Create the jobs for waiting events, without running them. Returns the number of events.

    Triggers in code (`fl.on`) are synced first.
    """
    await fl.sync_triggers()
    return await _repeat(
        fl, lambda tx: dispatch(tx, fl.catalog, limit=BATCH, patience_seconds=PATIENCE_SECONDS)
    )


@_for_both_faces
async def fire_schedules(fl: Fairlead, *schedules: str | KeyedFunction) -> int:
    """Fire all due schedules, or these schedules, due or not, without running their jobs. Returns the number fired.

    Name a schedule by its label or its function. Schedules in code (`fl.every`, `fl.cron`) are synced first.
    """
    await fl.sync_schedules()
    if not schedules:
        grace = fl.settings.schedule_grace_seconds
        return await _repeat(fl, lambda tx: fire_due(tx, fl.catalog, limit=BATCH, grace_seconds=grace))
    fired = 0
    async with fl.transaction() as tx:
        there = await triggers.list_all(tx, fl.principal, trigger_type=TriggerType.SCHEDULE)
        for wanted in schedules:
            found = [one for one in there if _is_named(one, wanted)]
            if not found:
                labels = ", ".join(sorted(one.label for one in there)) or "none"
                raise TriggerUnknown(f"There is no schedule {wanted!r}. There are: {labels}.")
            for one in found:
                await triggers.fire_now(tx, fl.principal, fl.catalog, one.id)
            fired += len(found)
    return fired


async def _repeat(fl: Fairlead, work: Callable[[Tx], Awaitable[int]]) -> int:
    """Repeat the work until nothing is left to do; returns the total."""
    total = 0
    while done := await fl.database.transact(work):
        total += done
    return total


def _is_named(trigger: Trigger, wanted: str | KeyedFunction) -> bool:
    if isinstance(wanted, str):
        return trigger.label == wanted
    return trigger.definition_key == wanted.key


# Asserting


@_for_both_faces
async def assert_enqueued(
    fl: Fairlead,
    definition: str | KeyedFunction,
    *,
    tenant: str | UUID | None = None,
    payload: Mapping[str, Any] | None = None,
    count: int | None = None,
) -> list[Job]:
    """The matching jobs, newest first; AssertionError if there are none, or not `count`.

    A payload matches if it contains the given values, at every depth. Jobs that have run count, too.
    """
    __tracebackhide__ = True
    there = [(job, job.definition_key, job.payload, f"  {job.status}") for job in await _list_jobs(fl)]
    return _require_match(
        there, _key_of(definition), tenant, payload, count, where="payload", done="enqueued"
    )


@_for_both_faces
async def assert_not_enqueued(
    fl: Fairlead,
    definition: str | KeyedFunction,
    *,
    tenant: str | UUID | None = None,
    payload: Mapping[str, Any] | None = None,
) -> None:
    """AssertionError if there is a matching job, also one that has run; it matches as `assert_enqueued` does."""
    __tracebackhide__ = True
    await assert_enqueued(fl, definition, tenant=tenant, payload=payload, count=0)


@_for_both_faces
async def list_enqueued(
    fl: Fairlead,
    definition: str | KeyedFunction | None = None,
    *,
    tenant: str | UUID | None = None,
    payload: Mapping[str, Any] | None = None,
) -> list[Job]:
    """The matching jobs, or all, newest first; jobs that have run count, too. It matches as `assert_enqueued` does."""
    key = None if definition is None else _key_of(definition)
    there = [(job, job.definition_key, job.payload, "") for job in await _list_jobs(fl)]
    return _find_matches(there, key, tenant, None if payload is None else encode(payload)[0])


@_for_both_faces
async def assert_emitted(
    fl: Fairlead,
    name: str,
    *,
    tenant: str | UUID | None = None,
    data: Mapping[str, Any] | None = None,
    count: int | None = None,
) -> list[Event]:
    """The matching events, newest first; AssertionError if there are none, or not `count`.

    Data matches if it contains the given values, at every depth. Dispatched events count, too.
    """
    __tracebackhide__ = True
    there = [(event, event.name, event.data, "") for event in await _list_events(fl)]
    return _require_match(there, name, tenant, data, count, where="data", done="emitted")


async def _list_events(fl: Fairlead) -> list[Event]:
    found: list[Event] = []
    async with fl.transaction() as tx:
        while True:
            before = found[-1].id if found else None
            page = await events.list_events(tx, fl.principal, before=before, limit=PAGE)
            found += page
            if not page.more:
                return found


async def _list_jobs(fl: Fairlead) -> list[Job]:
    found: list[Job] = []
    cursor = None
    async with fl.transaction() as tx:
        while True:
            page = await jobs.list_jobs(tx, fl.principal, jobs.JobFilter(), limit=PAGE, cursor=cursor)
            found += page.items
            if (cursor := page.next_cursor) is None:
                return found


def _key_of(definition: str | KeyedFunction) -> str:
    return definition if isinstance(definition, str) else definition.key


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, dict) and isinstance(wanted, dict):
        return all(name in value and _contains(value[name], part) for name, part in wanted.items())
    # in JSON, true is not 1
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def _find_matches(
    there: Sequence[tuple[StoredT, str, Any, str]], name: str | None, tenant: str | UUID | None, wanted: Any
) -> list[StoredT]:
    return [
        one
        for one, its_name, its_data, _ in there
        if name in (None, its_name)
        and (tenant is None or str(tenant) in (one.tenant, str(one.tenant_id)))
        and (wanted is None or _contains(its_data, wanted))
    ]


def _require_match(
    there: Sequence[tuple[StoredT, str, Any, str]],
    name: str,
    tenant: str | UUID | None,
    data: Mapping[str, Any] | None,
    count: int | None,
    *,
    where: str,
    done: str,
) -> list[StoredT]:
    """The jobs or events of this name that match; AssertionError, with a list of what exists, if the number is wrong.

    `there` has each of them with its name, its data and the end of its line in that list.
    """
    __tracebackhide__ = True
    wanted = None if data is None else encode(data)[0]
    found = _find_matches(there, name, tenant, wanted)
    if (len(found) == count) if count is not None else found:
        return found
    what = f"{name!r}"
    what += "" if tenant is None else f" for tenant {str(tenant)!r}"
    what += "" if data is None else f" with {_json(wanted)} in the {where}"
    lines = [
        f"Expected {'at least one' if count is None else count} of {what}, found {len(found) or 'none'}."
    ]
    lines.append(f"{done.capitalize()} were {len(there)}, newest first:" if there else f"Nothing was {done}.")
    listed = there[:LONGEST_LIST]
    lines += [
        f"  {its_name}  {one.tenant}  {_json(its_data)}{end}" for one, its_name, its_data, end in listed
    ]
    if len(there) > LONGEST_LIST:
        lines.append(f"  … and {len(there) - LONGEST_LIST} more")
    raise AssertionError("\n".join(lines))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
