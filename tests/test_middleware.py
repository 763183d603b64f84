"""The application's code around enqueues, attempts and batches."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from fairlead import (
    Context,
    EnqueueResult,
    Fairlead,
    Fatal,
    NewJob,
    Settings,
    Snooze,
    StoreJobs,
    sync,
    testing,
)
from fairlead.errors import JobFailed, SignatureInvalid
from fairlead.model.job import JobStatus
from tests.given import OTHER, TENANT
from tests.processes import FAIRLEAD, started
from tests.waiting import SECONDS
from tests.working import working

CURRENT: contextvars.ContextVar[str] = contextvars.ContextVar("CURRENT", default="nothing")


# Attempts


async def test_middleware_runs_around_functions_on_the_loop_and_in_threads_in_the_order_of_registration(
    settings: Settings,
) -> None:
    fl, seen = Fairlead(settings=settings), list[str]()

    @fl.around_attempt
    def outer(ctx: Context) -> Iterator[None]:
        seen.append(f"outer {ctx.definition_key}")
        token = CURRENT.set(f"{ctx.tenant} {ctx.attempt_no}")
        yield
        CURRENT.reset(token)
        seen.append("outer ends")

    @fl.around_attempt
    def inner(ctx: Context) -> Iterator[None]:
        seen.append(f"inner in the thread {threading.current_thread() is threading.main_thread()}")
        yield
        seen.append("inner ends")

    @fl.job
    async def on_loop() -> str:
        seen.append("runs")
        return CURRENT.get()

    @fl.job
    def in_thread() -> str:
        seen.append("runs")
        return CURRENT.get()

    async with fl, working(fl):
        outputs = [
            await (await one.enqueue(tenant=TENANT)).result(timeout=SECONDS) for one in (on_loop, in_thread)
        ]

    assert outputs == [f"{TENANT} 1"] * 2
    both = [("on_loop", True), ("in_thread", False)]
    assert seen == [
        line
        for key, is_main in both
        for line in (
            f"outer {key}",
            f"inner in the thread {is_main}",
            "runs",
            "inner ends",
            "outer ends",
        )
    ]
    assert CURRENT.get() == "nothing"


async def test_asynchronous_middleware_runs_on_the_loop_also_around_a_thread(settings: Settings) -> None:
    fl, seen = Fairlead(settings=settings), list[Any]()

    @fl.around_attempt
    async def session(ctx: Context) -> AsyncIterator[None]:
        async with asyncio.timeout(SECONDS):  # which must be entered and left in one task
            seen.append(threading.current_thread() is threading.main_thread())
            try:
                yield
            except ZeroDivisionError as error:
                seen.append("caught")
                raise Fatal("no") from error
            await asyncio.sleep(0)
            seen.append("left")

    @fl.job
    def fine() -> int:
        return 5

    @fl.job
    def broken() -> float:
        return 1 / 0

    @fl.job
    async def broken_on_loop() -> float:
        return 1 / 0

    async with fl, working(fl):
        assert await (await fine.enqueue(tenant=TENANT)).result(timeout=SECONDS) == 5
        assert seen == [True, "left"]
        for one in (broken, broken_on_loop):
            job = await one.enqueue(tenant=TENANT)
            with pytest.raises(JobFailed):
                await job.result(timeout=SECONDS)
            ended = await job.read()
            assert (ended.status, ended.last_error) == (JobStatus.FAILED, "Fatal: no")

    assert seen == [True, "left", True, "caught", True, "caught"]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_middleware_decides_what_becomes_of_an_exception(
    settings: Settings, *, in_thread: bool
) -> None:
    """It captures one, suppresses one, and replaces one; what it raises itself before the handler fails the attempt."""
    fl, captured, ran = Fairlead(settings=settings), list[str](), list[str]()

    @fl.around_attempt
    def capture(ctx: Context) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            captured.append(f"{type(error).__name__}: {error}")
            if ctx.payload["what"] != "suppressed":
                raise

    @fl.around_attempt
    def guard(ctx: Context) -> Iterator[None]:
        if ctx.payload["what"] == "refused":
            raise Fatal("not today")
        if ctx.payload["what"] == "snoozed":
            raise Snooze(3600)
        yield

    def raise_it(what: str) -> None:
        ran.append(what)
        raise KeyError(what)

    async def raise_it_async(what: str) -> None:
        raise_it(what)

    work = fl.job(key="work", max_attempts=1)(raise_it if in_thread else raise_it_async)
    async with fl:
        jobs = {
            what: await work.enqueue(tenant=TENANT, what=what)
            for what in ("captured", "suppressed", "refused", "snoozed")
        }
        await testing.run_due(fl)
        ends = {what: await job.read() for what, job in jobs.items()}

    assert {what: job.status for what, job in ends.items()} == {
        "captured": JobStatus.DEAD_LETTER,
        "suppressed": JobStatus.SUCCEEDED,
        "refused": JobStatus.FAILED,
        "snoozed": JobStatus.QUEUED,
    }
    assert sorted(ran) == ["captured", "suppressed"]
    assert sorted(captured) == [
        "Fatal: not today",
        "KeyError: 'captured'",
        "KeyError: 'suppressed'",
        "Snooze: 3600",
    ]
    assert "KeyError" in (ends["captured"].last_error or "")


async def test_a_handler_that_exits_within_asynchronous_middleware_fails_only_its_job(
    settings: Settings,
) -> None:
    fl = Fairlead(settings=settings)

    @fl.around_attempt
    async def nothing(ctx: Context) -> AsyncIterator[None]:
        yield

    @fl.job(max_attempts=1)
    def leave() -> None:
        raise SystemExit(3)

    async with fl:
        job = await leave.enqueue(tenant=TENANT)
        await testing.run_due(fl)
        assert (await job.read()).last_error == "SystemExit: 3"


async def test_a_canceled_handler_leaves_its_middleware(settings: Settings) -> None:
    fl, left = Fairlead(settings=settings), asyncio.Event()
    begun = asyncio.Event()

    @fl.around_attempt
    async def clean_up(ctx: Context) -> AsyncIterator[None]:
        try:
            yield
        finally:
            left.set()

    @fl.job
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with fl, working(fl):
        job = await wait.enqueue(tenant=TENANT)
        async with asyncio.timeout(SECONDS):
            await begun.wait()
            await fl.cancel(job.id)
            await left.wait()
        with pytest.raises(JobFailed):
            await job.result(timeout=SECONDS)
        assert (await job.read()).status is JobStatus.CANCELED


def test_a_context_manager_is_middleware_too_and_a_coroutine_is_not(settings: Settings) -> None:
    fl, seen = Fairlead(settings=settings), list[str]()

    class Span(AbstractContextManager[None]):
        def __init__(self, ctx: Context) -> None:
            seen.append(ctx.tenant)

        def __exit__(self, *_: object) -> None:
            seen.append("left")

    fl.around_attempt(Span)

    @fl.job
    def work() -> None: ...

    async def wrong(ctx: Context) -> None: ...

    with pytest.raises(SignatureInvalid, match="one `yield`"):
        fl.around_attempt(wrong)  # type: ignore[type-var]
    with pytest.raises(SignatureInvalid, match="async def"):
        fl.around_enqueue(lambda requests, store: store(requests))

    async def run() -> None:
        async with fl:
            await work.enqueue(tenant=TENANT)
            await testing.run_due(fl)

    asyncio.run(run())
    assert seen == [TENANT, "left"]


ISOLATED = """
import os
from fairlead import Fairlead

fl = Fairlead()
seen = []

@fl.around_attempt
def remember(ctx):
    seen.append([ctx.tenant, os.getpid()])
    yield
    ctx.log.info("left")

@fl.job(isolate=True)
def here() -> list:
    return [seen, os.getpid()]
"""


@pytest.mark.thorough
def test_middleware_of_an_isolated_function_runs_in_its_process(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(ISOLATED)
    env = {"FAIRLEAD_DATABASE_URL": str(settings.database_url)}
    with started([FAIRLEAD, "worker", "shop:fl"], env=env, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving here")
        with sync.Fairlead(settings=settings) as fl:
            seen, pid = fl.enqueue("here", tenant=TENANT).result(timeout=SECONDS)

    assert seen == [[TENANT, pid]]
    assert pid != process.pid


# Enqueues


def stamp(fl: Fairlead | sync.Fairlead, calls: list[int]) -> None:
    @fl.around_enqueue
    async def add_correlation(requests: Sequence[NewJob], store: StoreJobs) -> list[EnqueueResult]:
        calls.append(len(requests))
        return await store([replace(one, correlation_id=CURRENT.get()) for one in requests])


@pytest.fixture
def request_id() -> Iterator[str]:
    token = CURRENT.set("request-7")
    yield "request-7"
    CURRENT.reset(token)


async def test_middleware_changes_enqueues_alone_in_bulk_in_transactions_and_of_handlers(
    settings: Settings, request_id: str
) -> None:
    fl, calls = Fairlead(settings=settings), list[int]()
    stamp(fl, calls)

    @fl.job
    async def child() -> None: ...

    @fl.job
    async def parent(ctx: Context) -> str:
        CURRENT.set("of the handler")
        return str((await ctx.enqueue(child)).id)

    async with fl:
        one = await child.enqueue(tenant=TENANT)
        many = await fl.enqueue_many([child.with_arguments(tenant=name) for name in (TENANT, OTHER, TENANT)])
        async with await psycopg.AsyncConnection.connect(str(settings.database_url)) as connection:
            joined = await child.enqueue(tenant=TENANT, tx=connection)
        above = await parent.enqueue(tenant=TENANT)
        await testing.run_due(fl)
        of_handler = await fl.read(await above.result(timeout=SECONDS))
        stored = [(await job.read()).correlation_id for job in (one, *many, joined)]

    assert stored == [request_id] * 5
    assert of_handler.correlation_id == "of the handler"
    assert of_handler.parent_id == above.id
    assert calls == [1, 3, 1, 1, 1]


def test_middleware_changes_enqueues_of_a_synchronous_fairlead(settings: Settings, request_id: str) -> None:
    fl, calls = sync.Fairlead(settings=settings), list[int]()
    stamp(fl, calls)

    @fl.job
    def work() -> None: ...

    with fl:
        one = work.enqueue(tenant=TENANT)
        with psycopg.connect(str(settings.database_url)) as connection:
            joined = work.enqueue(tenant=TENANT, tx=connection)
        assert [job.read().correlation_id for job in (one, joined)] == [request_id] * 2
    assert calls == [1, 1]


async def test_the_first_middleware_of_enqueues_is_the_outermost_and_an_error_stores_nothing(
    settings: Settings,
) -> None:
    fl, seen = Fairlead(settings=settings), list[str]()

    def note(name: str) -> Callable[..., Any]:
        async def middleware(requests: Sequence[NewJob], store: StoreJobs) -> list[EnqueueResult]:
            seen.append(name)
            done = await store(requests)
            seen.append(f"{name} ends")
            return done

        return middleware

    fl.around_enqueue(note("first"))
    fl.around_enqueue(note("second"))

    @fl.around_enqueue
    async def refuse(requests: Sequence[NewJob], store: StoreJobs) -> list[EnqueueResult]:
        if any(one.tenant == OTHER for one in requests):
            raise PermissionError("not for them")
        return [] if requests[0].payload else await store(requests)

    @fl.job
    async def work(**rest: int) -> None: ...

    async with fl:
        await work.enqueue(tenant=TENANT)
        assert seen == ["first", "second", "second ends", "first ends"]
        with pytest.raises(PermissionError):
            await fl.enqueue_many([work.with_arguments(tenant=name) for name in (TENANT, OTHER)])
        with pytest.raises(RuntimeError, match="0 results for 1 request"):
            await work.enqueue(tenant=TENANT, number=1)
        await testing.assert_enqueued(fl, work, count=1)
