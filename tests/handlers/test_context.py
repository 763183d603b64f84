import asyncio
import threading
from typing import Any
from uuid import uuid4

import pytest
import structlog

from fairlead.handlers.context import Context, Progress
from fairlead.handlers.log import BoundedLines, Log
from fairlead.model.job import EnqueueResult, NewJob
from fairlead.model.outcome import MOST_CENTS, Failed, Succeeded
from tests.handlers.attempts import context, outcome_of, until
from tests.tables import each_case
from tests.waiting import SECONDS


async def test_log_lines_are_kept_and_passed_on_with_whose_they_are() -> None:
    ctx = context()

    def logs(ctx: Context) -> None:
        ctx.log.debug("small")
        ctx.log.info("fetched", rows=12, name="two words")
        ctx.log.warning("odd\nline", nul="\x00")
        ctx.log.error("bad", value=Unshowable())

    with structlog.testing.capture_logs() as passed_on:
        await outcome_of(logs, ctx=ctx)

    lines = ctx.log.text.splitlines()
    assert [line.split(maxsplit=2)[1:] for line in lines] == [
        ["debug", "small"],
        ["info", "fetched rows=12 name='two words'"],
        ["warning", "odd\\nline nul=\\x00"],
        ["error", "bad value=<Unshowable>"],
    ]
    assert passed_on[1] == {
        "event": "fetched",
        "log_level": "info",
        "rows": 12,
        "name": "two words",
        "job_id": str(ctx.job_id),
        "tenant_id": str(ctx.tenant_id),
        "definition_key": "work",
        "attempt_no": 2,
    }


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


def test_a_long_log_keeps_its_head_and_its_tail_and_says_what_went_between() -> None:
    lines = BoundedLines(65_536)
    for number in range(20_000):
        lines.add(f"line {number}")

    text = lines.text()

    assert len(text.encode()) <= 65_536 + 100
    kept = text.splitlines()
    assert kept[0] == "line 0"
    assert kept[-1] == "line 19999"
    [mark] = [line for line in kept if "dropped" in line]
    assert int(mark.split()[1]) == 20_000 - (len(kept) - 1)


def test_one_endless_line_is_cut() -> None:
    log = Log(job_id="1")
    with structlog.testing.capture_logs():
        log.info("x" * 1_000_000)

    assert len(log.text.encode()) < 10_000


async def test_progress_is_told_at_once_then_every_so_often_and_the_last_one_wins() -> None:
    told: list[Progress] = []
    done = asyncio.Event()
    ctx = context(on_progress=told.append, progress_seconds=0.05)

    async def works(ctx: Context) -> None:
        for percent in range(101):
            await ctx.progress(percent, f"at {percent}")
        await done.wait()

    attempt = asyncio.ensure_future(outcome_of(works, ctx=ctx))
    await until(lambda: Progress(100.0, "at 100") in told, "the last progress")
    done.set()
    await attempt

    assert told[0] == Progress(0.0, "at 0")
    assert len(told) < 101
    assert ctx.last_progress == told[-1]


async def test_progress_from_a_thread_is_told_on_the_loop() -> None:
    told_in: list[int] = []
    told = threading.Event()

    def tell(_: Progress) -> None:
        told_in.append(threading.get_ident())
        told.set()

    ctx = context(on_progress=tell)

    def works(ctx: Context) -> None:
        ctx.progress(50)
        told.wait(SECONDS)

    assert await outcome_of(works, ctx=ctx) == Succeeded()
    assert told_in == [threading.get_ident()]


@each_case("percent", [-1, 101, float("nan"), "5", True, None])
def test_progress_outside_0_to_100_is_refused(percent: Any) -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        context().progress(percent)


async def test_a_progress_that_cannot_be_told_does_not_fail_the_work() -> None:
    def broken(_: Progress) -> None:
        raise RuntimeError

    async def works(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    with structlog.testing.capture_logs() as logs:
        outcome = await outcome_of(works, ctx=context(on_progress=broken))

    assert outcome == Succeeded("done")
    assert logs[0]["event"] == "progress_not_told"


@each_case("cents", [-1, 1.5, True, "1", 2**70, MOST_CENTS])
def test_an_odd_cost_is_refused(cents: Any) -> None:
    ctx = context()
    ctx.add_cost(1)
    with pytest.raises(ValueError, match="whole cents"):
        ctx.add_cost(cents)
    assert ctx.cost_cents == 1


class Keyed:
    key = "child"


async def test_a_child_job_names_its_parent_from_the_loop_and_from_a_thread() -> None:
    asked: list[NewJob] = []

    async def enqueue(new: NewJob) -> EnqueueResult:
        asked.append(new)
        return EnqueueResult(new.id)

    async def on_loop(ctx: Context) -> str:
        return str((await ctx.enqueue(Keyed, payload={"n": 1}, priority=3)).id)

    def in_thread(ctx: Context) -> str:
        return str(ctx.enqueue("child", tenant="other", correlation_id="mine").id)

    ctx = context(enqueue=enqueue, correlation_id="c-1")
    first = await outcome_of(on_loop, ctx=ctx)
    other = context(enqueue=enqueue, correlation_id="c-1")
    second = await outcome_of(in_thread, ctx=other)

    assert first == Succeeded(str(asked[0].id))
    assert second == Succeeded(str(asked[1].id))
    assert [new.parent_id for new in asked] == [ctx.job_id, other.job_id]
    assert [new.definition for new in asked] == ["child", "child"]
    assert [new.tenant for new in asked] == ["acme", "other"]
    assert [new.correlation_id for new in asked] == ["c-1", "mine"]
    assert [new.payload for new in asked] == [{"n": 1}, {}]
    assert [new.priority for new in asked] == [3, None]


async def test_a_thread_whose_attempt_is_over_changes_nothing() -> None:
    asked: list[NewJob] = []
    told: list[Progress] = []
    let_go = threading.Event()
    after: list[str] = []

    async def enqueue(new: NewJob) -> EnqueueResult:
        asked.append(new)
        return EnqueueResult(uuid4())

    def late(ctx: Context) -> None:
        let_go.wait(SECONDS)
        ctx.progress(99)
        ctx.add_cost(1)
        ctx.log.info("late")
        after.append("canceled" if ctx.is_canceled else "not")
        try:
            ctx.enqueue("child")
        except BaseException as error:
            after.append(type(error).__name__)
            raise

    ctx = context(enqueue=enqueue, on_progress=told.append)
    outcome = await outcome_of(late, ctx=ctx, timeout=0.01)
    assert isinstance(outcome, Failed)
    let_go.set()
    await until(lambda: len(after) == 2, "the late thread")

    assert after == ["canceled", "Stopped"]
    assert (asked, told, ctx.cost_cents, ctx.last_progress, ctx.log.text) == ([], [], 0, None, "")


async def test_a_context_without_a_queue_says_so() -> None:
    async def enqueues(ctx: Context) -> None:
        await ctx.enqueue("child")

    outcome = await outcome_of(enqueues)

    assert isinstance(outcome, Failed)
    assert "This context cannot enqueue" in outcome.message
