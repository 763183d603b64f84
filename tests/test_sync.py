"""The synchronous face: what it has, and what makes jobs by itself."""

import asyncio
import concurrent.futures
import inspect
import threading
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from fairlead import (
    Context,
    EnqueuedJob,
    Fairlead,
    JobFunction,
    JobLease,
    JobStatus,
    NewJob,
    Settings,
    WorkflowRun,
    sync,
    testing,
)
from fairlead.actions import triggers
from fairlead.errors import (
    AlreadyOpen,
    AlreadyRegistered,
    ConnectionNotSupported,
    JobFailed,
    RegistrationUnknown,
    ResultTimeout,
)
from fairlead.model.trigger import Trigger
from fairlead.runtime.tick import Tick
from tests import sync_source
from tests.given import TENANT
from tests.processes import until
from tests.tables import each_case
from tests.waiting import SECONDS

FAR = datetime(2999, 1, 1, tzinfo=UTC)


def kept(fl: sync.Fairlead) -> dict[str, Trigger]:
    async def listed() -> dict[str, Trigger]:
        async with fl.inner.transaction() as tx:
            return {one.label: one for one in await triggers.list_triggers(tx, fl.inner.principal)}

    return fl.wait(listed())


def emitted(fl: sync.Fairlead, name: str, **asked: Any) -> list[Any]:
    return testing.assert_emitted(fl, name, **asked)


# What it has


def test_the_committed_source_is_what_the_asynchronous_library_makes() -> None:
    assert sync_source.COMMITTED.read_text("utf-8") == sync_source.generate(), "run `make sync`"


@each_case(
    ("asynchronous", "synchronous", "left_out"),
    [
        (Fairlead, sync.Fairlead, sync_source.ONLY_ASYNCHRONOUS),
        (EnqueuedJob, sync.EnqueuedJob, set()),
        (JobFunction, sync.JobFunction, set()),
        (JobLease, sync.JobLease, set()),
        (WorkflowRun, sync.WorkflowRun, set()),
    ],
)
def test_both_faces_have_the_same_names(asynchronous: type, synchronous: type, left_out: set[str]) -> None:
    there, here = ({name for name in dir(kind) if name[0] != "_"} for kind in (asynchronous, synchronous))

    assert there - here == left_out


@each_case(
    ("asynchronous", "synchronous"),
    [
        (Fairlead, sync.Fairlead),
        (EnqueuedJob, sync.EnqueuedJob),
        (JobFunction, sync.JobFunction),
        (JobLease, sync.JobLease),
        (WorkflowRun, sync.WorkflowRun),
    ],
)
def test_both_faces_take_the_same_arguments(asynchronous: type, synchronous: type) -> None:
    events_of_threads = {"work"}
    for name, function in inspect.getmembers(synchronous, inspect.isfunction):
        if name[0] != "_" and name not in {"wait"} | events_of_threads:
            here = inspect.signature(function).parameters.values()
            there = inspect.signature(getattr(asynchronous, name)).parameters.values()
            assert [str(one) for one in here] == [str(one) for one in there], name


@pytest.fixture
def shop(settings: Settings) -> sync.Fairlead:
    """An application with jobs, not open yet."""
    fl = sync.Fairlead(settings=settings)

    @fl.job
    def double(n: int) -> int:
        return n * 2

    @fl.job(max_attempts=1)
    def fail() -> None:
        raise RuntimeError("never")

    return fl


def test_an_enqueued_job_can_be_read_and_waited_for(shop: sync.Fairlead) -> None:
    with shop as fl:
        job = fl.enqueue("double", tenant=TENANT, payload={"n": 4})
        failed = fl.enqueue("fail", tenant=TENANT)
        [many] = fl.enqueue_many([NewJob(definition="double", tenant=TENANT, payload={"n": 5})])
        assert (job.read().status, str(job.id) in repr(job)) == (JobStatus.QUEUED, True)
        with pytest.raises(ResultTimeout):
            job.result(timeout=0)

        assert fl.tick() == Tick(3, {JobStatus.SUCCEEDED: 2, JobStatus.DEAD_LETTER: 1})
        assert (job.result(timeout=SECONDS), many.result(timeout=SECONDS)) == (8, 10)
        with pytest.raises(JobFailed, match="never"):
            failed.result(timeout=SECONDS)


def test_it_works_until_it_is_told_to_stop(shop: sync.Fairlead) -> None:
    stop = threading.Event()

    @shop.job
    def last() -> None:
        stop.set()

    with shop as fl:
        first = fl.enqueue("double", tenant=TENANT, payload={"n": 4})
        fl.enqueue("last", tenant=TENANT, priority=1000)
        fl.work(stop, threading.Event(), concurrency=1)

        assert first.result(timeout=0) == 8


def test_its_own_loop_is_not_let_wait_for_itself(shop: sync.Fairlead) -> None:
    @shop.job(max_attempts=1)
    async def ask() -> None:
        shop.enqueue("double", tenant=TENANT, payload={"n": 4})

    with shop as fl:
        job = fl.enqueue("ask", tenant=TENANT)
        fl.tick()
        with pytest.raises(JobFailed, match="WrongLoop: An `async def` on the loop"):
            job.result(timeout=SECONDS)


def test_who_is_interrupted_leaves_nothing_that_still_waits(
    shop: sync.Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    canceled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            canceled.set()
            raise

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with shop as fl:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(concurrent.futures.Future, "result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                fl.wait(forever())
        assert canceled.wait(SECONDS)


# What makes jobs by itself


def test_a_registered_function_runs_in_a_thread_until_it_is_unregistered(settings: Settings) -> None:
    ran: list[tuple[str, str]] = []

    def cleanup(ctx: Context) -> None:
        ran.append((ctx.tenant, threading.current_thread().name))

    with sync.Fairlead(settings=settings) as fl:
        trigger = fl.register(TENANT, "cleanup", datetime.now(UTC), 1, cleanup, timeout=60)
        until(lambda: len(ran) > 1, "two runs")
        with pytest.raises(AlreadyRegistered):
            fl.register(TENANT, "cleanup", FAR, 1, cleanup)
        assert kept(fl)["cleanup"].id == trigger.id
        fl.unregister(TENANT, "cleanup")
        assert kept(fl) == {}
        with pytest.raises(RegistrationUnknown):
            fl.unregister(TENANT, "cleanup")

    assert {tenant for tenant, _ in ran} == {TENANT}
    assert not {thread for _, thread in ran} & {"fairlead", threading.main_thread().name}
    assert "fairlead" not in {thread.name for thread in threading.enumerate()}


def test_a_registered_function_may_use_the_fairlead_that_runs_it(settings: Settings) -> None:
    done = threading.Event()

    with sync.Fairlead(settings=settings) as fl:

        def once() -> None:
            fl.emit("cleanup.done", tenant=TENANT)
            fl.unregister(TENANT, "once")
            done.set()

        fl.register(TENANT, "once", datetime.now(UTC), 1, once)
        assert done.wait(SECONDS)
        emitted(fl, "cleanup.done", count=1)


def test_what_is_open_is_not_opened_again_until_it_is_closed(settings: Settings) -> None:
    fl = sync.Fairlead(settings=settings)
    fl.open()
    with pytest.raises(AlreadyOpen):
        fl.open()
    assert fl.is_open
    fl.close()
    with fl:
        assert fl.is_open


def test_an_asynchronous_connection_is_refused(settings: Settings) -> None:
    async def connected() -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(str(settings.database_url))

    async def refused() -> None:
        async with await connected() as connection:
            with pytest.raises(ConnectionNotSupported, match="awaited"):
                sync.Fairlead(settings=settings).emit("user.joined", tenant=TENANT, tx=connection)

    asyncio.run(refused())
