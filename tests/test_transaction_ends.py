"""Jobs that end in a transaction of their handler: its changes and the end commit together, or not at all."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

import psycopg
import pytest
import structlog.testing

from fairlead import (
    Backoff,
    BatchJob,
    Context,
    EnqueuedJob,
    Fairlead,
    JobStatus,
    Secret,
    Settings,
    testing,
)
from fairlead.actions import jobs, workflow_progress
from fairlead.chaos.site.ports import find_free_ports
from fairlead.db.scratch import replace_database
from fairlead.db.tx import Tx
from fairlead.errors import (
    ConnectionNotSupported,
    DatabaseBusy,
    LeaseLost,
    TransactionUnavailable,
    WrongDatabase,
)
from fairlead.model.job import Attempt, Lease
from fairlead.model.outcome import Change
from fairlead.runtime.meter import Meter
from fairlead.store import rescue
from tests import given
from tests.given import TENANT, TESTER
from tests.waiting import SECONDS, eventually
from tests.working import ended, reopen, start, working

NOW = Backoff(0, 1, 0, 0)
CHANGE = "insert into public.effects (job_id) values ('{}')"


@pytest.fixture(autouse=True)
async def url(database_url: str) -> str:
    """The database, with a table of the application."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("create table public.effects (job_id uuid, n serial)")
    return database_url


async def effects(fl: Fairlead) -> list[UUID]:
    async with fl.transaction() as tx:
        return [job_id for (job_id,) in await tx.values("select job_id from public.effects order by n")]


async def attempts(fl: Fairlead, job: EnqueuedJob) -> list[Attempt]:
    async with fl.transaction() as tx:
        return (await jobs.show_job(tx, TESTER, job.id))[1]


async def lose_leases(fl: Fairlead) -> None:
    """Another process has put back every job."""

    async def put_back(tx: Tx) -> None:
        await given.end_leases(tx)
        await rescue.rescue(tx)

    await fl.database.transact(put_back)


# A connection that Fairlead lends


async def test_changes_and_the_end_commit_together(fl: Fairlead) -> None:
    seen: list[Any] = []

    @fl.job
    async def pay(ctx: Context) -> None:
        async with ctx.tx() as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
            seen.append((await effects(fl), (await fl.read(ctx.job_id)).status))
        seen.append((await effects(fl), (await fl.read(ctx.job_id)).status))

    job = await start(fl, pay)
    ran = await testing.run_due(fl)
    assert seen == [([], JobStatus.RUNNING), ([job.id], JobStatus.SUCCEEDED)]
    assert ran.statuses == {JobStatus.SUCCEEDED: 1}
    [attempt] = await attempts(fl, job)
    assert attempt.status == "succeeded"


async def test_a_function_in_a_thread_has_a_synchronous_connection(fl: Fairlead) -> None:
    @fl.job
    def pay(ctx: Context) -> None:
        with ctx.tx() as connection:
            connection.execute(CHANGE.format(ctx.job_id))
            ctx.succeed({"cents": 42}, tx=connection)

    job = await start(fl, pay)
    async with working(fl):
        assert await job.result(SECONDS) == {"cents": 42}
    assert await effects(fl) == [job.id]


async def test_an_exception_rolls_both_back_and_the_job_fails_as_usual(fl: Fairlead) -> None:
    @fl.job(backoff=NOW, max_attempts=2)
    async def pay(ctx: Context) -> None:
        async with ctx.tx() as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
            await ctx.succeed("too early", tx=connection)
            if ctx.attempt_no == 1:
                raise ValueError("no money")

    job = await start(fl, pay)
    async with working(fl):
        assert await job.result(SECONDS) == "too early"
    assert await effects(fl) == [job.id]
    assert [one.status for one in await attempts(fl, job)] == ["failed", "succeeded"]


async def test_an_exception_after_the_commit_does_not_fail_the_job(fl: Fairlead) -> None:
    @fl.job
    async def pay(ctx: Context) -> str:
        async with ctx.tx() as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
            await ctx.succeed("paid", tx=connection)
        raise ValueError("the mail server is away")

    job = await start(fl, pay)
    with structlog.testing.capture_logs() as lines:
        async with working(fl):
            assert await job.result(SECONDS) == "paid"
    [late] = [line for line in lines if line["event"] == "failed_after_end"]
    assert (late["error"], late["message"]) == ("ValueError", "the mail server is away")
    assert not [line for line in lines if line["event"] in ("stale_write_refused", "attempt_failed")]
    assert await effects(fl) == [job.id]
    assert len(await attempts(fl, job)) == 1


@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_output_that_would_be_dropped_is_refused_before_the_commit(
    fl: Fairlead, *, in_thread: bool
) -> None:
    async def pay(ctx: Context) -> dict[str, int]:
        async with ctx.tx() as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
        return {"cents": 42}

    def pay_in_thread(ctx: Context) -> dict[str, int]:
        with ctx.tx() as connection:
            connection.execute(CHANGE.format(ctx.job_id))
        return {"cents": 42}

    job = await start(fl, fl.job(pay_in_thread if in_thread else pay))
    await testing.run_due(fl)
    failed = await job.read()
    assert failed.status is JobStatus.FAILED
    assert "OutputInvalid" in (failed.last_error or "")
    assert "with ctx.succeed(output, tx=connection), or declare" in (failed.last_error or "")
    assert await effects(fl) == []


@pytest.mark.thorough
@pytest.mark.parametrize("with_worker", [False, True])
async def test_a_value_that_is_returned_after_the_commit_is_logged(
    fl: Fairlead, *, with_worker: bool
) -> None:
    @fl.job
    async def pay(ctx: Context, output: str | None) -> Any:
        async with ctx.tx() as connection:
            if output is not None:
                await ctx.succeed(output, tx=connection)
        return "returned"

    await reopen(fl)
    with structlog.testing.capture_logs() as lines:
        async with working(fl) if with_worker else nullcontext():
            jobs_made = [
                await pay.enqueue(tenant=TENANT, output=output) for output in (None, "given", "returned")
            ]
            if not with_worker:
                await testing.run_due(fl)
            outputs = [await job.result(SECONDS) for job in jobs_made]
    assert outputs == [None, "given", "returned"]
    dropped = [line["job_id"] for line in lines if line["event"] == "output_dropped"]
    assert sorted(dropped) == sorted(str(job.id) for job in jobs_made[:2])


async def test_an_output_that_is_too_large_is_refused_before_the_commit(fl: Fairlead) -> None:
    @fl.job
    async def pay(ctx: Context) -> None:
        async with ctx.tx() as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
            await ctx.succeed("x" * 1_048_577, tx=connection)

    job = await start(fl, pay)
    await testing.run_due(fl)
    failed = await job.read()
    assert failed.status is JobStatus.FAILED
    assert "larger than 1048576 bytes" in (failed.last_error or "")
    assert await effects(fl) == []


async def test_a_lost_lease_rolls_everything_back(fl: Fairlead) -> None:
    refused: list[Exception] = []

    @fl.job(backoff=NOW)
    async def pay(ctx: Context) -> None:
        try:
            async with ctx.tx() as connection:
                await connection.execute(CHANGE.format(ctx.job_id))
                if ctx.attempt_no == 1:
                    await lose_leases(fl)
        except LeaseLost as error:
            refused.append(error)
            raise

    job = await start(fl, pay)
    await testing.run_due(fl, until_idle=True)
    assert len(refused) == 1
    assert await effects(fl) == [job.id]
    assert [one.status for one in await attempts(fl, job)] == ["lost", "succeeded"]


async def test_a_savepoint_does_not_take_the_end_back(fl: Fairlead) -> None:
    @fl.job
    async def pay(ctx: Context) -> None:
        async with ctx.tx() as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
            async with connection.transaction():
                await ctx.succeed("paid", tx=connection)
                raise psycopg.Rollback

    job = await start(fl, pay)
    await testing.run_due(fl)
    assert (await job.read()).output == "paid"
    assert await effects(fl) == [job.id]


async def test_the_end_has_the_log_the_cost_and_no_secret(fl: Fairlead) -> None:
    @fl.job
    async def pay(ctx: Context, card: Annotated[str, Secret()]) -> None:
        ctx.log.info("paying")
        ctx.add_cost(7)
        async with ctx.tx() as connection:
            await ctx.succeed({"card": card, "ok": True}, tx=connection)

    job = await start(fl, pay, card="4111-1111")
    await testing.run_due(fl)
    found = await job.read()
    assert "4111" not in str(found.output)
    assert found.output["ok"] is True
    assert found.cost_cents == 7
    [attempt] = await attempts(fl, job)
    assert "paying" in (attempt.stdout_tail or "")


# The handler's own connection


async def test_the_own_connection_of_a_handler_in_a_thread(fl: Fairlead, url: str) -> None:
    """With every driver: tests/db/test_joined.py."""

    @fl.job(backoff=NOW)
    def pay(ctx: Context) -> None:
        with psycopg.connect(url) as connection:
            connection.execute(CHANGE.format(ctx.job_id))
            ctx.succeed({"attempt": ctx.attempt_no}, tx=connection)
            if ctx.attempt_no == 1:
                raise ValueError("not yet")

    job = await start(fl, pay)
    await testing.run_due(fl, until_idle=True)
    assert (await job.read()).output == {"attempt": 2}
    assert await effects(fl) == [job.id]


async def test_after_a_rollback_what_the_handler_returns_counts(fl: Fairlead, url: str) -> None:
    @fl.job
    async def pay(ctx: Context) -> str:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
            await ctx.succeed("in the transaction", tx=connection)
            await connection.rollback()
        return "returned"

    job = await start(fl, pay)
    async with working(fl):
        assert await job.result(SECONDS) == "returned"
    assert await effects(fl) == []


@pytest.mark.thorough
async def test_the_worker_waits_for_a_transaction_that_ends_after_the_handler(fl: Fairlead, url: str) -> None:
    left: list[Any] = []

    @fl.job
    async def pay(ctx: Context) -> None:
        connection = await psycopg.AsyncConnection.connect(url)
        await connection.execute(CHANGE.format(ctx.job_id))
        await ctx.succeed("late", tx=connection)
        left.append(connection)
        raise ValueError("and then it fails")

    @fl.job
    async def other() -> str:
        return "not held up"

    job = await start(fl, pay)
    async with working(fl):
        await eventually(lambda: left, "the handler to write its end")
        assert await (await other.enqueue(tenant=TENANT)).result(SECONDS) == "not held up"
        await left[0].commit()
        await left[0].close()
        assert await job.result(SECONDS) == "late"
    assert len(await attempts(fl, job)) == 1


async def test_a_batch_ends_in_one_transaction(fl: Fairlead, url: str) -> None:
    @fl.job(batch=3, batch_wait=60)
    async def pay(batch: Sequence[BatchJob[dict[str, Any]]]) -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            for job in batch:
                await connection.execute(CHANGE.format(job.id))
                await job.ctx.succeed({"of": len(batch)}, tx=connection)
        raise ValueError("after the commit")

    await reopen(fl)
    made = [await fl.enqueue("pay", tenant=TENANT) for _ in range(3)]
    async with working(fl):
        assert [await job.result(SECONDS) for job in made] == [{"of": 3}] * 3
    assert sorted(await effects(fl)) == sorted(job.id for job in made)


# What is refused


async def test_another_database_is_refused_and_changes_nothing(
    fl: Fairlead, server: str, databases: Any
) -> None:
    refused: list[Exception] = []

    @fl.job(max_attempts=1)
    async def pay(ctx: Context, database: str) -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            try:
                await ctx.succeed(tx=connection)
            except WrongDatabase as error:
                refused.append(error)
                raise

    with databases.lend() as other_fairlead:
        jobs = [await start(fl, pay, database=replace_database(server, "postgres"))]
        jobs.append(await pay.enqueue(tenant=TENANT, database=other_fairlead))
        await testing.run_due(fl)
    assert ["fl.for_tenant" in str(error) for error in refused] == [True, True]
    assert [(await job.read()).status for job in jobs] == [JobStatus.DEAD_LETTER] * 2


async def test_a_connection_without_a_transaction_is_refused(fl: Fairlead, url: str) -> None:
    refused: list[Exception] = []

    @fl.job(max_attempts=1)
    async def pay(ctx: Context) -> None:
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        try:
            await ctx.succeed(tx=connection)
        except ConnectionNotSupported as error:
            refused.append(error)
        finally:
            await connection.close()

    job = await start(fl, pay)
    await testing.run_due(fl)
    assert "begin one first" in str(refused[0])
    assert (await job.read()).status is JobStatus.SUCCEEDED  # it returned


async def test_within_its_transaction_no_other_connection_may_end_the_job(fl: Fairlead, url: str) -> None:
    @fl.job(max_attempts=1)
    async def pay(ctx: Context) -> None:
        async with ctx.tx(), await psycopg.AsyncConnection.connect(url) as other:
            await ctx.succeed(tx=other)

    job = await start(fl, pay)
    await testing.run_due(fl)
    assert "ConnectionNotSupported" in ((await job.read()).last_error or "")


def test_a_context_without_a_database_says_what_to_do() -> None:
    ctx = Context(
        job_id=UUID(int=1),
        tenant=TENANT,
        tenant_id=UUID(int=2),
        definition_key="pay",
        attempt_no=1,
        max_attempts=1,
        payload={},
    )
    for call in (ctx.tx, lambda: ctx.succeed(tx=None)):
        with pytest.raises(TransactionUnavailable, match="without isolate=True"):
            call()


async def isolated_pay(ctx: Context) -> None:
    async with ctx.tx():
        pass


@pytest.mark.thorough
async def test_an_isolated_function_is_refused(fl: Fairlead) -> None:
    pay = fl.job(isolate=True, max_attempts=1)(isolated_pay)
    job = await start(fl, pay)
    await testing.run_due(fl)
    assert "TransactionUnavailable" in ((await job.read()).last_error or "")


# Beside a heartbeat, a cancel, a timeout


async def test_a_handler_goes_on_after_its_end_without_a_lease(url: str, settings: Settings) -> None:
    """Heartbeats find no lease, and neither stop the handler nor say that it was lost."""
    quick = replace(settings, poll_seconds=0.05)
    done, go_on, held = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with Fairlead(settings=quick, actor="tester") as fl:

        @fl.job
        async def pay(ctx: Context) -> None:
            async with ctx.tx() as connection:
                await connection.execute(CHANGE.format(ctx.job_id))
            await go_on.wait()
            done.set()

        @fl.job
        async def hold() -> None:
            held.set()
            await asyncio.sleep(3600)

        job = await start(fl, pay)
        with structlog.testing.capture_logs() as lines:
            async with working(fl):
                await ended(job)
                other = await hold.enqueue(tenant=TENANT)
                await asyncio.wait_for(held.wait(), 120)
                await fl.cancel(other.id)  # which the worker learns by a heartbeat, of both
                assert (await ended(other)).status is JobStatus.CANCELED
                go_on.set()
                await asyncio.wait_for(done.wait(), 120)
        assert not [line for line in lines if line["event"] == "lease_lost"]
        assert len(await attempts(fl, job)) == 1


@pytest.mark.thorough
async def test_a_timeout_before_the_commit_fails_the_attempt_and_leaves_nothing(fl: Fairlead) -> None:
    @fl.job(timeout=1, max_attempts=1)
    async def pay(ctx: Context) -> None:
        async with ctx.tx() as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
            await asyncio.sleep(600)

    job = await start(fl, pay)
    async with working(fl):
        assert (await ended(job)).status is JobStatus.DEAD_LETTER
    assert await effects(fl) == []
    assert [one.status for one in await attempts(fl, job)] == ["timeout"]


@pytest.mark.thorough
async def test_a_thread_that_is_out_of_time_cannot_end_its_job(fl: Fairlead) -> None:
    go_on, over = threading.Event(), threading.Event()

    @fl.job(timeout=1, max_attempts=1)
    def pay(ctx: Context) -> None:
        try:
            with ctx.tx() as connection:
                connection.execute(CHANGE.format(ctx.job_id))
                go_on.wait(SECONDS)
        finally:
            over.set()

    job = await start(fl, pay)
    async with working(fl):
        assert (await ended(job)).status is JobStatus.DEAD_LETTER
        go_on.set()
        await eventually(over.is_set, "the thread to end")
    assert await effects(fl) == []


async def test_a_cancel_rolls_the_transaction_back(fl: Fairlead) -> None:
    begun = asyncio.Event()

    @fl.job
    async def pay(ctx: Context) -> None:
        async with ctx.tx() as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
            begun.set()
            await asyncio.sleep(600)

    job = await start(fl, pay)
    async with working(fl):
        await asyncio.wait_for(begun.wait(), 120)
        await fl.cancel(job.id)
        assert (await ended(job)).status is JobStatus.CANCELED
    assert await effects(fl) == []


# What else an end does


async def test_a_step_that_ends_in_a_transaction_advances_its_run(fl: Fairlead) -> None:
    @fl.job
    async def pay(ctx: Context) -> None:
        async with ctx.tx() as connection:
            await connection.execute(CHANGE.format(ctx.job_id))
            await ctx.succeed({"cents": 42}, tx=connection)

    @fl.job
    async def thank(cents: int) -> str:
        return f"thanks for {cents}"

    await reopen(fl)
    flow = fl.workflow("order")
    paid = flow.step("pay", pay)
    flow.step("thank", thank, after=[paid], payload={"cents": "{{steps.pay.output.cents}}"})
    run = await fl.start("order", tenant=TENANT)
    async with working(fl):
        assert await run.result(SECONDS) == {"thank": "thanks for 42"}


async def test_the_end_frees_the_dedupe_key_and_emits_its_event(fl: Fairlead) -> None:
    heard: list[UUID] = []

    @fl.job
    async def pay(ctx: Context) -> None:
        async with ctx.tx():
            pass

    @fl.on("job.succeeded", tenant=TENANT, name="hear", payload={"job_id": "{{event.job_id}}"})
    async def hear(job_id: UUID) -> None:
        heard.append(job_id)

    await reopen(fl)
    first = await pay.options(dedupe_key="k").enqueue(tenant=TENANT)
    await testing.run_due(fl)
    assert heard == [first.id]
    again = await pay.options(dedupe_key="k").enqueue(tenant=TENANT)
    assert not again.deduplicated


@pytest.mark.thorough
async def test_metrics_count_it(fl: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    @fl.job
    async def pay(ctx: Context) -> None:
        async with ctx.tx():
            pass

    meters: list[Meter] = []
    count = Meter.count_joined

    def note(meter: Meter, lease: Lease, change: Change) -> None:
        count(meter, lease, change)
        meters.append(meter)

    monkeypatch.setattr(Meter, "count_joined", note)
    [port] = find_free_ports(1)
    fl.settings = replace(fl.settings, metrics_port=port)
    job = await start(fl, pay)
    async with working(fl):
        await job.result(SECONDS)
        await eventually(lambda: meters, "the attempt to be counted")
    labels = {"definition": "pay", "attempt_status": "succeeded", "status": "succeeded"}
    assert meters[0].metrics.registry.get_sample_value("fairlead_attempts_total", labels) == 1


# Leases of an own loop


async def test_a_lease_ends_in_the_callers_transaction(fl: Fairlead, url: str) -> None:
    job = await fl.submit(given.request())
    [lease] = await fl.claim()
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(CHANGE.format(lease.job_id))
        assert await lease.succeed("done", tx=connection) is JobStatus.SUCCEEDED
        assert not await lease.heartbeat()  # neither renewed nor lost
        with pytest.raises(DatabaseBusy, match="still open"):
            await lease.fail("changed my mind")
        await connection.rollback()
        assert not await lease.heartbeat()
        await connection.execute(CHANGE.format(lease.job_id))
        await lease.succeed("done at last", tx=connection)
    assert (await job.read()).output == "done at last"
    assert await effects(fl) == [job.id]
    with pytest.raises(LeaseLost, match="has committed"):
        await lease.heartbeat()


async def test_a_block_of_a_lease_within_the_transaction_that_ends_it(fl: Fairlead, url: str) -> None:
    job = await fl.submit(given.request())
    [lease] = await fl.claim()
    with pytest.raises(ValueError, match="wrong") as raised:
        async with await psycopg.AsyncConnection.connect(url) as connection, lease:
            await lease.succeed(tx=connection)
            raise ValueError("wrong")
    assert "is open" in raised.value.__notes__[0]
    assert await lease.fail("wrong") is JobStatus.QUEUED
    assert (await job.read()).status is JobStatus.QUEUED


async def test_a_stale_lease_cannot_end_in_a_transaction(fl: Fairlead, url: str) -> None:
    job = await fl.submit(given.request())
    [lease] = await fl.claim()
    await lose_leases(fl)
    async with await psycopg.AsyncConnection.connect(url) as connection:
        with pytest.raises(LeaseLost):
            await lease.succeed("stale", tx=connection)
    assert (await job.read()).status is JobStatus.QUEUED


async def test_a_step_ends_in_a_transaction_of_an_own_loop(fl: Fairlead, url: str) -> None:
    fl.workflow("one").step("greet", "greet", payload={"name": "Ada"})
    run = await fl.start("one", tenant=TENANT)
    [lease] = await fl.claim()
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await lease.succeed("hello", tx=connection)
    await given.no_inconsistencies(fl.database)  # a step that waits to be counted down is none
    await fl.database.transact(lambda tx: workflow_progress.settle_ended_steps(tx, limit=10))
    assert await run.result(0) == {"greet": "hello"}


@pytest.mark.thorough
async def test_the_context_of_an_ended_attempt_needs_no_collector(fl: Fairlead) -> None:
    """Thousands of attempts end in a second: circles of references would cost a fifth of the worker's time."""
    seen: list[weakref.ref[Context]] = []

    @fl.job
    async def look(ctx: Context) -> None:
        await ctx.progress(50)
        seen.append(weakref.ref(ctx))

    await reopen(fl)
    gc.disable()
    try:
        async with working(fl):
            jobs = [await look.enqueue(tenant=TENANT) for _ in range(5)]
            for job in jobs:
                await ended(job)
        assert [one() for one in seen] == [None] * 5
    finally:
        gc.enable()
