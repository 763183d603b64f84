"""Durable functions: steps that run once, waits without a worker, replays that are checked."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead import (
    Backoff,
    ChildFailed,
    Context,
    EnqueuedJob,
    Fairlead,
    Fatal,
    JobStatus,
    Nondeterministic,
    Retry,
    Snooze,
    StepFailed,
    testing,
)
from fairlead.errors import DurableUnavailable, JobNotSignalable, SignatureInvalid
from tests import given
from tests.given import TENANT
from tests.working import ended, run, start, until_asleep
from tests.working import working_and_dispatching as working

NOW = Backoff(0, 1, 0, 0)


async def steps_of(fl: Fairlead, job: EnqueuedJob) -> list[tuple[Any, ...]]:
    return await fl.database.single(
        lambda tx: tx.values(
            "select branch, position, kind, name, status from fairlead.job_steps where job_id = %(id)s "
            "order by branch, position",
            {"id": job.id},
        )
    )


async def test_a_recorded_step_never_runs_again(fl: Fairlead) -> None:
    ran: list[str] = []

    async def note(name: str) -> dict[str, str]:
        ran.append(name)
        return {"name": name}

    @fl.job(durable=True, max_attempts=3, backoff=NOW)
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.step("first", note, "first")
        second = await ctx.step("second", note, "second")
        if ctx.attempt_no < 3:
            raise ValueError("again")
        third = await ctx.step("third", lambda: ["plain"])
        return [first, second, third]

    done = await run(fl, flow)

    assert (done.status, done.output) == (
        JobStatus.SUCCEEDED,
        [{"name": "first"}, {"name": "second"}, ["plain"]],
    )
    assert ran == ["first", "second"]


async def test_a_plain_function_has_steps_sleeps_and_branches(fl: Fairlead) -> None:
    ran: list[int] = []

    def add(one: int, other: int) -> int:
        ran.append(one)
        return one + other

    @fl.job(durable=True)
    def flow(ctx: Context) -> list[Any]:
        one = ctx.step("add", add, 1, 2)
        ctx.sleep(0.05)
        both = ctx.gather(lambda: ctx.step("left", add, 10, one), lambda: ctx.step("right", add, 20, one))
        moment = ctx.now()
        return [one, both, moment == ctx.now() or "later"]

    done = await run(fl, flow)

    assert done.output == [3, [13, 23], "later"]
    assert ran == [1, 10, 20]


async def test_a_sleep_holds_no_lease_and_goes_on_where_it_was(fl: Fairlead) -> None:
    ran: list[str] = []

    @fl.job(durable=True)
    async def flow(ctx: Context) -> str:
        await ctx.step("before", ran.append, "before")
        await ctx.sleep(hours=1)
        await ctx.step("after", ran.append, "after")
        await ctx.sleep_until(datetime.now(UTC) - timedelta(days=1))
        return "done"

    job = await start(fl, flow)
    before = datetime.now(UTC)
    await fl.tick()
    shown = await job.read()
    assert (shown.status, ran) == (JobStatus.QUEUED, ["before"])
    assert shown.scheduled_for is not None
    assert before <= shown.scheduled_for - timedelta(hours=1) <= datetime.now(UTC)
    assert await given.count(fl, "leases") == 0

    await testing.pass_time(fl, hours=1)
    await fl.tick()
    done = await job.read()
    assert (done.status, done.output, ran) == (JobStatus.SUCCEEDED, "done", ["before", "after"])


async def test_an_event_ends_the_wait_of_the_function_whose_filter_it_matches(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def confirm(ctx: Context, email: str) -> Any:
        answer = await ctx.wait_for_event("user.confirmed", where={"email": email}, timeout=timedelta(days=7))
        return answer and answer.data

    one = await start(fl, confirm, email="one@example.com")
    other = await confirm.enqueue(email="other@example.com", tenant=TENANT)
    async with working(fl):
        await waiting(fl, one, other)
        await fl.emit("user.confirmed", data={"email": "one@example.com", "n": 1}, tenant=TENANT)
        assert (await ended(one)).output == {"email": "one@example.com", "n": 1}
        assert (await other.read()).status is JobStatus.QUEUED

    await testing.pass_time(fl, days=7)
    await fl.tick()
    assert (await other.read()).output is None
    assert [one[-1] for one in await steps_of(fl, other)] == ["timeout"]


async def waiting(fl: Fairlead, *jobs: EnqueuedJob) -> None:
    """Wait until these functions wait."""
    await until_asleep(fl, *(job.id for job in jobs), number=len(jobs))


async def test_an_event_that_came_before_the_wait_counts_once(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def collect(ctx: Context) -> list[Any]:
        await ctx.sleep(hours=1)
        first = await ctx.wait_for_event("paid", where={"amount": {"gt": 5}})
        second = await ctx.wait_for_event("paid", timeout=timedelta(hours=1))
        return [first.data["amount"], second and second.data["amount"]]

    job = await start(fl, collect)
    await fl.tick()
    await fl.emit("paid", data={"amount": 1}, tenant=TENANT)
    await fl.emit("paid", data={"amount": 10}, tenant=TENANT)
    await testing.pass_time(fl, hours=1)
    await fl.tick()
    assert (await job.read()).output == [10, 1]


async def test_a_signal_ends_a_wait_also_if_it_came_before(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def talk(ctx: Context) -> list[Any]:
        early = await ctx.wait_for_signal("hello")
        late = await ctx.wait_for_signal("bye", timeout=3600)
        return [early.data, late.data, late.sent_by]

    job = await start(fl, talk)
    await fl.signal(job.id, "hello", {"n": 1})
    async with working(fl):
        await waiting(fl, job)
        await fl.signal(job.id, "bye")
        done = await ended(job)
    assert done.output == [{"n": 1}, None, fl.principal.actor]
    with pytest.raises(JobNotSignalable, match="has ended"):
        await fl.signal(job.id, "hello")


async def test_a_call_returns_the_output_of_its_child(fl: Fairlead) -> None:
    @fl.job
    async def double(n: int) -> int:
        return 2 * n

    @fl.job(durable=True)
    async def parent(ctx: Context) -> list[int]:
        one = await ctx.call(double, {"n": 1})
        return [one, *await ctx.gather(ctx.call(double, {"n": 2}), ctx.call("double", {"n": 3}))]

    job = await start(fl, parent)
    async with working(fl):
        done = await ended(job)
    assert done.output == [2, 4, 6]
    assert [one.parent_id for one in await given.all_jobs(fl)].count(job.id) == 3


async def test_a_child_that_fails_raises_and_is_called_again_when_the_job_is_retried(fl: Fairlead) -> None:
    ran: list[int] = []

    @fl.job(max_attempts=1)
    async def child() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise Fatal("not today")
        return "well"

    @fl.job(durable=True, max_attempts=2, backoff=NOW)
    async def parent(ctx: Context) -> str:
        return str(await ctx.call(child))

    done = await run(fl, parent)
    assert (done.output, len(ran), done.failure_count) == ("well", 2, 1)


async def test_a_failure_that_the_function_went_on_after_is_the_same_in_every_attempt(fl: Fairlead) -> None:
    ran: list[str] = []

    def charge() -> None:
        ran.append("charge")
        raise ValueError("declined")

    @fl.job(durable=True)
    async def order(ctx: Context) -> str:
        try:
            await ctx.step("charge", charge)
        except StepFailed as error:
            await ctx.step("refund", ran.append, "refund")
            await ctx.sleep(0.05)
            return f"{error.type}: {error.message}"
        return "charged"

    done = await run(fl, order)
    assert done.output == "ValueError: declined"
    assert ran == ["charge", "refund"]


async def test_a_step_is_tried_as_often_as_its_policy_says(fl: Fairlead) -> None:
    ran: list[int] = []

    async def flaky() -> int:
        ran.append(1)
        if len(ran) < 3:
            raise ConnectionError("try again")
        return len(ran)

    @fl.job(durable=True, max_attempts=1)
    async def flow(ctx: Context) -> int:
        return int(await ctx.step("flaky", flaky, retry=Retry(3, NOW)))

    @fl.job(durable=True, max_attempts=1)
    async def patient(ctx: Context) -> int:
        return int(await ctx.step("flaky", flaky, retry=Retry(3, Backoff(3600, 1, 3600, 0))))

    job = await start(fl, flow)
    await fl.tick()
    assert (await job.read()).output == 3

    ran.clear()
    job = await patient.enqueue(tenant=TENANT)
    for _ in range(2):
        await fl.tick()
        assert (await job.read()).status is JobStatus.QUEUED
        await testing.pass_time(fl, hours=1)
    await fl.tick()
    assert (await job.read()).output == 3


async def test_code_that_asks_for_other_steps_fails_with_the_first_difference(fl: Fairlead) -> None:
    names = ["a", "b"]

    @fl.job(durable=True, backoff=NOW)
    async def flow(ctx: Context) -> None:
        for name in names:
            await ctx.step(name, lambda: None)
        if ctx.attempt_no == 1:
            raise ValueError("again")

    job = await start(fl, flow)
    await fl.tick()
    names[1] = "c"
    await fl.tick()
    done = await job.read()
    assert done.status is JobStatus.FAILED
    assert done.error is not None
    assert done.error["type"] == Nondeterministic.__name__
    assert "call 2 was step 'b', and now it is step 'c'" in done.error["message"]

    names[:] = ["a"]
    await fl.retry(job.id)
    await fl.tick()
    done = await job.read()
    assert done.error is not None
    assert "returned before call 2" in done.error["message"]

    names[:] = ["a", "b", "c"]
    await fl.retry(job.id)
    await fl.tick()
    assert (await job.read()).status is JobStatus.SUCCEEDED


async def test_a_version_lets_code_change_under_running_jobs(fl: Fairlead) -> None:
    new_code = False

    @fl.job(durable=True, backoff=NOW)
    async def flow(ctx: Context, *, fails: bool) -> str:
        if new_code and await ctx.version("v2"):
            way = await ctx.step("new", lambda: "new")
        else:
            way = await ctx.step("old", lambda: "old")
        await ctx.step("end", lambda: None)
        if ctx.attempt_no == 1 and fails:
            raise ValueError("again")
        return str(way)

    old = await start(fl, flow, fails=True)
    await fl.tick()
    new_code = True
    young = await flow.enqueue(fails=True, tenant=TENANT)
    await fl.tick()
    await fl.tick()
    assert (await old.read()).output == "old"
    assert (await young.read()).output == "new"


async def test_random_numbers_are_the_same_in_every_attempt(fl: Fairlead) -> None:
    seen: list[list[float]] = []

    @fl.job(durable=True, backoff=NOW)
    async def flow(ctx: Context) -> None:
        seen.append([ctx.random(), ctx.random()])
        await ctx.step("one", lambda: None)
        if ctx.attempt_no == 1:
            raise ValueError("again")

    await start(fl, flow)
    await fl.tick()
    await fl.tick()
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[0][1]


async def test_branches_of_a_gather_wait_together(fl: Fairlead) -> None:
    ran: list[str] = []

    @fl.job(durable=True)
    async def flow(ctx: Context) -> list[Any]:
        async def branch(name: str) -> str:
            await ctx.step("begin", ran.append, name)
            signal = await ctx.wait_for_signal(name)
            await ctx.step("end", ran.append, f"{name} ends")
            return str(signal.data)

        return list(await ctx.gather(branch("left"), branch("right"), ctx.step("middle", lambda: "step")))

    job = await start(fl, flow)
    async with working(fl):
        await waiting(fl, job)
        await fl.signal(job.id, "right", "R")
        await fl.signal(job.id, "left", "L")
        done = await ended(job)
    assert done.output == ["L", "R", "step"]
    assert sorted(ran) == ["left", "left ends", "right", "right ends"]


async def test_a_gather_waits_for_all_and_raises_the_first_failure(fl: Fairlead) -> None:
    def fail() -> None:
        raise Fatal("broken")

    @fl.job(durable=True)
    async def flow(ctx: Context, *, forgives: bool) -> Any:
        found = await ctx.gather(
            ctx.step("fails", fail), ctx.step("works", lambda: 1), return_exceptions=forgives
        )
        return [str(one) for one in found]

    strict = await start(fl, flow, forgives=False)
    lenient = await flow.enqueue(forgives=True, tenant=TENANT)
    await fl.tick()
    failed = await strict.read()
    assert (failed.status, failed.error and failed.error["type"]) == (JobStatus.FAILED, "Fatal")
    assert (await lenient.read()).output == ["fails: Fatal: broken", "1"]


async def test_a_stale_attempt_records_nothing(fl: Fairlead) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        began.set()
        await go_on.wait()
        return "stale"

    @fl.job(durable=True)
    async def flow(ctx: Context) -> str:
        return str(await ctx.step("slow", slow))

    job = await start(fl, flow)
    ticking = asyncio.create_task(fl.tick())
    await began.wait()
    await given.lose_leases(fl)
    go_on.set()
    await ticking
    assert await steps_of(fl, job) == []


async def test_wrong_uses_say_what_to_do(fl: Fairlead) -> None:
    with pytest.raises(SignatureInvalid, match="first parameter must be ctx"):

        @fl.job(durable=True)
        async def without(n: int) -> None: ...

    with pytest.raises(SignatureInvalid, match="cannot be durable: it is isolated"):

        @fl.job(durable=True, isolate=True)
        async def isolated(ctx: Context) -> None: ...

    @fl.job
    async def ordinary(ctx: Context) -> None:
        await ctx.step("one", lambda: None)

    @fl.job(durable=True)
    async def nested(ctx: Context) -> None:
        await ctx.step("one", lambda: ctx.step("two", lambda: None))

    @fl.job(durable=True, max_attempts=1)
    async def forgetful(ctx: Context) -> None:
        ctx.step("forgotten", lambda: None).close()

    @fl.job(durable=True, max_attempts=1)
    async def hasty(ctx: Context) -> None:
        await ctx.step("hasty", asyncio.sleep(0))  # type: ignore[arg-type]

    @fl.job(durable=True)
    async def odd(ctx: Context) -> None:
        await ctx.step("odd", object)

    one = await start(fl, ordinary)
    two = await nested.enqueue(tenant=TENANT)
    mistakes = {
        "write `await` before the call": await forgetful.enqueue(tenant=TENANT),
        "takes a function and its arguments": await hasty.enqueue(tenant=TENANT),
        "Step 'odd': The output cannot be stored as JSON": await odd.enqueue(tenant=TENANT),
    }
    await fl.tick()
    error = (await one.read()).error
    assert error is not None
    assert (error["type"], "durable=True" in error["message"]) == (DurableUnavailable.__name__, True)
    error = (await two.read()).error
    assert error is not None
    assert "cannot ask for steps" in error["message"]

    for advice, job in mistakes.items():
        assert advice in ((await job.read()).error or {})["message"]


def test_a_child_failure_is_a_step_failure() -> None:
    assert issubclass(ChildFailed, StepFailed)


async def test_until_idle_skips_sleeps_and_timeouts_but_not_waits_without_one(fl: Fairlead) -> None:
    @fl.job(durable=True)
    async def flow(ctx: Context) -> list[Any]:
        await ctx.sleep(days=3)
        late = await ctx.wait_for_event("never", timeout=timedelta(days=7))
        await ctx.sleep(days=30)
        signal = await ctx.wait_for_signal("go")
        return [late, signal.data]

    job = await start(fl, flow)
    tick = await testing.run_due(fl, until_idle=True)
    assert (tick.ran, (await job.read()).status) == (4, JobStatus.QUEUED)
    await fl.signal(job.id, "go", "now")
    await testing.run_due(fl)
    assert (await job.read()).output == [None, "now"]


async def test_a_failed_step_does_not_run_again_because_another_branch_waits(fl: Fairlead) -> None:
    ran: list[str] = []

    def fail() -> None:
        ran.append("fail")
        raise ValueError("declined")

    @fl.job(max_attempts=1)
    async def child() -> None:
        ran.append("child")
        raise Fatal("not today")

    @fl.job(durable=True, max_attempts=2, backoff=NOW)
    async def flow(ctx: Context) -> Any:
        async def wait() -> Any:
            await ctx.wait_for_signal("one")
            return (await ctx.wait_for_signal("two")).data

        found = await ctx.gather(ctx.step("fail", fail), ctx.call(child), wait(), return_exceptions=True)
        return [getattr(one, "message", one) for one in found]

    job = await start(fl, flow)
    async with working(fl):
        await waiting(fl, job)
        await fl.signal(job.id, "one")
        await fl.signal(job.id, "two", "T")
        done = await ended(job)
    assert done.output == ["declined", "not today", "T"]
    assert sorted(ran) == ["child", "fail"]


async def test_a_failed_step_runs_again_if_its_attempt_failed_and_not_if_it_was_released(
    fl: Fairlead,
) -> None:
    ran: list[int] = []

    def fail(attempt_no: int) -> None:
        ran.append(attempt_no)
        raise ValueError(f"declined {attempt_no}")

    @fl.job(durable=True, max_attempts=2, backoff=NOW)
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step("fail", fail, ctx.attempt_no)
        except StepFailed as error:
            if ctx.attempt_no in (1, 3):
                raise Snooze(0) from None
            if ctx.attempt_no == 2:
                raise
            await ctx.step("refund", lambda: None)
            return error.message
        return "charged"

    job = await start(fl, flow)
    async with working(fl):
        done = await ended(job)
    assert (done.output, done.attempt_count, done.failure_count) == ("declined 3", 4, 1)
    assert ran == [1, 3]
    assert [one[-1] for one in await steps_of(fl, job)] == ["failed", "succeeded"]
