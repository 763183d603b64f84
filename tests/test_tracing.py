"""Spans from enqueue to run, the context that a job carries in between, and how little it is without anybody who traces."""

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any
from uuid import UUID

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from fairlead import BatchJob, Context, Fairlead, NewJob, Secret, Settings, sync, tracing
from fairlead.actions import enqueue
from fairlead.db.database import Database
from fairlead.errors import PayloadInvalid
from fairlead.handlers.threads import Threads
from fairlead.model.outcome import Backoff
from fairlead.store import jobs, queue
from tests import given
from tests.processes import environment
from tests.server.world import World, world_on
from tests.tables import each_case
from tests.waiting import SECONDS

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
REMOTE = NonRecordingSpan(
    SpanContext(
        0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, is_remote=True, trace_flags=TraceFlags(1)
    )
)
CANARY = "canary-4711-do-not-tell"


class Spans:
    """What was traced so far, and a tracer of the test's own."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """A provider for this test only: for good it could be set once in a process."""
    made = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    monkeypatch.setattr(tracing, "_tracer", made.provider.get_tracer("fairlead"))
    yield made
    made.provider.shutdown()


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def is_below(child: ReadableSpan, parent: ReadableSpan) -> bool:
    return (
        child.parent is not None
        and child.parent.span_id == parent.context.span_id
        and child.context.trace_id == parent.context.trace_id
    )


async def carried(fl: Fairlead, job_id: UUID) -> str | None:
    async with fl.transaction() as tx:
        [(text,)] = await tx.values("select trace from fairlead.jobs where id = %s", [job_id])
    return None if text is None else str(text)


async def run_all(fl: Fairlead) -> None:
    while (await fl.tick()).ran:
        pass


# From enqueue to run


async def test_a_run_is_below_its_enqueue_and_that_below_its_caller(settings: Settings, spans: Spans) -> None:
    runner = Fairlead(settings=settings, actor="runner")

    @runner.job(key="traced.add")
    async def add(a: int, b: int) -> int:
        return a + b

    async with runner, Fairlead(settings=settings, actor="asker") as asker:
        with spans.tracer.start_as_current_span("request") as request:
            job = await asker.enqueue("traced.add", tenant=given.TENANT, payload={"a": 1, "b": 2})
        await run_all(runner)
        found = await runner.read(job.id)

    asked, ran = spans.one("enqueue traced.add"), spans.one("run traced.add")
    assert isinstance(request, ReadableSpan)
    assert is_below(asked, request)
    assert is_below(ran, asked)
    assert [link.context.span_id for link in ran.links] == [asked.context.span_id]
    assert (asked.kind, ran.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    same = {"messaging.system": "fairlead", "messaging.destination.name": "traced.add"}
    same |= {"messaging.message.id": str(job.id), "fairlead.job_id": str(job.id)}
    same |= {"fairlead.definition_key": "traced.add", "fairlead.tenant": given.TENANT}
    assert told(asked) == {
        **same,
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "fairlead.deduplicated": False,
    }
    assert told(ran) == {
        **same,
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.client.id": found.claimed_by_worker,
        "fairlead.worker_id": found.claimed_by_worker,
        "fairlead.tenant_id": str(found.tenant_id),
        "fairlead.attempt_no": 1,
        "fairlead.outcome": "succeeded",
    }
    assert ran.status.status_code is StatusCode.UNSET


async def test_without_a_caller_who_traces_each_enqueue_begins_a_trace(fl: Fairlead, spans: Spans) -> None:
    """The second one too, for which a job without options would take a shorter way."""
    made = [await fl.enqueue("anything", tenant=given.TENANT) for _ in range(2)]

    asked = spans.named("enqueue anything")
    assert [span.parent for span in asked] == [None, None]
    assert [await carried(fl, job.id) for job in made] == [
        tracing._serialize_span(NonRecordingSpan(span.context)) for span in asked
    ]


async def test_a_job_without_a_trace_begins_one_when_it_runs(
    settings: Settings, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(key="traced.late")
    async def late() -> None: ...

    async with fl:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(tracing, "INSTALLED", False)
            await late.enqueue(tenant=given.TENANT)
        with spans.tracer.start_as_current_span("whatever the worker was started in"):
            await run_all(fl)

    assert spans.one("run traced.late").parent is None


def test_the_synchronous_face_is_traced_as_well(database_url: str, spans: Spans) -> None:
    with sync.Fairlead(database_url) as fl, spans.tracer.start_as_current_span("request") as request:
        fl.enqueue("anything", tenant=given.TENANT)

    assert isinstance(request, ReadableSpan)
    assert is_below(spans.one("enqueue anything"), request)


@each_case(
    ("state", "kept"),
    [
        ("vendor=some text", " vendor=some text"),
        (",".join(f"v{n}={'x' * 200}" for n in range(3)), ""),
        ("", ""),
    ],
)
async def test_the_state_of_a_trace_is_carried_unless_it_is_long(fl: Fairlead, state: str, kept: str) -> None:
    with tracing.continue_trace({"traceparent": [PARENT], "tracestate": [state]}):
        job = await fl.enqueue("anything", tenant=given.TENANT)

    assert await carried(fl, job.id) == PARENT + kept


async def test_in_a_joined_transaction_the_job_carries_the_trace(
    fl: Fairlead, database_url: str, spans: Spans
) -> None:
    with spans.tracer.start_as_current_span("request") as request:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            job = await fl.enqueue("anything", tenant=given.TENANT, tx=connection)

    asked = spans.one("enqueue anything")
    assert isinstance(request, ReadableSpan)
    assert is_below(asked, request)
    assert await carried(fl, job.id) == tracing._serialize_span(NonRecordingSpan(asked.context))


@pytest.mark.parametrize("role", [None, "fairlead_system"])
async def test_many_jobs_are_one_span_and_each_carries_it(
    db: Database, spans: Spans, role: str | None
) -> None:
    """Under the role, row-level security keeps COPY from being used on the table itself."""
    new = [given.request() for _ in range(3)]
    async with db.transaction() as tx:
        if role:
            await tx.run(f"set local role {role}")
        await enqueue.enqueue_many(tx, given.TESTER, given.catalog(), new)
        texts = await tx.values("select distinct trace from fairlead.jobs")

    asked = spans.one("enqueue greet")
    assert texts == [(tracing._serialize_span(NonRecordingSpan(asked.context)),)]
    assert told(asked)["messaging.batch.message_count"] == 3


async def test_a_load_of_several_definitions_is_named_for_none(fl: Fairlead, spans: Spans) -> None:
    await fl.enqueue_many([given.request(), NewJob(definition="anything", tenant=given.TENANT)])

    assert "fairlead.definition_key" not in told(spans.one("enqueue"))


async def test_a_retry_goes_on_in_the_same_trace(settings: Settings, spans: Spans) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(key="traced.flaky", max_attempts=2, backoff=Backoff(base_seconds=0, jitter=0))
    def flaky() -> None:
        raise ValueError("not yet")

    async with fl:
        job = await flaky.enqueue(tenant=given.TENANT)
        await run_all(fl)
        await fl.retry(job.id)
        await fl.tick()

    asked, runs = spans.one("enqueue traced.flaky"), spans.named("run traced.flaky")
    assert [told(run)["fairlead.attempt_no"] for run in runs] == [1, 2, 3]
    assert all(is_below(run, asked) for run in runs)


async def test_a_deduplicated_enqueue_says_so(fl: Fairlead, spans: Spans) -> None:
    first = await fl.enqueue("anything", tenant=given.TENANT, dedupe_key="k")
    await fl.enqueue("anything", tenant=given.TENANT, dedupe_key="k")

    _, second = spans.named("enqueue anything")
    assert told(second)["fairlead.deduplicated"] is True
    assert told(second)["fairlead.job_id"] == str(first.id)


# What went wrong


async def test_a_failed_run_is_an_error_without_its_secrets(settings: Settings, spans: Spans) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(key="traced.fails", max_attempts=1)
    async def fails(password: Annotated[str, Secret()]) -> None:
        raise ValueError(f"cannot log in with {password}")

    async with fl:
        await fails.enqueue(tenant=given.TENANT, password=CANARY)
        await run_all(fl)

    ran = spans.one("run traced.fails")
    assert ran.status.status_code is StatusCode.ERROR
    assert told(ran)["fairlead.outcome"] == "failed"
    assert told(ran)["error.type"] == "ValueError"
    [event] = ran.events
    assert event.name == "exception"
    about = dict(event.attributes or {})
    assert (about["exception.type"], about["exception.message"]) == (
        "ValueError",
        "cannot log in with [redacted]",
    )
    assert "in fails" in str(about["exception.stacktrace"])
    assert CANARY not in "".join(span.to_json() for span in spans._exporter.get_finished_spans())


async def test_a_refused_enqueue_is_an_error_that_tells_nothing_of_its_payload(
    fl: Fairlead, spans: Spans
) -> None:
    with pytest.raises(PayloadInvalid):
        await fl.enqueue("greet", tenant=given.TENANT, payload={"name": 1, CANARY: CANARY})

    asked = spans.one("enqueue greet")
    assert asked.status.status_code is StatusCode.ERROR
    assert told(asked)["error.type"] == "payload_invalid"
    assert CANARY not in asked.to_json()


# Inside the handler


async def test_inside_a_handler_and_in_middleware_its_run_is_the_current_span(
    settings: Settings, spans: Spans
) -> None:
    fl, around = Fairlead(settings=settings), list[str]()

    @fl.around_attempt
    async def asynchronous(ctx: Context) -> AsyncIterator[None]:
        around.append(getattr(trace.get_current_span(), "name", ""))
        yield

    @fl.around_attempt
    def plain(ctx: Context) -> Iterator[None]:
        around.append(getattr(trace.get_current_span(), "name", ""))
        yield

    @fl.job(key="traced.loop")
    async def on_loop(ctx: Context) -> None:
        with spans.tracer.start_as_current_span("in the loop"):
            await ctx.enqueue("traced.child")

    @fl.job(key="traced.thread")
    def in_thread(ctx: Context) -> None:
        with spans.tracer.start_as_current_span("in the thread"):
            ctx.enqueue("traced.child")

    @fl.job(key="traced.child")
    async def child() -> None: ...

    async with fl:
        await on_loop.enqueue(tenant=given.TENANT)
        await in_thread.enqueue(tenant=given.TENANT)
        await run_all(fl)

    assert is_below(spans.one("in the loop"), spans.one("run traced.loop"))
    assert is_below(spans.one("in the thread"), spans.one("run traced.thread"))
    above = {span.parent.span_id for span in spans.named("enqueue traced.child") if span.parent}
    assert above == {spans.one(name).context.span_id for name in ("in the loop", "in the thread")}
    assert [around.count(f"run traced.{name}") for name in ("loop", "thread", "child")] == [2, 2, 4]
    # and one run does not get into another, nor into the worker
    assert not trace.get_current_span().get_span_context().is_valid


def tell_trace() -> str | None:
    return tracing.current_trace()


@pytest.mark.thorough
async def test_an_isolated_handler_is_in_the_trace_too(settings: Settings, spans: Spans) -> None:
    fl = Fairlead(settings=settings)
    fl.job(key="traced.isolated", isolate=True)(tell_trace)

    async with fl:
        job = await fl.enqueue("traced.isolated", tenant=given.TENANT)
        await run_all(fl)
        output = (await fl.read(job.id)).output

    assert output == tracing._serialize_span(NonRecordingSpan(spans.one("run traced.isolated").context))


async def test_work_that_waits_for_a_thread_keeps_the_context_it_was_asked_for_in() -> None:
    word: contextvars.ContextVar[str] = contextvars.ContextVar("word")
    threads, go, done = Threads(1), threading.Event(), asyncio.Event()
    heard: list[str] = []

    def work() -> None:
        go.wait()
        heard.append(word.get("nothing"))

    for said in ("first", "second"):
        word.set(said)
        threads.submit(
            work, on_start=lambda: None, on_return=lambda _: done.set() if len(heard) == 2 else None
        )
    go.set()
    await done.wait()
    threads.close()

    assert heard == ["first", "second"]


# Over HTTP


@pytest.fixture
async def world(database_url: str) -> Any:
    async with world_on(database_url) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs", {"definition_key": "anything"}),
        ("/jobs/bulk", {"jobs": [{"definition_key": "anything"}, {"definition_key": "anything"}]}),
    ],
)
async def test_a_request_goes_on_with_the_trace_that_it_names(
    world: World, spans: Spans, path: str, body: dict[str, Any]
) -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
    answer = await world.call("POST", path, json=body, headers=headers)
    made = answer.json()
    job = UUID(made["id"] if "id" in made else made["items"][0]["id"])

    asked = spans.one("enqueue anything")
    assert answer.status_code == 201, answer.text
    assert asked.parent is not None
    assert asked.parent.span_id == REMOTE.get_span_context().span_id
    assert await carried(world.fl, job) == f"{PARENT[:36]}{asked.context.span_id:016x}-01 vendor=1"


@each_case("nonsense", ["", "00-zz", "x" * 5000, f"{PARENT}\x7f"])
async def test_a_request_that_names_no_trace_is_served_all_the_same(world: World, nonsense: str) -> None:
    headers = {"traceparent": nonsense, "tracestate": nonsense}
    answer = await world.call("POST", "/jobs", json={"definition_key": "anything"}, headers=headers)

    assert answer.status_code == 201
    assert await carried(world.fl, UUID(answer.json()["id"])) is None


async def test_what_a_request_asked_for_is_in_no_span(world: World, spans: Spans) -> None:
    """The web framework would tell the whole query, and values that were refused."""
    await world.call("GET", f"/jobs?correlation_id={CANARY}")
    await world.call("POST", "/jobs", json={"definition_key": "anything", CANARY: CANARY})

    assert spans._exporter.get_finished_spans() == ()


async def test_a_span_of_the_callers_own_goes_before_the_headers() -> None:
    with trace.use_span(REMOTE), tracing.continue_trace({"traceparent": [PARENT.replace("b7ad", "0000")]}):
        assert tracing.current_trace() == PARENT


# Where nobody traces


async def test_without_anybody_who_traces_a_job_goes_in_as_it_ever_did(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await fl.enqueue("anything", tenant=given.TENANT)

    async def with_options(*_: Any, **__: Any) -> Any:
        raise AssertionError("the way for jobs with options")

    monkeypatch.setattr(jobs, "enqueue", with_options)
    second = await fl.enqueue("anything", tenant=given.TENANT)
    many = await fl.enqueue_many([given.request()])

    assert "trace" not in jobs.sql.enqueue_plain + jobs.encode_joined([], actor="x")
    assert [await carried(fl, one.id) for one in (first, second, *many)] == [None] * 3


async def test_a_claim_tells_of_traces_and_waits_only_where_there_are_any(db: Database) -> None:
    async with db.transaction() as tx:
        plain = await given.queued_job(tx)
        claim = await queue.claim(tx, worker="w", wanted=1, lease_seconds=30)
        assert [(job.job_id, job.trace, job.waited) for job in claim.jobs] == [(plain, None, 0.0)]
        with trace.use_span(REMOTE):
            begun = time.monotonic()
            traced = await given.queued_job(tx)
        claim = await queue.claim(tx, worker="w", wanted=1, lease_seconds=30, waits=True)
        [job] = claim.jobs
    assert (job.job_id, job.trace) == (traced, PARENT)
    assert 0 < job.waited < time.monotonic() - begun


async def test_a_trace_passes_through_processes_that_have_no_provider(settings: Settings) -> None:
    fl = Fairlead(settings=settings)
    seen = []

    @fl.job(key="traced.through")
    async def through() -> None:
        seen.append(tracing.current_trace())

    async with fl:
        with trace.use_span(REMOTE):
            job = await through.enqueue(tenant=given.TENANT)
        await run_all(fl)
        assert await carried(fl, job.id) == PARENT

    assert seen == [PARENT]


async def test_a_trace_that_cannot_be_read_keeps_no_job_from_running(
    settings: Settings, spans: Spans
) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(key="traced.odd")
    async def odd() -> None: ...

    async with fl:
        job = await odd.enqueue(tenant=given.TENANT)
        await given.set_job(fl, trace=" what? \U0001f600")
        await run_all(fl)
        assert (await fl.read(job.id)).status == "succeeded"

    ran = spans.one("run traced.odd")
    assert (ran.parent, list(ran.links)) == (None, [])


WITHOUT = """
import asyncio, sys
sys.modules["opentelemetry"] = None  # as if it were not installed
from fairlead import Fairlead, tracing

fl = Fairlead()

@fl.job(key="plain.add")
async def add(a: int) -> int:
    return a + 1

async def main():
    async with fl:
        job = await add.enqueue(tenant="acme", a=1)
        await fl.enqueue_many([add.with_arguments(tenant="acme", a=2)])
        await fl.tick()
        with tracing.continue_trace("00-a-b-01"):
            print(tracing.INSTALLED, tracing.has_tracer_provider(), tracing.current_trace(), await job.result(timeout=600))

asyncio.run(main())
"""


@pytest.mark.thorough
def test_without_the_package_all_works_the_same(database_url: str) -> None:
    env = environment(FAIRLEAD_DATABASE_URL=database_url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * SECONDS,
    )
    assert (done.stdout.split(), done.stderr) == (["False", "False", "None", "2"], "")


async def test_each_job_of_a_batch_has_its_run_and_the_call_links_to_them(
    spans: Spans, settings: Settings
) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(batch=2)
    async def pack(jobs: list[BatchJob[dict[str, Any]]]) -> list[Any]:
        with spans.tracer.start_as_current_span("request"):
            await jobs[0].ctx.enqueue("after")
        return [None, ValueError("no box")]

    @fl.job
    async def after() -> None: ...

    async with fl:
        for number in range(2):
            await pack.enqueue(tenant=given.TENANT, number=number)
        await fl.tick()

    runs, call = spans.named("run pack"), spans.one("batch pack")
    assert sorted(told(run)["fairlead.outcome"] for run in runs) == ["failed", "succeeded"]
    assert {link.context.span_id for link in call.links} == {run.context.span_id for run in runs}
    assert told(call)["messaging.batch.message_count"] == 2
    assert is_below(spans.one("request"), call)
    assert is_below(spans.one("enqueue after"), spans.one("request"))
    assert all(
        is_below(run, one) for run, one in zip(sort(runs), sort(spans.named("enqueue pack")), strict=True)
    )


def sort(found: list[ReadableSpan]) -> list[ReadableSpan]:
    return sorted(found, key=lambda span: str(told(span)["fairlead.job_id"]))
