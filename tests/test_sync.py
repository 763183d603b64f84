"""The synchronous face: what it has, and what makes jobs by itself."""

import asyncio
import concurrent.futures
import inspect
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
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
    NotOpen,
    RegistrationUnknown,
    ResultTimeout,
    TenantUnknown,
)
from fairlead.library import workflows
from fairlead.model.trigger import Trigger
from fairlead.model.workflow.run import RunStatus
from fairlead.runtime.tick import Tick
from tests import sync_source
from tests.given import OTHER, TENANT
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


TYPED = """
from uuid import UUID

from fairlead.sync import Fairlead

fl = Fairlead()
job = fl.enqueue("double", tenant="acme", payload={"n": 4}, priority=5, delay=1.5)
reveal_type(job.id)
reveal_type(fl.claim(3)[0].cancel_requested)
reveal_type(fl.start("flow", tenant=UUID(int=0)).deduplicated)
reveal_type(fl.usage(by="day"))


@fl.job(max_attempts=3)
def double(n: int) -> int:
    return n * 2


reveal_type(double(4))
reveal_type(double.options(priority=1).enqueue(tenant="acme", n=4))
fl.enqueue("double", tenant="acme", priority="high")
fl.emit("user.joined", tenant="acme", occured_at=None)
fl.job(max_attempts="3")
"""


@pytest.mark.thorough
def test_a_type_checker_sees_the_types_of_the_asynchronous_library(tmp_path: Path) -> None:
    program = tmp_path / "typed.py"
    program.write_text(TYPED)
    done = subprocess.run(  # with the cache that `make check` fills: without one it takes ten times as long
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )

    lines = [line.split(":", 2)[1:] for line in done.stdout.splitlines()]
    errors = {TYPED.splitlines()[int(number) - 1]: text for number, text in lines if "error:" in text}
    assert [text.split('"')[1] for _, text in lines if "Revealed" in text] == [
        "uuid.UUID",
        "bool",
        "bool",
        "fairlead.actions.usage.UsageReport",
        "int",
        "fairlead.sync.EnqueuedJob",
    ]
    assert list(errors) == TYPED.splitlines()[-3:]
    assert 'incompatible type "str"; expected "int | None"' in errors[TYPED.splitlines()[-3]]
    assert 'Unexpected keyword argument "occured_at"' in errors[TYPED.splitlines()[-2]]


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


def test_a_joined_job_can_be_waited_for_once_it_is_committed(shop: sync.Fairlead) -> None:
    with shop as fl, psycopg.connect(str(fl.inner.settings.database_url)) as connection:
        job = fl.enqueue("double", tenant=TENANT, payload={"n": 4}, tx=connection)
        connection.commit()
        fl.tick()
        assert job.result(timeout=SECONDS) == 8


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


def test_a_run_can_be_read_canceled_and_retried_by_its_id(shop: sync.Fairlead) -> None:
    with shop as fl:
        flow = workflows.Flow("once")
        flow.step("a", "double", {"n": 4})
        run = fl.run_inline(flow, tenant=TENANT)

        assert fl.cancel_run(run.id).status is RunStatus.CANCELED
        assert fl.retry_run(run.id).status is RunStatus.RUNNING
        fl.tick()
        assert fl.run_standing(run.id).status is RunStatus.SUCCEEDED
        assert [step.name for step in fl.read_run(run.id).steps] == ["a"]
        assert run.result(timeout=SECONDS) == {"a": 8}


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


def test_canceling_stops_the_loop_and_leaves_the_schedules(settings: Settings) -> None:
    with sync.Fairlead(settings=settings) as fl:
        trigger = fl.register(TENANT, "cleanup", FAR, 60, lambda: None)
        fl.cancel_periodic()

        assert kept(fl) == {"cleanup": trigger}
        assert fl.register(TENANT, "cleanup", FAR, 60, lambda: None) == trigger


def test_schedules_in_code_are_synced_and_a_scheduled_function_can_be_enqueued(settings: Settings) -> None:
    fl = sync.Fairlead(settings=settings, name="shop")

    @fl.cron("0 2 * * *", tenant=TENANT, name="nightly", payload={"depth": 3})
    @fl.every(60, tenant=OTHER, payload={"depth": 1})
    def sweep(depth: int) -> int:
        return depth * 2

    @fl.every(60, tenant=TENANT)
    @fl.job(max_attempts=2)
    def tidy() -> None: ...

    assert sweep(4) == 8
    with fl:
        fl.sync_schedules()
        assert {label: (one.tenant, one.owner) for label, one in kept(fl).items()} == {
            "nightly": (TENANT, "shop"),
            "sweep": (OTHER, "shop"),
            "tidy": (TENANT, "shop"),
        }
        assert fl.read(sweep.enqueue(tenant=TENANT, depth=1).id).payload == {"depth": 1}
        assert tidy.key == "tidy"


def test_an_event_is_stored_or_joins_the_callers_transaction(settings: Settings) -> None:
    with sync.Fairlead(settings=settings) as fl, psycopg.connect(str(settings.database_url)) as connection:
        first = fl.emit("user.joined", tenant=TENANT, data={"name": "Ada"}, correlation_id="c-1")
        fl.emit("user.joined", tenant=TENANT, tx=connection)
        connection.rollback()
        second = fl.emit("user.joined", tenant=TENANT, data={"name": "Grace"}, tx=connection)
        connection.commit()
        with pytest.raises(TenantUnknown):
            fl.emit("user.joined", tenant="nobody", tx=connection)

        found = emitted(fl, "user.joined", count=2)
        assert {(event.id, event.data["name"], event.correlation_id) for event in found} == {
            (first, "Ada", "c-1"),
            (second, "Grace", None),
        }
    joined_only = sync.Fairlead(settings=settings)
    with psycopg.connect(str(settings.database_url)) as connection:
        joined_only.emit("user.joined", tenant=TENANT, tx=connection)
    with pytest.raises(NotOpen):
        joined_only.emit("user.joined", tenant=TENANT)


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
