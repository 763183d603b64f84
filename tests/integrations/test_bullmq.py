"""The driver for BullMQ, with real Node workers, on Redis and on BullMQ's PostgreSQL backend."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from uuid_utils.compat import uuid7

from fairlead.errors import EngineUnavailable, SettingInvalid
from fairlead.integrations.bullmq.connection import connect, open_queues
from fairlead.integrations.bullmq.engine import BullmqEngine
from fairlead.integrations.bullmq.postgres_queues import open_postgres_queues
from fairlead.integrations.bullmq.stored_job import build_ref
from fairlead.integrations.configuration import ConnectionTable
from fairlead.integrations.engine import DeliveryProgress, Handover, Report
from fairlead.model.job import Lease
from fairlead.model.outcome import Failed, Succeeded
from tests.bullmq_parts import Broker, NodeWorker, Redis, node_worker, redis_server, use_queue
from tests.processes import free_port
from tests.tables import each_case
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.thorough


@pytest.fixture
async def engine(broker: Broker) -> AsyncIterator[BullmqEngine]:
    async with connect(broker.table) as opened:
        yield opened


def build(payload: Any, *, queue: str = "work", attempt_no: int = 1) -> Handover:
    return Handover(
        lease=Lease(uuid7(), attempt_no, uuid4()),
        tenant="acme",
        tenant_id=uuid4(),
        definition_key="resize",
        queue=queue,
        payload=payload,
        timeout_seconds=60,
        max_attempts=3,
        deadline=datetime.now(UTC) + timedelta(seconds=60),
        correlation_id="order-7",
    )


async def collect(
    engine: BullmqEngine, handovers: Sequence[Handover], enough: Callable[[list[Report]], bool] | None = None
) -> list[Report]:
    """Reports on these attempts, by default until each has an outcome."""
    ours = {one.lease.job_id for one in handovers}
    found: list[Report] = []

    def ended() -> bool:
        return {one.attempt.job_id for one in found if not isinstance(one.what, DeliveryProgress)} == ours

    async with asyncio.timeout(SECONDS), aclosing(engine.results()) as batches:  # type: ignore[type-var]
        async for batch in batches:
            found += [one for one in batch if one.attempt.job_id in ours]
            if enough(found) if enough else ended():
                return found
    raise AssertionError("the reports ended")


def outcomes(reports: Sequence[Report]) -> dict[UUID, Succeeded | Failed]:
    return {one.attempt.job_id: one.what for one in reports if not isinstance(one.what, DeliveryProgress)}


async def begun(worker: NodeWorker, handover: Handover) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        return next((line for line in worker.lines() if line["id"] == build_ref(handover).id), None)

    return await eventually(look, "the worker to begin the job")


async def test_a_worker_gets_the_payload_and_its_result_comes_back(
    engine: BullmqEngine, worker: NodeWorker
) -> None:
    one = build({"do": "echo", "value": [1, {"a": None}, "ü"]})
    assert await engine.hand_over([one]) == {}
    [report] = await collect(engine, [one])
    assert report.what == Succeeded({"echo": [1, {"a": None}, "ü"]})
    assert (report.attempt.job_id, report.attempt.attempt_no) == (one.lease.job_id, 1)
    line = await begun(worker, one)
    assert (line["name"], line["data"]) == ("resize", one.payload)
    ids = line["ids"]
    assert (ids["job_id"], ids["attempt_no"]) == (str(one.lease.job_id), 1)
    assert (ids["tenant"], ids["correlation_id"]) == ("acme", "order-7")
    assert str(one.lease.token) not in str(line)


async def test_any_payload_arrives_as_it_is(engine: BullmqEngine, worker: NodeWorker, broker: Broker) -> None:
    # BullMQ's PostgreSQL backend gives workers an empty object for null
    nothing: dict[str, Any] | None = {} if broker.kind == "postgres" else None
    payloads = ["a text", 7, None, [1, 2], "{", {"nested": {"opts": 1}}]
    handovers = [build(payload) for payload in payloads]
    await engine.hand_over(handovers)
    seen = [(await begun(worker, one))["data"] for one in handovers]
    assert seen == [nothing if payload is None else payload for payload in payloads]


@pytest.mark.usefixtures("worker")
async def test_progress_and_the_log_come_back(engine: BullmqEngine, tmp_path: Path) -> None:
    one = build({"do": "progress", "path": str(tmp_path / "seen")})
    await engine.hand_over([one])

    def has_ended(reports: list[Report]) -> bool:
        if DeliveryProgress(75.0, "nearly") in [report.what for report in reports]:
            (tmp_path / "seen").touch()
        return bool(outcomes(reports))

    reports = await collect(engine, [one], has_ended)
    assert (reports[-1].what, reports[-1].log) == (Succeeded("done"), "a line of its log")


@pytest.mark.usefixtures("worker")
async def test_a_failure_has_its_error_and_its_stack_trace(engine: BullmqEngine) -> None:
    failing, final = build({"do": "fail", "message": "no such file"}), build({"do": "failForGood"})
    await engine.hand_over([failing, final])
    ends = outcomes(await collect(engine, [failing, final]))
    failed, ended = ends[failing.lease.job_id], ends[final.lease.job_id]
    assert isinstance(failed, Failed)
    assert isinstance(ended, Failed)
    assert (failed.kind, failed.message, failed.retryable) == ("TypeError", "no such file", True)
    assert "worker.mjs" in (failed.traceback or "")
    assert (ended.kind, ended.retryable) == ("UnrecoverableError", False)


async def test_an_attempt_that_is_handed_over_twice_runs_once(
    engine: BullmqEngine, worker: NodeWorker, broker: Broker
) -> None:
    one, last = build({"do": "echo"}), build({"do": "echo"})
    await engine.hand_over([one, one])
    [report] = await collect(engine, [one])
    assert report.acknowledge is not None
    await report.acknowledge()
    await engine.remove_stored(before=monotonic())  # as it does every second
    # another bridge, which has not seen the result
    async with connect(broker.table) as other:
        await other.hand_over([one])
        await other.hand_over([last])
        await begun(worker, last)
    assert [line["id"] for line in worker.lines()].count(build_ref(one).id) == 1


async def test_a_queue_that_bullmq_cannot_have_is_refused(engine: BullmqEngine) -> None:
    one = build({}, queue="jobs:acme")
    refused = await engine.hand_over([one])
    assert "cannot contain a colon: 'jobs:acme'" in refused[one.id]


async def test_a_result_whose_event_was_lost_is_found_and_the_job_is_removed_when_it_is_stored(
    engine: BullmqEngine, worker: NodeWorker, broker: Broker
) -> None:
    one, failing, waiting = build({"do": "echo"}), build({"do": "fail"}), build({}, queue="idle")
    await engine.hand_over([one, failing, waiting])
    await eventually(
        lambda: (
            {build_ref(one).id, build_ref(failing).id} <= {line["id"] for line in worker.lines("end")} or None
        ),
        "both to end",
    )
    async with connect(broker.table) as other:  # it has seen no event
        reports = await found(other, [one, failing, waiting], 2)
        assert outcomes(reports)[one.lease.job_id] == Succeeded({"echo": None})
        assert isinstance(outcomes(reports)[failing.lease.job_id], Failed)
        for report in reports:
            assert report.acknowledge is not None
            await report.acknowledge()
        await other.remove_stored(before=inf)
        async with open_queues(broker.table) as queues:
            refs = [build_ref(each) for each in (one, failing, waiting)]
            left = await queues.read(refs)
    assert [each is None for each in left] == [True, True, False]


async def found(engine: BullmqEngine, handovers: Sequence[Handover], number: int) -> Sequence[Report]:
    async with asyncio.timeout(SECONDS):
        while len(reports := await engine.find_lost(handovers)) < number:
            await asyncio.sleep(0.01)
    return reports


async def test_an_attempt_that_was_removed_is_lost(engine: BullmqEngine, broker: Broker) -> None:
    one = build({}, queue="idle")
    await engine.hand_over([one])
    assert await engine.find_lost([one]) == []
    async with open_queues(broker.table) as queues:
        assert await queues.remove([build_ref(one)]) == [True]
    [report] = await engine.find_lost([one])
    assert isinstance(report.what, Failed)
    assert (report.what.kind, report.what.retryable) == ("DeliveryLost", True)
    if broker.kind == "redis":  # PostgreSQL has no event for it
        [hint] = await collect(engine, [one])
        assert hint.what == report.what


async def test_a_waiting_attempt_is_taken_back(engine: BullmqEngine, broker: Broker) -> None:
    one, other = build({}, queue="idle"), build({}, queue="idle")
    await engine.hand_over([one, other])
    assert await engine.cancel([one]) == {one.id}
    async with open_queues(broker.table) as queues:
        read = await queues.read([build_ref(one), build_ref(other)])
    assert [job is None for job in read] == [True, False]
    # its removal is no loss
    assert await engine.find_lost([one, other]) == []


async def test_a_worker_that_listens_stops_a_canceled_attempt(
    engine: BullmqEngine, worker: NodeWorker
) -> None:
    one = build({"do": "sleep", "ms": 60_000})
    await engine.hand_over([one])
    await begun(worker, one)
    assert await engine.cancel([one]) == set()
    [end] = outcomes(await collect(engine, [one])).values()
    assert isinstance(end, Failed)
    assert end.kind == "AbortError"


async def test_the_result_of_a_finished_attempt_survives_a_cancel(
    engine: BullmqEngine, worker: NodeWorker
) -> None:
    one = build({"do": "echo", "value": 5})
    await engine.hand_over([one])
    await eventually(
        lambda: build_ref(one).id in {line["id"] for line in worker.lines("end")} or None, "its end"
    )
    await found(engine, [one], 1)
    assert await engine.cancel([one]) == set()
    [report] = await engine.find_lost([one])
    assert report.what == Succeeded({"echo": 5})


async def test_a_job_of_a_killed_worker_is_delivered_again_and_has_one_result(
    engine: BullmqEngine, broker: Broker, tmp_path: Path
) -> None:
    one = build({"do": "hangFirst"}, queue="fragile")
    file = tmp_path / "fragile.jsonl"
    await engine.hand_over([one])
    with node_worker(broker.url, ["fragile"], file, lockDuration=600) as first:
        await begun(first, one)
        first.kill()
    # it looks for jobs of dead workers, and is not taken for one if it stands still: BullMQ gives such a job up
    with node_worker(broker.url, ["fragile"], file, stalledInterval=200):
        reports = await collect(engine, [one])
    assert outcomes(reports) == {one.lease.job_id: Succeeded(2)}
    assert "BullMQ delivers the job again" in str([report.what for report in reports])


async def test_an_attempt_of_a_worker_that_died_is_taken_back_as_one_that_had_begun(
    engine: BullmqEngine, broker: Broker, tmp_path: Path
) -> None:
    one = build({"do": "sleep", "ms": 60_000}, queue="dying")
    await engine.hand_over([one])
    with node_worker(broker.url, ["dying"], tmp_path / "dying.jsonl", lockDuration=200) as dying:
        await begun(dying, one)
        dying.kill()
    async with open_queues(broker.table) as queues, asyncio.timeout(SECONDS):
        ref = build_ref(one)
        while await queues.read([ref]) != [None]:  # until its lock has expired
            assert await engine.cancel([one]) == set()
            await asyncio.sleep(0.02)


async def test_a_redis_that_lost_everything_loses_attempts_and_an_outage_is_said(
    tmp_path: Path, redis: Redis
) -> None:
    del redis  # for its skip
    with redis_server(tmp_path / "own") as own:
        one = build({})
        async with connect(Broker("redis", own.url).table) as engine:
            await engine.hand_over([one])
            own.kill()
            for call in (engine.hand_over, engine.find_lost, engine.cancel):
                with pytest.raises(EngineUnavailable, match="BullMQ's Redis did not answer"):
                    await call([one])
            with pytest.raises(EngineUnavailable):
                await collect(engine, [one])
            own.start()
            assert await engine.find_lost([one]) == []  # it keeps every write
            own.forget()
            [report] = await engine.find_lost([one])
            assert isinstance(report.what, Failed)
            assert report.what.kind == "DeliveryLost"


@pytest.mark.parametrize("broker", ["postgres"], indirect=True)
async def test_an_event_that_is_committed_after_a_later_one_is_read(broker: Broker) -> None:
    publish = "select bullmq.publish_event('ours', 'completed', jsonb_build_object('jobId', %s::text))"
    async with (
        open_postgres_queues(broker.url, "bullmq") as queues,
        await psycopg.AsyncConnection.connect(broker.url) as slow,
        await psycopg.AsyncConnection.connect(broker.url, autocommit=True) as quick,
    ):
        await queues.watch(["ours"])
        await slow.execute(publish, ["first"])
        await quick.execute(publish, ["second"])
        assert [one.ref.id for one in await queues.read_events()] == ["second"]
        await slow.commit()
        assert [one.ref.id for one in await queues.read_events()] == ["first"]
        await quick.execute(publish, ["third"])
        assert [one.ref.id for one in await queues.read_events()] == ["third"]


async def test_a_postgresql_without_the_tables_or_without_an_answer_is_said(database_url: str) -> None:
    with pytest.raises(EngineUnavailable, match="has no tables of BullMQ"):
        async with connect(Broker("postgres", database_url).table):
            pass
    nowhere = f"postgresql://user:hidden@127.0.0.1:{free_port()}/x"
    with pytest.raises(EngineUnavailable, match="BullMQ's PostgreSQL did not answer") as error:
        async with connect(Broker("postgres", nowhere).table):
            pass
    assert "hidden" not in str(error.value)


@each_case(
    ("options", "why"),
    [
        ({}, "url"),
        ({"url": "amqp://localhost"}, "must begin with redis://"),
        ({"url": "redis://localhost", "perfix": "bull"}, "perfix"),
        ({"url": "env:NO_SUCH_VARIABLE_HERE"}, "NO_SUCH_VARIABLE_HERE"),
        ({"url": "postgresql://localhost/x", "schema": 'a"b'}, "must be a name"),
    ],
)
async def test_a_table_that_cannot_be_used_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingInvalid, match=why):
        async with connect(ConnectionTable("engines", "bullmq", "bullmq", options)):
            pass


async def test_an_application_s_own_jobs_are_left_alone(
    engine: BullmqEngine, worker: NodeWorker, broker: Broker
) -> None:
    use_queue(broker.url, "work", add=[["resize", {"do": "echo", "mine": 1}, {}]])
    one = build({"do": "echo"})
    await engine.hand_over([one])
    await collect(engine, [one])
    await eventually(
        lambda: {"do": "echo", "mine": 1} in [line["data"] for line in worker.lines("end")] or None, "its end"
    )
