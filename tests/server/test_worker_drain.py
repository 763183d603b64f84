"""A worker over HTTP that is asked to drain gets no more jobs, and keeps those that it has."""

import pytest

from fairlead.actions import workers
from fairlead.server import http_claims
from fairlead.store import workers as stored_workers
from tests import given
from tests.server.world import World


async def claim(world: World) -> list[str]:
    answer = await world.call(
        "POST",
        "/worker/jobs/claim",
        who="worker",
        json={"worker_id": "one", "limit": 1, "definitions": ["greet"]},
    )
    assert answer.status_code == 200, answer.text
    return [one["job_id"] for one in answer.json()["items"]]


async def test_a_worker_that_drains_gets_no_jobs_until_it_is_resumed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_claims, "RECORD_WORKER_SECONDS", 0.0)
    async with world.fl.transaction() as tx:
        jobs = [str(await given.queued_job(tx)) for _ in range(2)]
    assert await claim(world) == jobs[:1]
    async with world.fl.transaction() as tx:
        [worker] = await stored_workers.list_page(tx, stale_seconds=60, after="", limit=2)
        name = worker.worker_id
        assert (await workers.drain(tx, given.TESTER, name)).drain_requested_by == "tester"
        details = await workers.get_details(tx, given.TESTER, name)
        assert [str(job.job_id) for job in details.jobs] == jobs[:1]

    assert await claim(world) == []

    async with world.fl.transaction() as tx:
        await workers.resume(tx, given.TESTER, name)
    assert await claim(world) == jobs[1:]
