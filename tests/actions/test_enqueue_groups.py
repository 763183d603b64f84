"""Concurrent enqueues share statements, and each caller gets the answer that it would get alone."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fairlead import Fairlead, NewJob, Settings
from fairlead.actions import definitions, enqueue_groups, tenants
from fairlead.db.tx import json_text
from fairlead.errors import JobIdTaken, PayloadInvalid, QueueFull
from fairlead.library.client import EnqueuedJob
from fairlead.store import definitions as stored
from fairlead.store import jobs
from tests import given
from tests.given import TENANT, TESTER

MANY = 60


async def enqueue_all(fl: Fairlead, requests: list[NewJob]) -> list[EnqueuedJob | BaseException]:
    """Enqueue concurrently, with the ids of tenant and definition known."""
    await fl.submit(given.request())
    return await asyncio.gather(*map(fl.submit, requests), return_exceptions=True)


async def read_values(fl: Fairlead, query: str, *values: Any) -> list[Any]:
    rows = await fl.database.transact(lambda tx: tx.values(query, values))
    return [value for (value,) in rows]


async def test_concurrent_enqueues_share_transactions_and_each_job_is_complete(fl: Fairlead) -> None:
    requests = [given.request(payload={"name": f"user {n}"}) for n in range(MANY)]

    made = await enqueue_all(fl, requests)

    assert [one.id for one in made if isinstance(one, EnqueuedJob)] == [new.id for new in requests]
    for new in requests:
        job = await fl.read(new.id)
        assert (job.payload, job.status, job.created_by) == (new.payload, "queued", "tester")
    assert await given.count_enqueuing_transactions(fl) < MANY / 2
    audited = [entry.resource_id for entry in await given.audit_entries(fl, "job_created", actor="tester")]
    assert {str(new.id) for new in requests} < set(audited)
    assert len(audited) == MANY + 1


async def test_few_concurrent_enqueues_are_sent_at_once(fl: Fairlead) -> None:
    few = [given.request() for _ in range(enqueue_groups.MOST_STATEMENTS)]

    await enqueue_all(fl, few)

    assert await given.count_enqueuing_transactions(fl) == len(few) + 1


async def test_a_refused_job_of_a_group_fails_alone(fl: Fairlead) -> None:
    taken = (await fl.submit(given.request())).id
    requests = [given.request() for _ in range(MANY)]
    requests[20] = given.request(id=taken)
    requests[30] = given.request(payload={"name": 5})

    made = await enqueue_all(fl, requests)

    assert isinstance(made[20], JobIdTaken)
    assert isinstance(made[30], PayloadInvalid)
    assert [n for n, one in enumerate(made) if isinstance(one, BaseException)] == [20, 30]
    fine = {one.id for one in made if isinstance(one, EnqueuedJob)}
    assert fine < set(await given.ready_jobs(fl))


async def test_a_definition_that_changed_since_is_checked_anew(fl: Fairlead) -> None:
    await fl.submit(given.request())
    schema = {"type": "object", "required": ["name", "age"]}
    await fl.database.transact(lambda tx: definitions.patch(tx, TESTER, "greet", {"arg_schema": schema}))

    requests = [given.request(payload={"name": "Ada", "age": 36}) for _ in range(MANY - 1)]
    requests.append(given.request())
    made = await asyncio.gather(*map(fl.submit, requests), return_exceptions=True)

    assert isinstance(made[-1], PayloadInvalid)
    assert all(isinstance(one, EnqueuedJob) for one in made[:-1])


async def test_a_full_queue_refuses_each_of_them(fl: Fairlead) -> None:
    await fl.submit(given.request())
    await fl.database.transact(lambda tx: tenants.change(tx, TESTER, TENANT, {"quotas": {"queued_jobs": 1}}))

    made = await asyncio.gather(*(fl.submit(given.request()) for _ in range(MANY)), return_exceptions=True)

    assert {type(one) for one in made} == {QueueFull}


async def test_a_group_that_a_quota_may_not_have_room_for_is_counted(fl: Fairlead) -> None:
    await fl.submit(given.request())
    tenant_id = await given.tenant_id(fl)
    definition = await fl.database.transact(lambda tx: stored.get(tx, "greet"))
    assert definition is not None
    # room for 600,000 jobs at 10,000 a second
    soon = "update fairlead.tenant_use set roomy_until = clock_timestamp() + interval '60 seconds' returning true"
    await read_values(fl, soon)
    plain = [
        jobs.PlainJob(given.request().id, tenant_id, definition.id, definition.version, "greet", b"{}")
        for _ in range(2)
    ]

    def store(size: int) -> Any:
        values = (json_text([jobs.describe_plain(job) for job in plain]), size, "tester")
        return fl.database.single(lambda tx: tx.run_quick(jobs.sql.enqueue_plain_group, values))

    assert await store(700_000) == []
    assert len(await store(2)) == 2


async def test_a_canceled_caller_takes_no_other_with_it(fl: Fairlead) -> None:
    await fl.submit(given.request())
    requests = [given.request() for _ in range(MANY)]
    tasks = [asyncio.create_task(fl.submit(new)) for new in requests]
    await asyncio.sleep(0)  # all of them have begun
    for task in tasks[10:20]:
        task.cancel()
    await tasks[0]
    await asyncio.sleep(0)  # a group has begun, with all that wait
    for task in tasks[20:30]:
        task.cancel()

    made = await asyncio.gather(*tasks, return_exceptions=True)

    assert all(isinstance(one, asyncio.CancelledError) for one in made[10:30])
    assert all(isinstance(one, EnqueuedJob) for one in made[:10] + made[30:])
    assert {new.id for new in requests[:10] + requests[30:]} < set(await given.ready_jobs(fl))


class AnswerLoser:
    """A line to the server that loses the answer to the first statement with this text, and the connection with it."""

    def __init__(self, server: Path, text: bytes) -> None:
        self._server = server
        self._text = text
        self.lost = False

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._server)
        answers = asyncio.create_task(self._forward_answers(there, writer))
        while data := await reader.read(1 << 20):
            loses = not self.lost and self._text in data
            if loses:
                self.lost = True
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
            back.write(data)
            if loses:
                await there.read(1)  # the statement is committed
                break
        for line in (back, writer):
            line.close()

    async def _forward_answers(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await there.read(1 << 20):
            writer.write(data)


async def test_a_lost_answer_to_a_group_is_asked_for_again(settings: Settings) -> None:
    parts = conninfo_to_dict(str(settings.database_url))
    name = f".s.PGSQL.{parts.get('port', 5432)}"
    line = AnswerLoser(Path(str(parts["host"])) / name, b'"definition_id"')
    requests = [given.request() for _ in range(MANY)]
    # not pytest's folder: with a long user name its path is too long for a socket
    with tempfile.TemporaryDirectory() as folder:
        lossy = replace(settings, database_url=make_conninfo(str(settings.database_url), host=folder))
        async with (
            await asyncio.start_unix_server(line.meet, Path(folder) / name),
            Fairlead(settings=lossy, actor="tester") as fl,
        ):
            made = await enqueue_all(fl, requests)
            stored = set(await given.ready_jobs(fl))

    assert line.lost
    assert [one for one in made if isinstance(one, BaseException)] == []
    assert {new.id for new in requests} < stored
    assert len(stored) == MANY + 1


async def test_lost_connections_store_no_job_twice_and_lose_none(fl: Fairlead) -> None:
    await fl.submit(given.request())
    requests = [given.request() for _ in range(600)]
    tasks = [asyncio.create_task(fl.submit(new)) for new in requests]
    await tasks[0]
    await fl.database.single(
        lambda tx: tx.values(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name = 'fairlead' and pid <> pg_backend_pid()"
        )
    )

    made = await asyncio.gather(*tasks, return_exceptions=True)

    assert [one for one in made if isinstance(one, BaseException)] == []
    assert {new.id for new in requests} < set(await given.ready_jobs(fl))
