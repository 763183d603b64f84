"""Jobs through the bridge and BullMQ to real Node workers, and back.

What the bridge does with any engine: tests/runtime/test_engine_bridge.py. What the driver does: test_bullmq.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis

from fairlead import Settings
from fairlead.actions import definitions, jobs
from fairlead.db.database import Database
from fairlead.integrations.bullmq.connection import open_queues
from fairlead.integrations.bullmq.stored_job import JobRef
from fairlead.model.job import Job
from fairlead.runtime import engine_bridge
from fairlead.runtime.bridge import Bridge, BridgePlan, read_terms
from fairlead.store import handovers
from tests import given
from tests.acting import act
from tests.bullmq_parts import Broker, NodeWorker
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.thorough

KEY = "resize"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_bridge, "LOOK_SECONDS", 0.1)


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


async def define(db: Database) -> None:
    await act(db, definitions.patch, given.TESTER, KEY, {"kind": "bullmq", "queue": "org-{tenant}"})


async def enqueue(db: Database, payload: Any, **fields: Any) -> UUID:
    return await given.queued_job(db, definition=KEY, payload=payload, **fields)


async def read(db: Database, job_id: UUID) -> Job:
    return (await act(db, jobs.show_job, given.TESTER, job_id))[0]


async def until(db: Database, job_id: UUID, fits: Callable[[Job], bool]) -> Job:
    async with asyncio.timeout(SECONDS):
        while not fits(job := await read(db, job_id)):
            await asyncio.sleep(0.02)
    return job


async def until_ended(db: Database, job_id: UUID) -> Job:
    return await until(db, job_id, lambda job: job.status.terminal)


def lines_of(worker: NodeWorker, job_id: UUID) -> list[dict[str, Any]]:
    return [line for line in worker.lines() if line["id"].startswith(str(job_id))]


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
