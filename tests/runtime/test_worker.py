"""The worker in this process, with handlers that the test plays by hand."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from fairlead import Context, Fairlead, KeyLimit, Rate, Settings
from fairlead.db.tx import Tx
from fairlead.handlers.threads import Threads
from fairlead.lease_clock import lease_clock
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Canceled, Failed, Outcome, Succeeded
from fairlead.runtime import worker
from fairlead.runtime.job_source import HeldJob
from fairlead.runtime.store_source import StoreSource
from fairlead.runtime.worker_attempt import WorkerAttempt
from fairlead.runtime.worker_process import WorkerPlan, WorkerProcess
from fairlead.store import jobs
from tests import given
from tests.given import TENANT
from tests.waiting import SECONDS, eventually, until
from tests.working import reopen

Body = Callable[[HeldJob], Coroutine[Any, Any, Outcome]]


class Stage:
    """A worker process in this one, and what its handlers do."""

    def __init__(self, process: WorkerProcess, stop: asyncio.Event, abandon: asyncio.Event) -> None:
        self.process = process
        self.stop = stop
        self.abandon = abandon
        self.started: list[UUID] = []

    async def begun(self, number: int = 1) -> None:
        """Wait until so many handlers have started."""

        async def look() -> bool:
            return len(self.started) >= number

        await until(look, f"{number} handlers to start")


@asynccontextmanager
async def working(
    settings: Settings, body: Body, *, concurrency: int = 10, **more: Any
) -> AsyncIterator[Stage]:
    """A running worker whose handler is `body`; stopped and drained at the end."""
    quick = replace(
        settings,
        **{"sweep_seconds": 0.2, "poll_seconds": 0.2, "drain_seconds": 5, **more},
    )
    stop, abandon = asyncio.Event(), asyncio.Event()

    def start(attempt: WorkerAttempt) -> None:
        if not attempt.begin():
            attempt.handle_end(Canceled())
            return
        stage.started.append(attempt.held.lease.job_id)
        task = asyncio.ensure_future(body(attempt.held))
        attempt.run = AtWork(task)
        ended = asyncio.ensure_future(outcome_of(task))
        ended.add_done_callback(lambda _: attempt.handle_end(ended.result()))

    plan = WorkerPlan(
        url=str(settings.database_url),
        settings=quick,
        start=lambda _: start,
        threads=Threads(4),
        served=None,
        keys=[],
        concurrency=concurrency,
        version="test",
    )
    stage = Stage(WorkerProcess(plan), stop, abandon)
    serving = asyncio.create_task(stage.process.run(stop, abandon))
    try:
        yield stage
    finally:
        stop.set()
        await serving


@dataclass
class AtWork:
    """A handler at work."""

    task: asyncio.Task[Outcome]
    ran = None

    def cancel(self) -> None:
        self.task.cancel()

    def lose(self, grace: float) -> None:
        assert grace > 0
        self.task.cancel()

    def kept_log(self) -> str:
        return ""

    is_logging = False

    def take_new_lines(self) -> list[str]:
        return []


async def outcome_of(task: asyncio.Task[Outcome]) -> Outcome:
    try:
        return await task
    except asyncio.CancelledError:
        return Canceled()


async def succeed(_: HeldJob) -> Outcome:
    return Succeeded()


async def ended(fl: Fairlead, job_id: UUID, status: JobStatus) -> None:
    async def look() -> bool:
        return (await fl.read(job_id)).status is status

    await until(look, f"{job_id} to be {status}")


async def test_a_job_whose_notification_was_lost_is_found_by_polling(
    fl: Fairlead, settings: Settings
) -> None:
    async with working(settings, succeed):
        # the first may be found when the worker begins to listen
        for _ in range(3):
            async with fl.transaction() as tx:
                job_id = await given.queued_job(tx)
                tx.words.clear()
            await ended(fl, job_id, JobStatus.SUCCEEDED)


async def test_a_failure_is_tried_again_until_its_attempts_are_spent(
    fl: Fairlead, settings: Settings
) -> None:
    async def body(held: HeldJob) -> Outcome:
        return Failed("ValueError", "no luck")

    soon = {"base_seconds": 0.05, "factor": 1, "cap_seconds": 1, "jitter": 0}
    await given.set_definition(fl, "greet", backoff=soon)
    async with working(settings, body):
        job = await fl.submit(given.request(max_attempts=3))
        await ended(fl, job.id, JobStatus.DEAD_LETTER)
    async with fl.transaction() as tx:
        attempts = await jobs.list_attempts(tx, job.id)

    assert [(one.attempt_no, one.status) for one in attempts] == [(1, "failed"), (2, "failed"), (3, "failed")]
    assert (await job.read()).last_error == "ValueError: no luck"


async def test_what_waits_for_a_limit_goes_on_as_soon_as_there_is_room(
    fl: Fairlead, settings: Settings
) -> None:
    await given.set_definition(fl, "greet", max_running=1)
    waiting = [await fl.submit(given.request()) for _ in range(10)]
    async with working(settings, succeed, poll_seconds=3600):  # nobody looks by himself
        for job in waiting:
            await ended(fl, job.id, JobStatus.SUCCEEDED)


async def test_canceling_a_running_job_stops_its_handler(fl: Fairlead, settings: Settings) -> None:
    async def body(held: HeldJob) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with working(settings, body) as stage:
        job = await fl.submit(given.request())
        await stage.begun()
        await fl.cancel(job.id)
        await ended(fl, job.id, JobStatus.CANCELED)


async def test_what_has_ended_makes_room_before_that_is_written_but_not_without_end(
    fl: Fairlead, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, plain = asyncio.Event(), StoreSource.finish

    async def finish(*args: Any) -> Any:
        await written.wait()
        return await plain(*args)

    monkeypatch.setattr(StoreSource, "finish", finish)
    monkeypatch.setattr(worker, "MOST_UNWRITTEN", 2)
    monkeypatch.setattr(worker, "AHEAD_SECONDS", 0)
    async with working(settings, succeed, concurrency=2) as stage:
        many = await fl.enqueue_many([given.request() for _ in range(10)])

        async def waits() -> bool:
            at_work = stage.process.worker
            # it may have no room for a moment, between the first claim and the second
            at_rest = at_work is not None and at_work._cramped and at_work._running == 0
            return at_rest and len(stage.started) >= 4

        try:
            await until(waits, "the worker to have begun all that it may")
            assert len(stage.started) == 4
        finally:
            written.set()  # or it would wait for that for good
        for one in many:
            await ended(fl, one.id, JobStatus.SUCCEEDED)


class Blocked:
    """Jobs whose handlers end at once, and wait for the gate from when `first` have ended and more wait to start here.

    So the worker has a queue of short jobs, and then long ones, with jobs that it claimed ahead.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.gate = asyncio.Event()
        self.is_blocked = False
        self.running = self.most = self.done = 0
        self.count_ahead: Callable[[], int] = lambda: 0

    async def __call__(self, _: HeldJob) -> Outcome:
        self.running += 1
        self.most = max(self.most, self.running)
        self.is_blocked |= self.done >= self.first and self.count_ahead() > 4 * self.most
        if self.is_blocked:
            await self.gate.wait()
        self.running -= 1
        self.done += 1
        return Succeeded()


async def counted(fl: Fairlead, query: str) -> int:
    async with fl.transaction() as tx:
        [(number,)] = await tx.values(f"select count(*) from fairlead.{query}")
    return int(number)


async def claimed_ahead(fl: Fairlead, body: Blocked, stage: Stage) -> None:
    """Enqueue 400 jobs, and wait until the worker holds more jobs than it runs."""

    def count_ahead() -> int:
        return 0 if stage.process.worker is None else len(stage.process.worker._waiting)

    body.count_ahead = count_ahead
    await fl.enqueue_many([given.request() for _ in range(400)])

    async def look() -> bool:
        return body.is_blocked

    await until(look, "jobs that were claimed ahead")


async def given_back(fl: Fairlead, body: Blocked) -> None:
    """Wait until only those that run are held, and all others are in the queue again."""

    async def look() -> bool:
        async with fl.transaction() as tx:
            held, queued = await given.count(tx, "leases"), await given.count(tx, "ready")
        return (held, queued) == (2, 400 - body.done - 2)

    await until(look, "the jobs that have not started to be given back")


async def test_jobs_claimed_ahead_go_back_uncharged_when_those_before_them_are_long(
    fl: Fairlead, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "AHEAD_SECONDS", 10)
    body = Blocked(200)

    async with working(settings, body, concurrency=2) as stage:
        await claimed_ahead(fl, body, stage)
        await given_back(fl, body)
        body.gate.set()

        async def all_done() -> bool:
            return await counted(fl, "jobs where status = 'succeeded'") == 400

        await until(all_done, "all jobs")

    assert body.most == 2
    assert await counted(fl, "jobs where failure_count > 0 or lost_count > 0 or suspected > 0") == 0
    assert await counted(fl, "attempts where status = 'released'") > 0


async def test_jobs_claimed_ahead_go_back_when_the_worker_stops(
    fl: Fairlead, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "AHEAD_SECONDS", 10)
    monkeypatch.setattr(worker, "GIVE_BACK_SECONDS", 3600)
    body = Blocked(200)

    async with working(settings, body, concurrency=2, drain_seconds=3600) as stage:
        await claimed_ahead(fl, body, stage)
        stage.stop.set()
        await given_back(fl, body)
        body.gate.set()

    assert await counted(fl, "jobs where status = 'succeeded'") == len(stage.started) == body.done
    assert await counted(fl, "jobs where status = 'queued' and failure_count = 0") == 400 - body.done


async def test_a_job_claimed_ahead_can_be_canceled_and_never_starts(
    fl: Fairlead, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "AHEAD_SECONDS", 10)
    monkeypatch.setattr(worker, "GIVE_BACK_SECONDS", 3600)
    body = Blocked(200)

    async with working(settings, body, concurrency=2) as stage:
        await claimed_ahead(fl, body, stage)
        at_work = stage.process.worker
        assert at_work is not None
        job_id = at_work._waiting[-1].held.lease.job_id
        await fl.cancel(job_id)

        async def asked() -> bool:
            return any(one.canceled for one in at_work._waiting)

        await until(asked, "the worker to hear of the cancel")
        body.gate.set()
        await ended(fl, job_id, JobStatus.CANCELED)

    assert job_id not in stage.started


async def test_a_job_claimed_ahead_does_not_start_after_its_lease(
    fl: Fairlead, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the process was stopped for longer than a lease, and goes on: the heartbeat's thread may be the last to run."""
    monkeypatch.setattr(worker, "AHEAD_SECONDS", 10)
    monkeypatch.setattr(worker, "GIVE_BACK_SECONDS", 3600)
    body = Blocked(200)

    async with working(settings, body, concurrency=2) as stage:
        await claimed_ahead(fl, body, stage)
        at_work = stage.process.worker
        assert at_work is not None
        ahead = list(at_work._waiting)
        monkeypatch.setattr(at_work.heart, "_clock", lambda: lease_clock() + 1e6)
        body.gate.set()

        async def dropped() -> bool:
            return not set(map(id, ahead)) & set(map(id, at_work._waiting))

        await until(dropped, "the worker to drop what it may not start")
        assert not {attempt.held.lease.job_id for attempt in ahead} & set(stage.started)


async def test_a_worker_that_is_stopped_finishes_what_it_can_and_gives_back_the_rest(
    fl: Fairlead, settings: Settings
) -> None:
    go = asyncio.Event()

    async def body(held: HeldJob) -> Outcome:
        await (go if held.job.payload["name"] == "quick" else asyncio.Event()).wait()
        return Succeeded()

    async with working(settings, body, drain_seconds=0.5) as stage:
        quick = await fl.submit(given.request(payload={"name": "quick"}))
        slow = await fl.submit(given.request(payload={"name": "slow"}))
        await stage.begun(2)
        stage.stop.set()
        go.set()
    done, back = await quick.read(), await slow.read()

    assert done.status is JobStatus.SUCCEEDED
    assert (back.status, back.failure_count, back.attempt_count) == (JobStatus.QUEUED, 0, 1)


async def test_a_second_signal_does_not_wait_for_the_slow(fl: Fairlead, settings: Settings) -> None:
    async def body(held: HeldJob) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with working(settings, body, drain_seconds=3600) as stage:
        slow = await fl.submit(given.request())
        await stage.begun()
        stage.stop.set()
        stage.abandon.set()
    assert (await slow.read()).status is JobStatus.QUEUED


async def test_a_worker_that_drains_still_writes_progress(settings: Settings) -> None:
    fl = Fairlead(settings=settings, actor="tester")
    begun, draining, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @fl.job
    async def slow(ctx: Context) -> None:
        begun.set()
        await draining.wait()
        await ctx.progress(50, "half")
        await go_on.wait()

    async with fl:
        stop = asyncio.Event()
        work = asyncio.create_task(fl.work(stop, stopping=lambda _: draining.set()))
        job = await slow.enqueue(tenant="acme")
        await begun.wait()
        stop.set()

        async def look() -> Any:
            return (await fl.read(job.id)).progress

        try:
            assert (await until(look, "the progress"))["message"] == "half"
        finally:
            go_on.set()
            await work


async def test_a_scheduled_job_starts_at_its_time(fl: Fairlead, settings: Settings) -> None:
    async with working(settings, succeed, poll_seconds=60):
        [(soon,)] = await _values(fl, "select clock_timestamp() + interval '300 milliseconds'")
        job = await fl.submit(given.request(scheduled_for=soon))
        await ended(fl, job.id, JobStatus.SUCCEEDED)
    started = (await job.read()).started_at
    assert started is not None
    assert started >= soon


async def test_a_worker_starts_the_next_job_when_the_rate_allows(fl: Fairlead, settings: Settings) -> None:
    @fl.job(rate=Rate(20, burst=1))
    async def ping() -> None: ...

    await reopen(fl)
    for _ in range(21):
        await ping.enqueue(tenant=TENANT)
    done: list[float] = []

    async def body(held: HeldJob) -> Outcome:
        done.append(asyncio.get_running_loop().time())
        return Succeeded()

    # a worker that only polled would take a minute for each
    async with working(settings, body, poll_seconds=60):
        await eventually(lambda: len(done) == 21, "all jobs")


async def test_jobs_of_a_key_follow_each_other(fl: Fairlead, settings: Settings) -> None:
    @fl.job(by_key=KeyLimit("/customer", max_running=1))
    async def ping(customer: str) -> None: ...

    await reopen(fl)
    for n in range(30):
        await ping.enqueue(tenant=TENANT, customer=f"c{n % 3}")
    running: dict[str, int] = {}
    most = 0
    done = 0

    async def body(held: HeldJob) -> Outcome:
        nonlocal done, most
        key = held.job.payload["customer"]
        running[key] = running.get(key, 0) + 1
        most = max(most, running[key])
        await asyncio.sleep(0.01)
        running[key] -= 1
        done += 1
        return Succeeded()

    async with working(settings, body, poll_seconds=60):
        await eventually(lambda: done == 30, "all jobs")
    assert most == 1


async def test_a_lost_lease_stops_its_handler_and_changes_nothing(fl: Fairlead, settings: Settings) -> None:
    stopped = asyncio.Event()

    async def body(held: HeldJob) -> Outcome:
        if held.lease.attempt_no > 1:
            return Succeeded("the second")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return Succeeded("the first")

    async with working(settings, body) as stage:
        job = await fl.submit(given.request())
        await stage.begun()
        async with fl.transaction() as tx:
            await given.lose_leases(tx)
            await given.end_leases(tx, in_seconds=0)
        # at which a worker sends a heartbeat
        await _values(fl, "select pg_notify('fairlead', 'cancel')")
        async with asyncio.timeout(SECONDS):
            await stopped.wait()
        await ended(fl, job.id, JobStatus.SUCCEEDED)
    async with fl.transaction() as tx:
        attempts = await jobs.list_attempts(tx, job.id)

    assert (await job.read()).output == "the second"
    assert [one.status for one in attempts] == ["lost", "succeeded"]


async def test_a_busy_event_loop_does_not_lose_its_leases(
    fl: Fairlead, settings: Settings, database_url: str
) -> None:
    """The handler holds the loop until its lease is renewed; the heart beats in a thread of its own."""
    query = "select expires_at from fairlead.leases"

    async def body(held: HeldJob) -> Outcome:
        deadline = time.monotonic() + SECONDS
        with psycopg.connect(database_url, autocommit=True) as connection:
            before = connection.execute(query).fetchall()
            assert stage.process._hosted is not None
            stage.process._hosted.heartbeat.wake()
            while connection.execute(query).fetchall() <= before:
                assert time.monotonic() < deadline, "the lease is not renewed"
        return Succeeded()

    async with working(settings, body) as stage:
        job = await fl.submit(given.request())
        await ended(fl, job.id, JobStatus.SUCCEEDED)
    assert (await job.read()).attempt_count == 1


async def test_workers_are_seen_while_they_are_there(fl: Fairlead, settings: Settings) -> None:
    async with working(settings, succeed) as stage:

        async def there() -> Any:
            return await _values(fl, "select worker_id, concurrency from fairlead.job_workers")

        assert await until(there, "the worker to be seen") == [(stage.process.worker_id, 10)]
    assert await given.count(fl, "job_workers") == 0


async def _values(fl: Fairlead, query: str) -> list[Any]:
    async def ask(tx: Tx) -> list[Any]:
        return await tx.values(query)

    return await fl.database.transact(ask)


@pytest.fixture(autouse=True)
def no_leftover_threads() -> Any:
    import threading  # noqa: PLC0415

    yield
    assert not [one for one in threading.enumerate() if one.name == "fairlead-heart"]
