"""`fairlead bullmq import`: jobs that Node added to BullMQ, moved over once each."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from uuid_utils.compat import uuid7

from fairlead import Fairlead, Settings
from fairlead.actions import definitions
from fairlead.db.database import Database
from fairlead.integrations.bullmq.connection import connect, open_queues
from fairlead.integrations.bullmq.importer import ImportPlan, build_request, import_queue
from fairlead.integrations.bullmq.queues import Queues
from fairlead.integrations.engine import Handover
from fairlead.model.job import Job, Lease, NewJob
from tests import given
from tests.bullmq_parts import Broker, use_queue
from tests.cli.test_commands import Shell

pytestmark = pytest.mark.thorough

KEY = "resize"


@pytest.fixture
def shell(broker: Broker, database_url: str, tmp_path: Path) -> Shell:
    config = tmp_path / "fairlead.toml"
    config.write_text(
        f'[engines.bullmq]\ndriver = "bullmq"\nurl = {json.dumps(broker.url)}\nmax_in_flight = 5\n'
    )
    opened = Shell(database_url)
    opened.env["FAIRLEAD_CONFIG"] = str(config)
    assert opened("definitions", "put", KEY, "--kind", "bullmq", "--max-attempts", "3").exit_code == 0
    return opened


@pytest.fixture
def queue() -> str:
    return f"import-{uuid4().hex[:8]}"


def rows(url: str) -> list[tuple[Any, ...]]:
    jobs = sorted(given.at(url, given.all_jobs), key=lambda job: job.payload["n"])
    return [(job.payload, job.priority, job.max_attempts, job.source_ref, job.scheduled_for) for job in jobs]


def run_import(shell: Shell, queue: str, *more: str) -> Any:
    return shell.json("bullmq", "import", "--queue", queue, "--tenant", given.TENANT, *more)


def test_what_waits_is_moved_once_and_the_rest_is_named(
    shell: Shell, broker: Broker, database_url: str, queue: str
) -> None:
    use_queue(
        broker.url,
        queue,
        add=[
            ["thumb", {"n": 1}, {"jobId": "first"}],
            ["thumb", {"n": 2}, {"attempts": 4}],
            ["thumb", {"n": 3}, {"priority": 7}],
            ["thumb", {"n": 4}, {"delay": 3_600_000}],
        ],
        every=3_600_000,
        flow=True,
    )
    before = use_queue(broker.url, queue, counts=True)
    left = {"child": 1, "parent": 1, "repeated": 1, "scheduler": 1}
    would = run_import(shell, queue, "--definition", KEY, "--dry-run")
    assert (would["imported"], would["left"], rows(database_url)) == (4, left, [])
    assert use_queue(broker.url, queue, counts=True) == before

    did = run_import(shell, queue, "--definition", KEY)
    assert (did["imported"], did["left"], did["is_paused"]) == (4, left, False)
    found = rows(database_url)
    assert [row[0] for row in found] == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert [row[1] for row in found] == [100, 100, 107, 100]
    assert [row[2] for row in found] == [3, 4, 3, 3]
    assert found[0][3] == f"bullmq:{queue}:first"
    due = found[3][4] - datetime.now(UTC)
    assert timedelta() < due <= timedelta(hours=1)
    after = use_queue(broker.url, queue, counts=True)
    assert (after["waiting"] + after["prioritized"], after["waiting-children"], after["delayed"]) == (2, 1, 0)
    assert not after["isPaused"]

    again = shell("bullmq", "import", "--queue", queue, "--tenant", given.TENANT, "--definition", KEY)
    assert again.output.startswith("imported 0\nleft 1 in BullMQ: children of flows")
    assert len(rows(database_url)) == 4


async def read_requests(broker: Broker, queue: str, plan: ImportPlan) -> list[NewJob]:
    async with open_queues(broker.table) as queues:
        ids = await queues.list_waiting(queue)
        return [build_request(plan, job) async for job in queues.read_waiting(queue, ids)]


def test_an_import_that_was_killed_is_repeated_without_a_second_copy(
    shell: Shell, broker: Broker, database_url: str, queue: str
) -> None:
    jobs = [["thumb", {"n": n}, {}] for n in range(5)]
    use_queue(broker.url, queue, add=jobs, pause=True)

    async def enqueue_some() -> None:
        """What an import has done that was killed before it removed anything."""
        requests = await read_requests(
            broker, queue, ImportPlan(queue=queue, tenant=given.TENANT, definition=KEY)
        )
        async with Fairlead(settings=Settings(database_url=database_url)) as fl:
            await fl.enqueue_many(requests[:3])
            await fl.cancel(requests[2].id)

    asyncio.run(enqueue_some())
    did = run_import(shell, queue, "--definition", KEY)
    assert (did["imported"], did["imported_before"], did["left"]) == (2, 2, {"canceled": 1})
    assert did["is_paused"]  # it was
    assert sorted(row[0]["n"] for row in rows(database_url)) == [0, 1, 2, 3, 4]
    last = shell(
        "bullmq", "import", "--queue", queue, "--tenant", given.TENANT, "--definition", KEY, "--resume"
    )
    assert last.output.startswith("imported 0\nleft 1 in BullMQ: their copies in Fairlead were canceled")
    counts = use_queue(broker.url, queue, counts=True)
    assert (counts["waiting"], counts["isPaused"]) == (1, False)


class Meddler:
    """Fairlead, while a worker takes a job as soon as it is enqueued."""

    def __init__(self, fl: Fairlead, queues: Any, queue: str) -> None:
        self._fl = fl
        self._queues = queues
        self._queue = queue

    async def enqueue_many(self, requests: Sequence[NewJob]) -> object:
        made = await self._fl.enqueue_many(requests)
        await self._queues.set_paused(self._queue, paused=False)
        worker = self._queues._backend.forQueue(self._queue)
        await worker.moveToActive("token", {"lockDuration": 60_000})
        return made

    async def read(self, job_id: UUID) -> Job:
        return await self._fl.read(job_id)

    async def cancel(self, job_id: UUID) -> object:
        return await self._fl.cancel(job_id)


@pytest.mark.usefixtures("shell")
async def test_a_job_that_a_worker_took_meanwhile_stays_there_and_its_copy_is_canceled(
    broker: Broker, fl: Fairlead, queue: str
) -> None:
    use_queue(broker.url, queue, add=[["thumb", {"n": n}, {}] for n in range(2)])
    plan = ImportPlan(queue=queue, tenant=given.TENANT, definition=KEY)
    async with open_queues(broker.table) as queues:
        result = await import_queue(queues, Meddler(fl, queues, queue), plan, progress=lambda *_: None)
        assert await _count(queues, queue) == (0, 1)
    assert (result.imported, result.left) == (1, {"active": 1, "taken": 1})
    jobs = await given.all_jobs(fl)
    assert [(job.payload, job.status) for job in jobs] == [({"n": 0}, "canceled"), ({"n": 1}, "queued")]


async def _count(queues: Queues, queue: str) -> tuple[int, int]:
    return len(await queues.list_waiting(queue)), (await queues.count_left(queue)).active


def test_what_fairlead_refuses_and_what_it_has_handed_over_stays(
    shell: Shell, broker: Broker, database_url: str, queue: str
) -> None:
    schema = {"type": "object", "required": ["n"]}

    async def prepare() -> None:
        async with Database(database_url, Settings()) as database, database.transaction() as tx:
            await definitions.patch(tx, given.TESTER, KEY, {"arg_schema": schema})
        one = Handover(
            lease=Lease(uuid7(), 1, uuid4()),
            tenant=given.TENANT,
            tenant_id=uuid4(),
            definition_key=KEY,
            queue=queue,
            payload={"n": 9},
            timeout_seconds=60,
            max_attempts=3,
            deadline=datetime.now(UTC),
        )
        async with connect(broker.table) as engine:
            await engine.hand_over([one])

    asyncio.run(prepare())
    use_queue(broker.url, queue, add=[[KEY, {"n": 1}, {}], [KEY, {"m": 1}, {}], ["unheard-of", {"n": 2}, {}]])
    did = run_import(shell, queue, "--by-name")
    assert (did["imported"], did["handed_over"], did["left"]) == (1, 1, {"refused": 2})
    assert any("unheard-of" in refusal for refusal in did["refusals"])
    assert [row[0] for row in rows(database_url)] == [{"n": 1}]
    assert use_queue(broker.url, queue, counts=True)["waiting"] == 3


def test_an_import_that_cannot_begin_says_why(shell: Shell, tmp_path: Path, queue: str) -> None:
    base = ("bullmq", "import", "--queue", queue)
    assert shell.refused(*base, "--tenant", given.TENANT) == "definition_unknown"
    assert shell.refused(*base, "--tenant", "nobody", "--definition", KEY) == "tenant_unknown"
    assert shell.refused(*base, "--tenant", given.TENANT, "--definition", KEY, "--by-name") == "invalid_input"
    assert shell.refused(*base, "--tenant", given.TENANT, "--engine", "other") == "invalid_input"
    colon = shell("bullmq", "import", "--queue", "jobs:1", "--tenant", given.TENANT, "--definition", KEY)
    assert "cannot contain a colon" in colon.output
    (tmp_path / "fairlead.toml").write_text('[engines.bullmq]\ndriver = "nats"\n')
    wrong = shell("bullmq", "import", "--queue", queue, "--tenant", given.TENANT)
    assert "has the driver nats, not bullmq" in wrong.output
