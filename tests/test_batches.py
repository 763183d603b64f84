"""Batch handlers: one call for many jobs, and an outcome for each."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from fairlead import (
    Backoff,
    BatchJob,
    EnqueuedJob,
    Fairlead,
    Fatal,
    JobFunction,
    Secret,
    Settings,
    Snooze,
    sync,
    testing,
)
from fairlead.actions import definitions, jobs
from fairlead.errors import PayloadInvalid, SignatureInvalid
from fairlead.model.job import Job, JobStatus
from tests import given
from tests.given import OTHER, TENANT, TESTER
from tests.processes import FAIRLEAD, started, until
from tests.tables import each_case
from tests.waiting import SECONDS
from tests.working import working

NOW = Backoff(0, 1, 0, 0)


@dataclass
class Order:
    number: int
    note: str = ""


class Parcel(BaseModel):
    weight: int


async def enqueue_orders(
    fl: Fairlead, function: JobFunction[Any, Any], number: int, tenant: str = TENANT
) -> list[EnqueuedJob]:
    return await fl.enqueue_many([function.with_arguments(tenant=tenant, number=n) for n in range(number)])


async def wait_until_all(
    enqueued: Sequence[EnqueuedJob], fits: Callable[[Job], bool] = lambda job: job.status.terminal
) -> list[Job]:
    """The jobs, once each is so: by default, once all have ended."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = [await job.read() for job in enqueued]
            if all(map(fits, found)):
                return found
            await asyncio.sleep(0.02)


# Results


RESULTS = {3: Snooze(3600), 4: Fatal("gone"), 5: ValueError("again"), 6: object()}


def judge_order(job: BatchJob[Order]) -> Any:
    """The result of an order, which some have got already."""
    assert isinstance(job.payload, Order)
    match job.payload.number:
        case 0:
            job.succeed("early")
            job.fail("too late: the first outcome counts")
            return "ignored"
        case 1:
            job.fail("no such order", retryable=False)
        case 2:
            job.snooze(3600)
        case 3 | 4 | 5 | 6 as special:
            return RESULTS[special]
        case other:
            job.ctx.add_cost(other)
            job.ctx.log.info("packed", number=other)
            return {"number": other}
    return None


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_batch_gives_an_outcome_for_each_job(settings: Settings, *, in_thread: bool) -> None:
    """In the order of the jobs: outputs, exceptions and snoozes; or at once, through the job."""
    fl, sizes = Fairlead(settings=settings), list[int]()

    def judge(batch: Sequence[BatchJob[Order]]) -> list[Any]:
        sizes.append(len(batch))
        assert (threading.current_thread() is threading.main_thread()) is not in_thread
        return [judge_order(job) for job in batch]

    async def judge_on_loop(batch: list[BatchJob[Order]]) -> list[Any]:
        return judge(batch)

    def judge_in_thread(batch: list[BatchJob[Order]]) -> list[Any]:
        return judge(batch)

    function = judge_in_thread if in_thread else judge_on_loop
    pack = fl.job(key="pack", batch=10, batch_wait=60, max_attempts=3)(function)
    async with fl:
        enqueued = await enqueue_orders(fl, pack, 10)
        async with working(fl):
            await asyncio.gather(*(job.result(timeout=SECONDS) for job in enqueued[7:]))
            ends = await wait_until_all(enqueued, lambda job: job.status is not JobStatus.RUNNING)

    assert sizes == [10]
    assert [job.status for job in ends] == [
        JobStatus.SUCCEEDED,
        JobStatus.FAILED,
        JobStatus.QUEUED,
        JobStatus.QUEUED,
        JobStatus.FAILED,
        JobStatus.QUEUED,
        JobStatus.FAILED,
        *[JobStatus.SUCCEEDED] * 3,
    ]
    assert [job.output for job in ends[7:]] == [{"number": 7}, {"number": 8}, {"number": 9}]
    assert [job.cost_cents for job in ends[7:]] == [7, 8, 9]
    assert ends[0].output == "early"
    assert [job.failure_count for job in ends] == [0, 1, 0, 0, 1, 1, 1, 0, 0, 0]
    assert ends[1].last_error == "BatchFailure: no such order"
    assert ends[4].last_error == "Fatal: gone"
    assert ends[5].last_error == "ValueError: again"
    assert "cannot be stored as JSON" in (ends[6].last_error or "")


@pytest.mark.thorough
@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_exception_fails_the_jobs_without_an_outcome_and_each_is_retried(
    settings: Settings, *, in_thread: bool
) -> None:
    fl, calls = Fairlead(settings=settings), list[list[int]]()

    def fail_once(batch: Sequence[BatchJob[Order]]) -> None:
        calls.append([job.payload.number for job in batch])
        if len(calls) > 1:
            return
        batch[0].succeed("first")
        raise ConnectionError("the index is away")

    async def on_loop(batch: list[BatchJob[Order]]) -> None:
        fail_once(batch)

    def in_a_thread(batch: list[BatchJob[Order]]) -> None:
        fail_once(batch)

    function = in_a_thread if in_thread else on_loop
    index = fl.job(key="index", batch=3, batch_wait=60, max_attempts=2, backoff=NOW)(function)
    async with fl:
        enqueued = await enqueue_orders(fl, index, 3)
        async with working(fl):
            first = await enqueued[0].result(timeout=SECONDS)
            # the two others wait for a third that does not come
            ends = await wait_until_all([*enqueued, *await enqueue_orders(fl, index, 1)])

    assert first == "first"
    assert [sorted(numbers) for numbers in calls] == [[0, 1, 2], [0, 1, 2]]
    assert [(job.status, job.attempt_count, job.failure_count) for job in ends] == [
        (JobStatus.SUCCEEDED, 1, 0),
        (JobStatus.SUCCEEDED, 2, 1),
        (JobStatus.SUCCEEDED, 2, 1),
        (JobStatus.SUCCEEDED, 1, 0),
    ]


@each_case(
    ("result", "status", "message"),
    [
        (
            [1],
            JobStatus.FAILED,
            "a result for each of its 2 jobs, in their order; this one returned 1 results",
        ),
        ({"a": 1, "b": 2}, JobStatus.FAILED, "this one returned dict"),
        (Snooze(3600), JobStatus.QUEUED, None),
        (None, JobStatus.SUCCEEDED, None),
        ((1, 2), JobStatus.SUCCEEDED, None),
    ],
)
async def test_a_result_that_does_not_fit_the_jobs_fails_them(
    settings: Settings, result: Any, status: JobStatus, message: str | None
) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(batch=2)
    async def work(batch: list[BatchJob]) -> Any:  # type: ignore[type-arg]
        assert [job.payload for job in batch] == [{"number": 0}, {"number": 1}]
        return result

    async with fl:
        enqueued = await enqueue_orders(fl, work, 2)
        await testing.run_due(fl)
        ends = [await job.read() for job in enqueued]

    assert [job.status for job in ends] == [status] * 2
    if message:
        assert message in (ends[0].last_error or "")


# Collecting


@pytest.mark.parametrize(
    ("options", "jobs", "concurrency", "largest"),
    [
        pytest.param({"batch": 4, "batch_wait": 0.2}, 10, 100, (4,), id="full, or its first job has waited"),
        pytest.param({"batch": 100, "batch_wait": 60}, 5, 5, (5,), id="no more jobs than slots"),
        pytest.param({"batch": 10, "batch_wait": 0.1, "max_running": 3}, 7, 100, (1, 2, 3), id="a limit"),
    ],
)
async def test_a_batch_starts_when_no_more_jobs_may_join_it_or_when_its_first_job_has_waited(
    settings: Settings, options: dict[str, Any], jobs: int, concurrency: int, largest: tuple[int, ...]
) -> None:
    fl, sizes = Fairlead(settings=settings), list[int]()

    @fl.job(**options)
    async def work(batch: list[BatchJob[Order]]) -> None:
        sizes.append(len(batch))

    async with fl:
        enqueued = await enqueue_orders(fl, work, jobs)
        async with working(fl, concurrency=concurrency):
            await wait_until_all(enqueued)

    assert sum(sizes) == jobs
    assert max(sizes) in largest


async def test_a_batch_is_of_one_tenant_unless_the_definition_says_otherwise(settings: Settings) -> None:
    fl = Fairlead(settings=settings)
    apart, together = list[list[str]](), list[list[str]]()

    @fl.job(batch=2, batch_wait=60)
    async def one_tenant(batch: list[BatchJob[Order]]) -> None:
        apart.append([job.tenant for job in batch])

    @fl.job(batch=4, batch_wait=60, batch_across_tenants=True)
    async def all_tenants(batch: list[BatchJob[Order]]) -> None:
        together.append(sorted(job.tenant for job in batch))

    async with fl:
        enqueued = [
            job
            for function in (one_tenant, all_tenants)
            for tenant in (TENANT, OTHER) * 2
            for job in await enqueue_orders(fl, function, 1, tenant)
        ]
        async with working(fl):
            await wait_until_all(enqueued)

    assert sorted(apart) == [[TENANT] * 2, [OTHER] * 2]
    assert together == [[TENANT] * 2 + [OTHER] * 2]


# Stopping


@pytest.mark.thorough
async def test_a_canceled_job_leaves_its_batch_and_the_others_go_on(settings: Settings) -> None:
    fl = Fairlead(settings=settings)
    begun, canceled, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @fl.job(batch=3, batch_wait=60)
    async def work(batch: list[BatchJob[Order]]) -> list[Any]:
        begun.set()
        while not batch[1].is_canceled:
            await asyncio.sleep(0.01)
        canceled.set()
        await go_on.wait()
        return [None if job.is_canceled else job.payload.number for job in batch]

    async with fl:
        enqueued = await enqueue_orders(fl, work, 3)
        async with working(fl), asyncio.timeout(SECONDS):
            await begun.wait()
            async with fl.transaction() as tx:
                await jobs.cancel(tx, TESTER, enqueued[1].id)
            await canceled.wait()
            # ended after its grace, while the handler still runs
            [middle] = await wait_until_all(enqueued[1:2])
            go_on.set()
            ends = await wait_until_all(enqueued)

    assert middle.status is JobStatus.CANCELED
    assert [(job.status, job.output) for job in ends] == [
        (JobStatus.SUCCEEDED, 0),
        (JobStatus.CANCELED, None),
        (JobStatus.SUCCEEDED, 2),
    ]


@pytest.mark.thorough
async def test_a_batch_whose_jobs_are_all_out_of_time_is_stopped(settings: Settings) -> None:
    fl, stopped = Fairlead(settings=settings), asyncio.Event()

    @fl.job(batch=2, batch_wait=60, timeout=1, max_attempts=1)
    async def work(batch: list[BatchJob[Order]]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with fl:
        enqueued = await enqueue_orders(fl, work, 2)
        async with working(fl):
            ends = await wait_until_all(enqueued)
            assert stopped.is_set()

    assert [job.status for job in ends] == [JobStatus.DEAD_LETTER] * 2
    assert all("longer than its timeout" in (job.last_error or "") for job in ends)


async def test_jobs_that_wait_for_their_batch_are_canceled_at_once_and_start_when_the_worker_stops(
    settings: Settings,
) -> None:
    fl, calls = Fairlead(settings=settings), list[int]()

    @fl.job(batch=50, batch_wait=60)
    async def work(batch: list[BatchJob[Order]]) -> None:
        calls.append(len(batch))

    async with fl:
        enqueued = await enqueue_orders(fl, work, 2)
        async with working(fl):
            await wait_until_all(enqueued, lambda job: job.status is JobStatus.RUNNING)
            async with fl.transaction() as tx:
                await jobs.cancel(tx, TESTER, enqueued[0].id)
            [canceled] = await wait_until_all(enqueued[:1])
        left = await enqueued[1].read()

    assert canceled.status is JobStatus.CANCELED
    assert (left.status, left.attempt_count) == (JobStatus.SUCCEEDED, 1)
    assert calls == [1]


async def test_jobs_of_a_batch_that_does_not_end_are_released_when_the_worker_stops(
    settings: Settings,
) -> None:
    fl, begun = Fairlead(settings=settings), asyncio.Event()

    @fl.job(batch=2, batch_wait=60)
    async def work(batch: list[BatchJob[Order]]) -> None:
        batch[0].succeed("in time")
        begun.set()
        await asyncio.Event().wait()

    fl.settings = Settings(database_url=settings.database_url, drain_seconds=0.1)
    async with fl:
        enqueued = await enqueue_orders(fl, work, 2)
        async with working(fl), asyncio.timeout(SECONDS):
            await begun.wait()
        ends = [await job.read() for job in enqueued]

    assert [(job.status, job.output, job.failure_count) for job in ends] == [
        (JobStatus.SUCCEEDED, "in time", 0),
        (JobStatus.QUEUED, None, 0),
    ]


DIES = """
import asyncio, os, pathlib
from fairlead import BatchJob, Fairlead

fl = Fairlead()

@fl.job(batch=4, batch_wait=3)
async def half(batch: list[BatchJob]) -> None:
    if len(batch) < 4:
        return
    for job in batch[:2]:
        job.succeed("before")
    while not pathlib.Path("die").exists():
        await asyncio.sleep(0.02)
    os._exit(1)
"""


@pytest.mark.thorough
def test_only_the_jobs_without_an_outcome_run_again_after_their_worker_has_died(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(DIES)
    env = {
        "FAIRLEAD_DATABASE_URL": str(settings.database_url),
        "FAIRLEAD_LEASE_SECONDS": "15",
        "FAIRLEAD_SWEEP_SECONDS": "1",
    }
    with (
        started([FAIRLEAD, "worker", "app:fl", "--max-jobs", "1000"], env=env, cwd=tmp_path) as process,
        sync.Fairlead(settings=settings) as fl,
    ):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving half")
        jobs = fl.enqueue_many([{"definition": "half", "tenant": TENANT, "payload": {}}] * 4)
        until(lambda: [job.read().output for job in jobs].count("before") == 2, "two jobs have ended")
        (tmp_path / "die").touch()
        until(lambda: all(job.read().status.terminal for job in jobs), "the others have run again")
        ends = sorted((job.read() for job in jobs), key=lambda job: job.attempt_count)

    assert [(job.status, job.output, job.attempt_count) for job in ends] == [
        *[(JobStatus.SUCCEEDED, "before", 1)] * 2,
        *[(JobStatus.SUCCEEDED, None, 2)] * 2,
    ]


# Payloads


async def test_the_type_of_the_payloads_is_the_schema_of_the_definition(settings: Settings) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(batch=2)
    async def orders(batch: list[BatchJob[Order]]) -> None:
        """Pack orders."""

    @fl.job(batch=2)
    async def parcels(batch: Sequence[BatchJob[Parcel]]) -> list[int]:
        return [job.payload.weight for job in batch]

    @fl.job(batch=2)
    async def anything(batch) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001

    async with fl:
        for function, bad in ((orders, {"number": "x"}), (orders, {}), (parcels, {"weight": "heavy"})):
            with pytest.raises(PayloadInvalid):
                await function.enqueue(tenant=TENANT, **bad)
        await anything.enqueue(tenant=TENANT, whatever=[1])
        heavy = await parcels.enqueue(tenant=TENANT, weight=3)
        await testing.run_due(fl, raise_errors=True)
        async with fl.transaction() as tx:
            stored = {one.key: one for one in await definitions.list_all(tx, TESTER)}
        assert await heavy.result(timeout=SECONDS) == 3

    assert stored["orders"].description == "Pack orders."
    assert stored["orders"].arg_schema["properties"]["number"] == {"type": "integer"}


async def test_a_payload_that_no_longer_fits_fails_only_its_own_job(settings: Settings) -> None:
    fl, numbers = Fairlead(settings=settings), list[int]()

    @fl.job(batch=3)
    async def work(batch: list[BatchJob[Order]]) -> list[int]:
        numbers.extend(job.payload.number for job in batch)
        return [job.payload.number for job in batch]

    async with fl:
        enqueued = await enqueue_orders(fl, work, 3)
        await given.set_job(fl, enqueued[1].id, payload={"number": "one"})
        await testing.run_due(fl)
        ends = [await job.read() for job in enqueued]

    assert numbers == [0, 2]
    assert [(job.status, job.output) for job in ends] == [
        (JobStatus.SUCCEEDED, 0),
        (JobStatus.FAILED, None),
        (JobStatus.SUCCEEDED, 2),
    ]


@dataclass
class Login:
    password: Annotated[str, Secret()]


async def test_an_exception_names_no_secret_of_any_job(settings: Settings) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(batch=2, max_attempts=1)
    async def sign_in(batch: list[BatchJob[Login]]) -> None:
        raise ValueError(f"bad passwords: {[job.payload.password for job in batch]}")

    async with fl:
        for word in ("hunter2-and-more", "correct-horse-battery"):
            await sign_in.enqueue(tenant=TENANT, password=word)
        await testing.run_due(fl)
        async with fl.transaction() as tx:
            rows = await tx.values("select last_error, error::text from fairlead.job_records")

    assert len(rows) == 2
    assert all("bad passwords" in text for text, _ in rows)
    assert "hunter2" not in str(rows)
    assert "horse" not in str(rows)


# Refused, and beside other code


def test_what_cannot_be_a_batch_handler_is_refused() -> None:
    fl = Fairlead(settings=Settings())

    async def fine(batch: list[BatchJob[Order]]) -> None: ...
    async def two(batch: list[BatchJob[Order]], more: int) -> None: ...
    async def plain(batch: list[Order]) -> None: ...
    async def number(batch: list[BatchJob[int]]) -> None: ...

    for function, options, words in (
        (two, {}, "one parameter"),
        (plain, {}, "list\\[BatchJob"),
        (number, {}, "JSON object"),
        (fine, {"batch": 0}, "batch must be a whole number, 1 to 1000"),
        (fine, {"batch": True}, "batch must be"),
        (fine, {"batch_wait": 61}, "batch_wait must be"),
        (fine, {"batch_wait": -1}, "batch_wait must be"),
        (fine, {"batch": None, "batch_wait": 1}, "need batch="),
        (fine, {"isolate": True}, "cannot be isolated"),
    ):
        with pytest.raises(SignatureInvalid, match=words):
            fl.as_job(function, {"batch": 2, **options})
    assert not fl.functions
    assert not len(fl.registry)


async def test_middleware_of_batches_gets_the_jobs_and_that_of_attempts_is_not_called(
    settings: Settings,
) -> None:
    fl, seen = Fairlead(settings=settings), list[Any]()

    @fl.around_batch
    def count(batch: Sequence[BatchJob[Any]]) -> Iterator[None]:
        seen.append(len(batch))
        yield
        seen.append("left")

    @fl.around_batch
    async def hold(batch: Sequence[BatchJob[Any]]) -> AsyncIterator[None]:
        seen.append("held")
        yield

    @fl.around_attempt
    def never(ctx: object) -> Iterator[None]:
        seen.append("never")
        yield

    @fl.job(batch=2)
    async def on_loop(batch: list[BatchJob[Order]]) -> None: ...

    @fl.job(batch=2)
    def in_thread(batch: list[BatchJob[Order]]) -> None: ...

    async with fl:
        for one in (on_loop, in_thread):
            await enqueue_orders(fl, one, 2)
            await testing.run_due(fl)

    assert seen == [2, "held", "left"] * 2


def test_a_synchronous_fairlead_has_batch_handlers_too(settings: Settings) -> None:
    fl = sync.Fairlead(settings=settings)

    @fl.job(batch=3)
    def work(batch: list[BatchJob[Order]]) -> list[str]:
        for job in batch:
            job.ctx.enqueue("after", payload={"number": job.payload.number})
        return [f"{job.payload.number} of {len(batch)}" for job in batch]

    @fl.job
    def after(number: int) -> None: ...

    with fl:
        enqueued = fl.enqueue_many([work.with_arguments(tenant=TENANT, number=n) for n in range(3)])
        testing.run_due(fl)
        assert [job.result(timeout=SECONDS) for job in enqueued] == ["0 of 3", "1 of 3", "2 of 3"]
        children = testing.assert_enqueued(fl, after, count=3)

    assert {job.parent_id for job in children} == {job.id for job in enqueued}
