"""The clients of a chaos run: every call has an answer, `ok` took effect, `fail` did not, and the rest is unknown."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import msgspec
import pytest

from fairlead.chaos import scenario
from fairlead.chaos.faults.proxy import HttpProxy, PostgresProxy
from fairlead.chaos.history import AnswerRecord, CallRecord, HistoryWriter, read_history
from fairlead.chaos.load import enqueue_calls, hostile
from fairlead.chaos.load.client_calls import CallFailed, CallUnclear, ClientSession, classify
from fairlead.chaos.load.order_calls import OrderCalls, OrderConnection
from fairlead.errors import DatabaseBusy, DatabaseUnreachable, PayloadInvalid, QueueFull
from fairlead.library.app import Fairlead
from fairlead.settings import Settings
from tests.chaos.live_run import LiveRun
from tests.processes import until
from tests.tables import each_case
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

ACME = scenario.TENANTS[0]
# Nothing runs these here.
UNSERVED = [
    scenario.HTTP,
    scenario.TYPESCRIPT,
    scenario.HOST_COMMAND,
    scenario.POISON,
    scenario.ISOLATED,
    # a function waits on if its client ends before it has sent the event
    scenario.DURABLE,
]
CALLS = 50
REFUSALS = {
    "rolled_back",
    "job_not_retryable",
    "job_not_cancelable",
    "job_not_editable",
    "definition_unknown",
    "approval_closed",
}
JOBS = """
select j.correlation_id, (j.payload->>'n')::int, j.id from fairlead.jobs j
where j.source = 'manual' and j.correlation_id is not null
"""

Calls = list[tuple[CallRecord, AnswerRecord]]


@pytest.fixture
def run(live_run: LiveRun) -> LiveRun:
    live_run.install(unserved=UNSERVED)
    return live_run


def read_calls(folder: Path) -> Calls:
    """Each call and its answer; a call without one is an error."""
    records = read_history(folder)
    answers = {record.id: record for record in records if isinstance(record, AnswerRecord)}
    return [(record, answers.pop(record.id)) for record in records if isinstance(record, CallRecord)]


def count_answers(folder: Path) -> int:
    return sum(isinstance(record, AnswerRecord) for record in read_history(folder))


@pytest.mark.thorough
@pytest.mark.timeout(10 * SECONDS)
def test_in_a_quiet_run_the_history_matches_the_tables(run: LiveRun) -> None:
    limits = {"FAIRLEAD_RATE_LIMIT_PER_SECOND": "100000", "FAIRLEAD_RATE_LIMIT_BURST": "100000"}
    with run.server(**limits), run.worker(), run.client(seed=3, rate=150) as client:
        until(lambda: count_answers(run.history) >= CALLS, "the client's calls")
        client.signal(signal.SIGTERM)
        assert client.exit_code(seconds=SECONDS) == 0
        until(run.has_drained, "the jobs to end")
    calls = read_calls(run.history)

    assert {answer.code for _, answer in calls if answer.outcome == "fail"} <= REFUSALS
    # only a machine that is too slow leaves calls without an answer here
    assert {answer.code for _, answer in calls if answer.outcome == "unknown"} <= {"stopped", "gave_up"}
    _jobs_are_those_of_the_calls(run, calls)
    orders = {row for (row,) in run.rows("select id from public.chaos_orders")}
    _matches(orders, calls, lambda call: UUID(call.what["order"]) if call.kind == "order" else None)
    runs = run.rows("select correlation_id, status from fairlead.workflow_runs")
    _matches({UUID(row[0]) for row in runs}, calls, lambda call: _first(call) if call.kind == "run" else None)
    assert {row[1] for row in runs} <= {"succeeded"}
    events = run.rows("select correlation_id from fairlead.events where name = %s", scenario.EVENT_TYPE)
    _matches({UUID(row[0]) for row in events}, calls, lambda call: _first(call) if _emits(call) else None)
    assert len(events) == len(set(events))


def _first(call: CallRecord) -> UUID:
    """The id that the call's jobs, events and runs carry."""
    return UUID(str(call.what.get("repeat_of", call.id)))


def _emits(call: CallRecord) -> bool:
    return call.kind == "emit" or (call.kind == "order" and bool(call.what["event"]))


def _matches(stored: set[UUID], calls: Calls, find: Callable[[CallRecord], UUID | None]) -> None:
    """The tables have what acknowledged calls made, and beyond that only what unknown ones may have made."""
    made = {find(call) for call, answer in calls if answer.outcome == "ok"} - {None}
    perhaps = {find(call) for call, answer in calls if answer.outcome == "unknown"}
    assert made <= stored <= made | perhaps


def _jobs_are_those_of_the_calls(run: LiveRun, calls: Calls) -> None:
    """Each acknowledged job is in the tables once, under the id of the answer; other jobs are of unknown calls."""
    expected: dict[tuple[UUID, int], UUID] = {}
    for call, answer in calls:
        if call.kind in ("enqueue", "order") and answer.outcome == "ok":
            again = answer.what.get("deduplicated", [False] * len(answer.ids))
            assert len(answer.ids) == len(call.what["jobs"])
            for n, (job, deduplicated) in enumerate(zip(answer.ids, again, strict=True)):
                if not deduplicated:
                    assert expected.setdefault((_first(call), n), job) == job
                    assert call.what["jobs"][n].get("id", str(job)) == str(job)
    rows = run.rows(JOBS)
    stored = {(UUID(call), n): job for call, n, job in rows}
    assert len(stored) == len(rows)
    assert expected.items() <= stored.items()
    unknown = {_first(call) for call, answer in calls if answer.outcome == "unknown"}
    assert {call for call, _ in stored.keys() - expected.keys()} <= unknown


def test_a_bulk_with_one_unknown_definition_enqueues_nothing(run: LiveRun) -> None:
    async def enqueue(session: ClientSession) -> None:
        for _ in range(6):
            await enqueue_calls.enqueue_refused(session, ACME)

    with run.server():
        in_session(run, run.url, run.access.servers, enqueue)
    calls = read_calls(run.history)
    assert {call.what["via"] for call, _ in calls} == {"library", "http"}
    assert {(answer.outcome, answer.code) for _, answer in calls} == {("fail", "definition_unknown")}
    assert run.rows("select id from fairlead.jobs") == []


# Answers that do not arrive


@asynccontextmanager
async def opened_session(run: LiveRun, url: str, servers: list[str]) -> AsyncIterator[ClientSession]:
    """A client in this process that reaches the run by these addresses."""
    access = msgspec.structs.replace(run.access, servers=servers, unserved=[*UNSERVED, scenario.COMMAND])
    history = HistoryWriter(run.history / f"client-{os.getpid()}.history")
    async with Fairlead(settings=Settings(database_url=url)) as fl:
        session = ClientSession(fl, access, history, random.Random(4))  # noqa: S311
        try:
            yield session
        finally:
            await session.close()
            history.close()


def in_session(
    run: LiveRun, url: str, servers: list[str], work: Callable[[ClientSession], Coroutine[Any, Any, None]]
) -> None:
    async def call() -> None:
        async with opened_session(run, url, servers) as session:
            await work(session)

    asyncio.run(call())


def test_an_order_whose_commit_is_not_answered_is_unknown(run: LiveRun) -> None:
    with PostgresProxy(run.url) as proxy:

        async def place_orders(session: ClientSession) -> None:
            connection = OrderConnection(proxy.url, "test")
            orders = OrderCalls(session, connection)
            while count_committed(read_calls(run.history)) < 2:
                proxy.swallow(1, 1.0)
                await orders.place_order(session, ACME)
            await connection.close()

        # the library itself goes past the proxy: only the transaction of the order loses its answer
        in_session(run, run.url, run.access.servers, place_orders)
    calls = read_calls(run.history)

    assert {answer.outcome for call, answer in calls if not call.what["rollback"]} == {"unknown"}
    assert {answer.outcome for call, answer in calls if call.what["rollback"]} <= {"fail"}
    stored = {row for (row,) in run.rows("select id from public.chaos_orders")}
    assert stored == {UUID(call.what["order"]) for call, _ in calls if not call.what["rollback"]}
    jobs = [job["id"] for call, _ in calls if not call.what["rollback"] for job in call.what["jobs"]]
    assert Counter(str(row) for (row,) in run.rows("select id from fairlead.jobs")) == Counter(jobs)


def count_committed(calls: Calls) -> int:
    return sum(not call.what["rollback"] for call, _ in calls)


def test_a_create_whose_answer_is_swallowed_is_repeated_and_happens_once(run: LiveRun) -> None:
    with run.server(), HttpProxy("127.0.0.1", run.port) as proxy:

        async def create(session: ClientSession) -> None:
            proxy.swallow(1, 1.0)
            await enqueue_calls.enqueue_idempotent(session, ACME)

        in_session(run, run.url, [proxy.url], create)
    [(first, lost), (again, answered), *others] = read_calls(run.history)

    assert (lost.outcome, lost.code) == ("unknown", "connection_lost")
    assert UUID(again.what["repeat_of"]) == first.id
    assert {(one.outcome, one.what.get("replayed")) for _, one in [(again, answered), *others]} == {
        ("ok", True)
    }
    assert {row for (row,) in run.rows("select id from fairlead.jobs")} == set(answered.ids)


def test_a_request_that_is_not_sent_has_failed(run: LiveRun) -> None:
    in_session(
        run,
        run.url,
        [f"http://127.0.0.1:{run.port}"],
        lambda session: enqueue_calls.enqueue_idempotent(session, ACME),
    )
    assert {(answer.outcome, answer.code) for _, answer in read_calls(run.history)} == {("fail", "not_sent")}


@each_case(
    ("error", "outcome"),
    [
        (PayloadInvalid("no"), ("fail", "payload_invalid")),
        (QueueFull("no"), ("fail", "queue_full")),
        (DatabaseUnreachable("gone"), ("unknown", "database_unreachable")),
        (DatabaseBusy("slow"), ("unknown", "database_busy")),
        (CallFailed("rolled_back"), ("fail", "rolled_back")),
        (CallUnclear("http_502"), ("unknown", "http_502")),
        (httpx2.ConnectError("refused"), ("fail", "not_sent")),
        (httpx2.ReadTimeout("slow"), ("unknown", "connection_lost")),
        (httpx2.RemoteProtocolError("cut"), ("unknown", "connection_lost")),
        (TimeoutError(), ("unknown", "gave_up")),
        (ValueError("odd"), ("unknown", "ValueError")),
    ],
)
def test_only_what_surely_had_no_effect_has_failed(error: Exception, outcome: tuple[str, str]) -> None:
    assert classify(error) == outcome


# The hostile client


@pytest.mark.thorough
def test_every_forged_request_is_refused(run: LiveRun) -> None:
    async def attack(session: ClientSession) -> None:
        job = await session.fl.enqueue(scenario.LONG, tenant=ACME)
        while (await job.read()).status != "running":
            await asyncio.sleep(0.05)
        history = HistoryWriter(run.history / "hostile.history")
        client = hostile.HostileClient(run.access, history, random.Random(1))  # noqa: S311
        client.access.tokens.update(dict.fromkeys(scenario.TENANTS, client.access.tokens[ACME]))
        for forge in (hostile.change_foreign_jobs, hostile.forge_worker_calls):
            await forge(client)
        await client.close()
        await session.fl.cancel(job.id)

    with run.server(), run.worker():
        in_session(run, run.url, run.access.servers, attack)
        until(run.has_drained, "the job to end")
    forged = read_calls(run.history)

    assert len(forged) == 2 + 6 * 2
    assert {(call.kind, answer.outcome) for call, answer in forged} == {("attack", "fail")}
    [(status, output, progress)] = run.rows("select status::text, output, progress from fairlead.jobs")
    assert (status, output) == ("canceled", None)
    assert progress is None or progress["message"] == "attempt 1"
