import asyncio
import contextvars
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog

from fairlead.handlers.context import Context, Fatal, Snooze
from fairlead.handlers.function import run_attempt
from fairlead.handlers.registry import Handler
from fairlead.handlers.threads import Threads
from fairlead.model.outcome import Canceled, Failed, Outcome, Released, Snoozed, Succeeded
from tests.handlers.attempts import ManualDeadlines, context, outcome_of, start, until
from tests.tables import each_case
from tests.waiting import SECONDS


@dataclass
class Folder:
    path: str
    depth: int = 1


async def test_an_async_function_returns_its_output() -> None:
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return n * 2

    assert await outcome_of(double, {"n": 4}) == Succeeded(8)


async def test_a_plain_function_runs_in_a_thread_and_returns_its_output() -> None:
    def where() -> int:
        return threading.get_ident()

    outcome = await outcome_of(where)

    assert isinstance(outcome, Succeeded)
    assert outcome.output != threading.get_ident()


async def test_arguments_have_the_types_the_function_asks_for() -> None:
    def typed(ctx: Context, key: UUID, at: datetime, folder: Folder, n: int, ratio: float = 1.5) -> list[str]:
        assert ctx.attempt_no == 2
        return [type(value).__name__ for value in (key, at, folder, n, ratio)]

    payload = {"key": str(uuid4()), "at": "2026-02-16T10:30:00Z", "folder": {"path": "/"}, "n": 3.0}

    assert await outcome_of(typed, payload) == Succeeded(["UUID", "datetime", "Folder", "int", "float"])


async def test_a_function_that_takes_anything_gets_everything() -> None:
    def open_ended(ctx: Context, a: int, **rest: Any) -> dict[str, Any]:
        return {"a": a, "rest": rest}

    assert await outcome_of(open_ended, {"a": 1, "b": [2]}) == Succeeded({"a": 1, "rest": {"b": [2]}})


@each_case("payload", [{}, {"n": "x"}, {"n": 1.5}, {"n": 1, "more": 2}, [1], {"n": 1, "ctx": 1}])
async def test_a_payload_that_no_longer_fits_fails_for_good(payload: Any) -> None:
    async def typed(ctx: Context, n: int) -> None: ...

    outcome = await outcome_of(typed, payload)

    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.retryable) == ("PayloadInvalid", False)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def endless(n: int = 0) -> int:
    return endless(n + 1) + 1


def raising(error: BaseException | type[BaseException]) -> Callable[[], Any]:
    def work() -> None:
        raise error

    return work


def both(work: Callable[[], Any]) -> list[Callable[[], Any]]:
    """The same work as `def` and as `async def`."""

    async def on_loop() -> Any:
        return work()

    def in_thread() -> Any:
        return work()

    return [in_thread, on_loop]


def group(error: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("unhandled errors in a TaskGroup", [error])


@each_case(
    ("work", "kind", "retryable"),
    [
        (raising(ValueError("wrong")), "ValueError", True),
        (raising(Fatal("never")), "Fatal", False),
        (raising(SystemExit(3)), "SystemExit", True),
        (raising(KeyboardInterrupt), "KeyboardInterrupt", True),
        (raising(MemoryError), "MemoryError", True),
        (raising(asyncio.CancelledError), "CancelledError", True),
        (raising(Unprintable()), "Unprintable", True),
        (raising(BaseExceptionGroup("one", [SystemExit(1)])), "SystemExit", True),
        (raising(BaseExceptionGroup("two", [SystemExit(1), Fatal("never")])), "BaseExceptionGroup", True),
        (raising(ExceptionGroup("all", [Fatal("a"), group(Fatal("b"))])), "ExceptionGroup", False),
        (raising(ExceptionGroup("mixed", [Fatal("a"), group(ValueError("b"))])), "ExceptionGroup", True),
        (raising(ExceptionGroup("mixed", [Fatal("a"), Snooze(1)])), "ExceptionGroup", True),
        (raising(ExceptionGroup("two", [Snooze(1), Snooze(1)])), "ExceptionGroup", True),
        (raising(group(group(Fatal("never")))), "Fatal", False),
        (endless, "RecursionError", True),
        (lambda: object(), "OutputInvalid", False),  # noqa: PLW0108
        (lambda: {"a": float("nan")}, "OutputInvalid", False),
        (lambda: {1: 2}, "OutputInvalid", False),
        (lambda: "\x00", "OutputInvalid", False),
        (lambda: "x" * 2_000_000, "OutputInvalid", False),
        (lambda: asyncio.sleep(0), "OutputInvalid", False),
    ],
)
async def test_whatever_a_handler_does_is_a_failure_of_its_own(
    work: Callable[[], Any], kind: str, *, retryable: bool
) -> None:
    for function in both(work):
        outcome = await outcome_of(function)

        assert isinstance(outcome, Failed)
        assert (outcome.kind, outcome.retryable, outcome.timed_out) == (kind, retryable, False)


async def test_the_error_is_bounded_storable_and_shows_the_handlers_own_frames() -> None:
    def fails() -> None:
        raise ValueError("\x00\ud800" + "ä" * 100_000)

    outcome = await outcome_of(fails)

    assert isinstance(outcome, Failed)
    assert len(outcome.message) <= 2020
    assert "\x00" not in outcome.message
    assert outcome.message.encode()
    assert outcome.traceback
    assert len(outcome.traceback.encode()) <= 8192

    short = await outcome_of(raising(ValueError("short")))

    assert isinstance(short, Failed)
    assert short.traceback
    assert __file__ in short.traceback
    assert "attempt.py" not in short.traceback
    assert traceback.format_exception_only(ValueError("short"))[0] in short.traceback


async def test_output_becomes_plain_json() -> None:
    key = uuid4()

    assert await outcome_of(lambda: {"id": key, "folder": Folder("/")}) == Succeeded(
        {"id": str(key), "folder": {"path": "/", "depth": 1}}
    )


async def test_a_smaller_bound_for_output_holds() -> None:
    outcome = await outcome_of(lambda: "x" * 100, max_output_bytes=50)

    assert isinstance(outcome, Failed)
    assert outcome.message == "The output cannot be stored as JSON: larger than 50 bytes."


async def test_what_a_task_group_wraps_means_what_it_meant_alone() -> None:
    async def together() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(60))
            tasks.create_task(asyncio.to_thread(raising(Fatal("no such customer"))))

    outcome = await outcome_of(together)

    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.message, outcome.retryable) == ("Fatal", "no such customer", False)
    assert "TaskGroup" in (outcome.traceback or "")


async def test_a_snooze_may_be_raised_or_returned() -> None:
    raised = Snooze(timedelta(minutes=1))
    for work in (raising(raised), raising(group(group(raised))), lambda: Snooze(60)):
        for function in both(work):
            assert await outcome_of(function) == Snoozed(60.0)


@each_case("delay", [-1, float("nan"), float("inf"), "soon", True, None])
def test_a_snooze_without_a_sensible_delay_is_refused(delay: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Snooze(delay)


async def test_cost_is_kept_however_it_ends() -> None:
    def costly(ctx: Context, *, end: str) -> Snooze | None:
        ctx.add_cost(5)
        ctx.add_cost(6)
        if end == "fail":
            raise ValueError
        return Snooze(1) if end == "snooze" else None

    succeeded, failed, snoozed = [
        await outcome_of(costly, {"end": end}) for end in ("well", "fail", "snooze")
    ]

    assert isinstance(succeeded, Succeeded)
    assert isinstance(failed, Failed)
    assert isinstance(snoozed, Snoozed)
    assert (succeeded.cost_cents, failed.cost_cents, snoozed.cost_cents) == (11, 11, 11)


# Time


async def test_an_async_function_that_takes_too_long_is_cancelled_and_timed_out() -> None:
    cleaned = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    outcome = await outcome_of(slow, timeout=0.01)

    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.timed_out, outcome.retryable) == ("Timeout", True, True)
    assert cleaned.is_set()


async def test_a_handler_that_swallows_cancellation_is_abandoned_after_the_grace() -> None:
    enough = asyncio.Event()
    ended = asyncio.Event()

    async def stubborn() -> None:
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    with structlog.testing.capture_logs() as logs:
        outcome = await outcome_of(stubborn, timeout=0.01, grace=0.01)

    assert isinstance(outcome, Failed)
    assert outcome.timed_out
    assert [line["event"] for line in logs] == ["handler_did_not_stop"]
    assert logs[0].keys() >= {"job_id", "tenant_id", "definition_key", "attempt_no", "grace_seconds"}
    enough.set()
    await ended.wait()


async def test_a_thread_out_of_time_is_reported_at_once_and_keeps_its_slot_until_it_returns() -> None:
    let_go = threading.Event()
    threads = Threads(1)
    stuck = Handler.of("stuck", lambda: let_go.wait(SECONDS))
    after = Handler.of("after", lambda: "after")

    outcome = await run_attempt(stuck, context(), timeout=0.01, threads=threads, grace=60)
    assert isinstance(outcome, Failed)
    assert outcome.timed_out
    assert (threads.stuck, threads.running, threads.free) == (1, 1, 0)

    waiting = start(after, context(), timeout=120, threads=threads)
    assert threads.waiting == 1
    let_go.set()

    assert await waiting == Succeeded("after")
    await until(lambda: threads.running == 0, "the thread")
    assert threads.stuck == 0
    threads.close()


async def test_waiting_for_a_thread_is_not_charged_to_the_time() -> None:
    let_go = threading.Event()
    threads = Threads(1)
    time = ManualDeadlines()
    first = start(Handler.of("first", lambda: let_go.wait(SECONDS)), context(), timeout=None, threads=threads)
    ctx = context()
    second = start(Handler.of("second", lambda: "second"), ctx, timeout=0.5, threads=threads, deadlines=time)
    assert threads.waiting == 1
    time.expire()

    let_go.set()

    assert await first == Succeeded(output=True)
    assert await second == Succeeded("second")
    threads.close()


async def test_the_time_of_a_function_begins_with_its_thread() -> None:
    let_go = threading.Event()
    threads = Threads(1)
    time = ManualDeadlines()
    late = start(
        Handler.of("late", lambda: let_go.wait(SECONDS)),
        context(),
        timeout=0.5,
        threads=threads,
        deadlines=time,
    )

    time.expire()

    outcome = await late
    assert isinstance(outcome, Failed)
    assert outcome.timed_out
    let_go.set()
    await until(lambda: threads.running == 0, "the thread")
    threads.close()


# Stopping


async def test_a_canceled_async_function_is_canceled() -> None:
    begun = asyncio.Event()
    ctx = context()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    attempt = asyncio.ensure_future(outcome_of(waits, ctx=ctx))
    await begun.wait()
    ctx.cancel()

    assert await attempt == Canceled()


async def test_a_function_canceled_before_it_began_never_begins() -> None:
    called = []
    ctx = context()
    ctx.cancel()
    assert await outcome_of(lambda: called.append(1), ctx=ctx) == Canceled()

    async def never() -> None:
        called.append(2)

    ctx = context()
    threads = Threads(1)
    attempt = start(Handler.of("never", never), ctx, timeout=120, threads=threads)
    ctx.cancel()

    assert await attempt == Canceled()
    assert called == []


async def test_a_job_canceled_while_it_waits_for_a_thread_never_begins() -> None:
    let_go = threading.Event()
    threads = Threads(1)
    called = []
    ctx = context()
    first = start(Handler.of("first", lambda: let_go.wait(SECONDS)), context(), timeout=120, threads=threads)
    second = start(Handler.of("second", lambda: called.append(1)), ctx, timeout=120, threads=threads)

    ctx.release()

    assert await second == Released()
    let_go.set()
    await first
    assert (called, threads.stuck, threads.waiting) == ([], 0, 0)
    threads.close()


async def test_a_thread_sees_the_cancel_and_stops() -> None:
    begun = threading.Event()
    ctx = context()

    def polls(ctx: Context) -> None:
        begun.set()
        while True:
            try:
                ctx.check_canceled()
            except Exception:  # noqa: BLE001, S112 - as careless code does
                continue

    attempt = asyncio.ensure_future(outcome_of(polls, ctx=ctx))
    await until(begun.is_set, "the handler")
    ctx.cancel()

    assert await attempt == Canceled()


async def test_a_thread_that_does_not_see_the_cancel_is_left_stuck_after_the_grace() -> None:
    let_go = threading.Event()
    threads = Threads(1)
    ctx = context()
    attempt = start(
        Handler.of("deaf", lambda: let_go.wait(SECONDS)), ctx, timeout=120, threads=threads, grace=0.01
    )

    ctx.cancel()

    assert await attempt == Canceled()
    assert threads.stuck == 1
    let_go.set()
    await until(lambda: threads.running == 0, "the thread")
    threads.close()


async def test_a_handler_that_succeeds_although_it_was_canceled_has_succeeded() -> None:
    begun = asyncio.Event()

    async def finishes() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished"
        return "never"

    ctx = context()
    attempt = asyncio.ensure_future(outcome_of(finishes, ctx=ctx))
    await begun.wait()
    ctx.cancel()
    assert await attempt == Succeeded("finished")

    begun.clear()
    late = await outcome_of(finishes, timeout=0.01)
    assert isinstance(late, Failed)
    assert late.timed_out


async def test_a_failure_after_a_release_is_a_release_and_a_later_cancel_wins() -> None:
    begun = asyncio.Event()

    async def breaks() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError

    for stops, expected in (
        ([Context.release], Released()),
        ([Context.release, Context.cancel], Canceled()),
        ([Context.cancel, Context.release], Canceled()),
    ):
        begun.clear()
        ctx = context()
        attempt = asyncio.ensure_future(outcome_of(breaks, ctx=ctx))
        await begun.wait()
        for stop in stops:
            stop(ctx)
        assert await attempt == expected


async def test_an_attempt_nobody_waits_for_any_more_does_not_run_on() -> None:
    begun = asyncio.Event()
    ended = asyncio.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    attempt = asyncio.ensure_future(outcome_of(waits))
    await begun.wait()
    attempt.cancel()

    await ended.wait()
    assert attempt.cancelled()


async def test_a_crash_of_one_handler_never_harms_another() -> None:
    calm = asyncio.Event()

    async def steady() -> str:
        await calm.wait()
        return "steady"

    threads = Threads(4)
    attempts = [start(Handler.of("steady", steady), context(), timeout=120, threads=threads)]
    wild: list[Outcome] = []
    for work in (raising(SystemExit), raising(KeyboardInterrupt), raising(Fatal("x")), endless):
        handlers = [Handler.of("wild", function) for function in both(work)]
        wild += [await run_attempt(one, context(), timeout=120, threads=threads) for one in handlers]
    calm.set()

    assert all(isinstance(outcome, Failed) for outcome in wild)
    assert await attempts[0] == Succeeded("steady")
    assert (threads.running, threads.stuck) == (0, 0)
    threads.close()


async def test_a_thousand_plain_functions_share_a_few_threads() -> None:
    threads = Threads(3)
    used = set()

    def note() -> None:
        used.add(threading.get_ident())

    handler = Handler.of("note", note)
    outcomes = await asyncio.gather(
        *(run_attempt(handler, context(), timeout=120, threads=threads) for _ in range(1000))
    )

    assert set(map(type, outcomes)) == {Succeeded}
    assert 1 <= len(used) <= 3
    threads.close()


async def test_a_thread_sees_the_callers_context_variables() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    def reads() -> str:
        return variable.get()

    assert await outcome_of(reads) == Succeeded("set")


async def test_threads_that_were_let_go_end() -> None:
    threads = Threads(2)
    seen: list[threading.Thread] = []
    await run_attempt(
        Handler.of("note", lambda: seen.append(threading.current_thread())),
        context(),
        timeout=120,
        threads=threads,
    )

    threads.close()

    await until(lambda: not seen[0].is_alive(), "the thread's end")
    assert seen[0].daemon


def test_a_pool_needs_a_thread() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Threads(0)
