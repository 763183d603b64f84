"""Jobs through the bridge and BullMQ to real Node workers, and back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis

from fairlead import Settings
from fairlead.actions import definitions, jobs, tenants
from fairlead.db.database import Database
from fairlead.integrations.bullmq.connection import open_queues
from fairlead.integrations.bullmq.stored_job import JobRef
from fairlead.model.delivery import make_secret
from fairlead.model.job import Job
from fairlead.runtime import engine_bridge
from fairlead.runtime.bridge import Bridge, BridgePlan, read_terms
from fairlead.store import handovers
from tests import given
from tests.acting import act
from tests.bullmq_parts import Broker, NodeWorker, node_worker
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.thorough

KEY = "resize"
AT_ONCE = {"base_seconds": 0, "factor": 1, "cap_seconds": 0, "jitter": 0}

# For what the bridge does, wherever BullMQ keeps its jobs: test_bullmq.py tries the driver on both.
ONE_BACKEND = pytest.mark.parametrize(
    "broker",
    ["redis", "postgres"],
    indirect=True,
    scope="module",
)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_bridge, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(engine_bridge, "STOP_SECONDS", 0.3)


@asynccontextmanager
async def bridged(broker: Broker, db: Database, settings: Settings) -> AsyncIterator[None]:
    terms = read_terms({"bullmq": broker.table})
    plan = BridgePlan(url=db.url, settings=settings, engines=terms, version="test")
    stop = asyncio.Event()
    running = asyncio.create_task(Bridge(plan).run(stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def define(db: Database, *, key: str = KEY, **fields: Any) -> None:
    values = {"kind": "bullmq", "queue": "org-{tenant}", "backoff": AT_ONCE, **fields}
    await act(db, definitions.patch, given.TESTER, key, values)


async def enqueue(db: Database, payload: Any, *, key: str = KEY, **fields: Any) -> UUID:
    return await given.queued_job(db, definition=key, payload=payload, **fields)


async def read(db: Database, job_id: UUID) -> Job:
    return (await act(db, jobs.show_job, given.TESTER, job_id))[0]


async def until(db: Database, job_id: UUID, fits: Callable[[Job], bool]) -> Job:
    async with asyncio.timeout(SECONDS):
        while not fits(job := await read(db, job_id)):
            await asyncio.sleep(0.02)
    return job


async def until_ended(db: Database, job_id: UUID) -> Job:
    return await until(db, job_id, lambda job: job.status.terminal)


def lines_of(worker: NodeWorker, job_id: UUID, what: str = "begin") -> list[dict[str, Any]]:
    return [line for line in worker.lines(what) if line["id"].startswith(str(job_id))]


async def find_ref(db: Database) -> JobRef:
    """The BullMQ job of the attempt that the engine carries."""
    async with db.transaction() as tx:
        rows = await handovers.list_unconfirmed(tx, "bullmq", bridge="", patience=0, limit=2)
        [row] = rows or await handovers.list_in_flight(tx, "bullmq", limit=2)
    return JobRef(row.queue, f"{row.job_id}-{row.attempt_no}-{make_secret(row.token)}")


async def cancel(db: Database, job_id: UUID) -> None:
    await act(db, jobs.cancel, given.TESTER, job_id)


async def test_jobs_go_to_their_tenants_queues_and_their_results_come_back(
    db: Database, settings: Settings, broker: Broker, worker: NodeWorker, tmp_path: Path
) -> None:
    await define(db)
    # the result of a job that does not wait may be found before its progress is heard of
    ours = await enqueue(db, {"do": "progress", "path": str(tmp_path / "seen")})
    theirs = await enqueue(db, {"do": "echo", "value": 7}, tenant=given.OTHER)
    async with bridged(broker, db, settings):
        await until(db, ours, lambda job: bool(job.progress) and job.progress["message"] == "nearly")
        (tmp_path / "seen").touch()
        assert (await until_ended(db, ours)).output == "done"
        assert (await until_ended(db, theirs)).output == {"echo": 7}
    assert [lines_of(worker, one)[0]["queue"] for one in (ours, theirs)] == ["org-acme", "org-umbrella"]
    async with db.transaction() as tx:
        [attempt] = (await jobs.show_job(tx, given.TESTER, ours))[1]
        assert attempt.stdout_tail == "a line of its log"
        assert await handovers.count(tx, "bullmq") == 0
    # a bridge that stops removes what it has stored
    async with open_queues(broker.table) as queues:
        assert await queues.read([JobRef("org-acme", lines_of(worker, ours)[0]["id"])]) == [None]


@ONE_BACKEND
async def test_a_failure_is_retried_as_a_job_of_its_own_and_a_final_one_is_not(
    db: Database, settings: Settings, broker: Broker, worker: NodeWorker
) -> None:
    await define(db, max_attempts=3)
    flaky = await enqueue(db, {"do": "failFirst"})
    final = await enqueue(db, {"do": "failForGood"})
    failing = await enqueue(db, {"do": "fail"}, max_attempts=2)
    async with bridged(broker, db, settings):
        assert (await until_ended(db, flaky)).output == 2
        assert (await until_ended(db, final)).status == "failed"
        dead = await until_ended(db, failing)
    assert (dead.status, dead.attempt_count) == ("dead_letter", 2)
    assert "it broke" in (dead.last_error or "")
    assert [line["ids"]["attempt_no"] for line in lines_of(worker, flaky)] == [1, 2]
    assert len(lines_of(worker, final)) == 1


@ONE_BACKEND
async def test_canceled_jobs_stop(
    db: Database, settings: Settings, broker: Broker, worker: NodeWorker
) -> None:
    await define(db)
    await define(db, key="stuck", queue="without-worker")
    running = await enqueue(db, {"do": "sleep", "ms": 60_000})
    async with bridged(broker, db, settings):
        await eventually(lambda: lines_of(worker, running) or None, "the job to begin")
        await cancel(db, running)
        assert (await until_ended(db, running)).status == "canceled"
        await eventually(lambda: lines_of(worker, running, "end") or None, "the worker to stop it")
        waiting = await enqueue(db, {"do": "echo"}, key="stuck")
        await until(db, waiting, lambda job: job.status == "running")
        ref = await find_ref(db)
        await cancel(db, waiting)
        assert (await until_ended(db, waiting)).status == "canceled"
    async with open_queues(broker.table) as queues:
        assert await queues.read([ref]) == [None]


@ONE_BACKEND
async def test_the_late_result_of_a_worker_that_does_not_listen_is_refused(
    db: Database, settings: Settings, broker: Broker, tmp_path: Path
) -> None:
    until_late = {"do": "waitForFile", "path": str(tmp_path / "late")}
    terms: dict[str, Any] = {"queue": "deaf", "max_attempts": 1}
    await define(db, **terms, timeout_seconds=600)
    slow = await enqueue(db, until_late)
    with node_worker(broker.url, ["deaf"], tmp_path / "deaf.jsonl") as deaf:
        async with bridged(broker, db, settings):
            await eventually(lambda: lines_of(deaf, slow) or None, "the job to begin")
            await define(db, **terms, timeout_seconds=1)
            timed_out = await until_ended(db, slow)
            assert timed_out.status == "dead_letter"
            assert "no result within 1 s" in (timed_out.last_error or "")
            await define(db, **terms, timeout_seconds=600)
            canceled = await enqueue(db, until_late)
            await eventually(lambda: lines_of(deaf, canceled) or None, "the job to begin")
            await cancel(db, canceled)
            assert (await until_ended(db, canceled)).status == "canceled"
            (tmp_path / "late").touch()
            await eventually(lambda: len(deaf.lines("end")) == 2 or None, "the worker to end both")
            after = await enqueue(db, {"do": "echo"})
            await until_ended(db, after)
    assert (await read(db, slow)).status == "dead_letter"
    assert (await read(db, canceled)).status == "canceled"


async def test_a_job_that_was_removed_is_tried_again(
    db: Database, settings: Settings, broker: Broker
) -> None:
    await define(db, queue="forgetful")
    job_id = await enqueue(db, {"do": "echo"})
    async with bridged(broker, db, settings), open_queues(broker.table) as queues:
        await until(db, job_id, lambda job: job.status == "running")
        ref = await find_ref(db)
        async with asyncio.timeout(SECONDS):
            while await queues.remove([ref]) != [True]:
                await asyncio.sleep(0.01)
        again = await until(db, job_id, lambda job: job.attempt_count == 2)
        assert "no longer has the job" in (again.last_error or "")


@ONE_BACKEND
async def test_a_tenant_s_limit_holds_among_the_workers(
    db: Database, settings: Settings, broker: Broker, worker: NodeWorker, tmp_path: Path
) -> None:
    await define(db)
    await act(db, tenants.change, given.TESTER, given.TENANT, {"max_running": 2})
    ids = [await enqueue(db, {"do": "waitForFile", "path": str(tmp_path / "go")}) for _ in range(8)]
    async with bridged(broker, db, settings):
        await eventually(lambda: sum(len(lines_of(worker, one)) for one in ids) >= 2, "two to begin")
        (tmp_path / "go").touch()
        for job_id in ids:
            assert (await until_ended(db, job_id)).status == "succeeded"
    times = [(line["at"], 1) for one in ids for line in lines_of(worker, one)]
    times += [(line["at"], -1) for one in ids for line in lines_of(worker, one, "end")]
    running = most = 0
    for _, change in sorted(times):
        running += change
        most = max(most, running)
    assert most == 2


@ONE_BACKEND
async def test_a_queue_with_a_colon_fails_its_jobs_and_says_why(
    db: Database, settings: Settings, broker: Broker
) -> None:
    await define(db, queue="jobs:{tenant}")
    job_id = await enqueue(db, {})
    async with bridged(broker, db, settings):
        failed = await until_ended(db, job_id)
    assert failed.status == "failed"
    assert "cannot contain a colon: 'jobs:acme'" in (failed.last_error or "")


async def forge_result(broker: Broker, queue: str, job_id: str) -> None:
    """What BullMQ writes when a worker ends a job, and when a job is removed."""
    async with Redis.from_url(broker.url) as redis:
        await redis.hset(f"bull:{queue}:{job_id}", mapping={"timestamp": 1, "returnvalue": '"forged"'})
        await redis.zadd(f"bull:{queue}:completed", {job_id: 1})
        await redis.xadd(f"bull:{queue}:events", {"event": "completed", "jobId": job_id})
        await redis.xadd(f"bull:{queue}:events", {"event": "removed", "jobId": f"{job_id}"})


@pytest.mark.parametrize("broker", ["redis"], indirect=True, scope="module")
async def test_a_worker_of_another_tenant_cannot_end_a_job(
    db: Database, settings: Settings, broker: Broker, worker: NodeWorker, tmp_path: Path
) -> None:
    """Somebody who can write to one tenant's queue knows the id of another tenant's job."""
    await define(db)
    job_id = await enqueue(db, {"do": "waitForFile", "path": str(tmp_path / "go")})
    theirs = await enqueue(db, {"do": "echo"}, tenant=given.OTHER)
    async with bridged(broker, db, settings):
        await until_ended(db, theirs)
        await eventually(lambda: lines_of(worker, job_id) or None, "the job to begin")
        [line] = lines_of(worker, job_id)
        for forged in (f"{job_id}-1", line["id"]):
            await forge_result(broker, "org-umbrella", forged)
        after = await enqueue(db, {"do": "echo"}, tenant=given.OTHER)
        await until_ended(db, after)
        assert (await read(db, job_id)).status == "running"
        (tmp_path / "go").touch()
        assert (await until_ended(db, job_id)).output != "forged"
