import asyncio
import os
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fairlead.errors import DefinitionUnknown
from fairlead.handlers.context import Progress
from fairlead.handlers.registry import Handler
from fairlead.handlers.threads import Threads
from fairlead.model.job import EnqueueResult, NewJob
from fairlead.model.outcome import Canceled, Failed, Released, Snoozed, Succeeded
from tests import processes
from tests.handlers import decorated, work
from tests.handlers.attempts import (
    ManualDeadlines,
    alive,
    context,
    dead,
    number_in,
    outcome_of,
    start,
    until,
)


async def isolated(function: Any, payload: Any = None, **more: Any) -> Any:
    return await outcome_of(function, payload, isolate=True, **more)


async def test_an_isolated_function_runs_in_another_process_and_returns_its_output() -> None:
    ctx = context({"a": 1})

    outcome = await isolated(work.add, ctx=ctx)

    assert isinstance(outcome, Succeeded)
    assert outcome.output["sum"] == 3
    assert outcome.output["job"] == str(ctx.job_id)
    assert outcome.output["attempt"] == 2
    assert outcome.output["pid"] != os.getpid()
    assert not alive(outcome.output["pid"])


async def test_an_isolated_async_function_gets_typed_arguments() -> None:
    outcome = await isolated(work.add_later, {"a": 1, "b": str(uuid4())})

    assert outcome == Succeeded([1, "UUID", "acme"])


@pytest.mark.thorough
async def test_a_decorated_function_and_a_static_method_are_found() -> None:
    assert await isolated(decorated.double.function, {"a": 4}) == Succeeded(8)
    assert await isolated(work.Nested.work) == Succeeded("nested")


@pytest.mark.parametrize(
    ("function", "kind", "retryable"),
    [
        (work.fails, "LookupError", True),
        (work.fatal, "Fatal", False),
        (work.leaves, "SystemExit", True),
        (work.bad_output, "OutputInvalid", False),
        (work.add, "PayloadInvalid", False),
    ],
)
async def test_how_an_isolated_function_failed_is_told(function: Any, kind: str, *, retryable: bool) -> None:
    outcome = await isolated(function)

    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.retryable) == (kind, retryable)


async def test_an_isolated_function_may_snooze() -> None:
    assert await isolated(work.snooze) == Snoozed(7.0)


@pytest.mark.parametrize(
    ("function", "named"), [(work.exits, "exited with status 3"), (work.crashes, "killed by SIGSEGV")]
)
async def test_a_child_that_dies_is_a_failure_that_names_how(function: Any, named: str) -> None:
    outcome = await isolated(function)

    assert isinstance(outcome, Failed)
    assert outcome.kind == "ChildDied"
    assert outcome.retryable
    assert named in outcome.message


async def test_log_progress_and_cost_come_through() -> None:
    told: list[Progress] = []
    ctx = context(on_progress=told.append)

    outcome = await isolated(work.talks, ctx=ctx)

    assert outcome == Succeeded(cost_cents=7)
    assert "hello name=world odd=" in ctx.log.text
    assert told == [Progress(40.0, "on the way")]


async def test_a_child_enqueues_through_its_worker() -> None:
    asked: list[NewJob] = []
    made = uuid4()

    async def enqueue(new: NewJob) -> EnqueueResult:
        asked.append(new)
        return EnqueueResult(made, deduplicated=True)

    ctx = context(enqueue=enqueue, correlation_id="c-1")

    assert await isolated(work.enqueues, ctx=ctx) == Succeeded([str(made), True])
    [new] = asked
    assert (new.definition, new.tenant, new.payload, new.priority) == ("child", "acme", {"n": 1}, 5)
    assert (new.parent_id, new.correlation_id, new.delay) == (ctx.job_id, "c-1", timedelta(minutes=1))


async def test_a_refused_enqueue_is_the_same_refusal_in_the_child() -> None:
    async def enqueue(new: NewJob) -> EnqueueResult:
        raise DefinitionUnknown(f"There is no definition {new.definition}.")

    outcome = await isolated(work.enqueues_in_vain, ctx=context(enqueue=enqueue))

    assert outcome == Succeeded("There is no definition unknown.")


async def test_a_timeout_kills_the_child_and_its_grandchildren(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    time = ManualDeadlines()
    handler = Handler.of("work", work.hangs, isolate=True)
    threads = Threads(1)
    attempt = start(
        handler, context({"path": str(path)}), timeout=5.0, threads=threads, deadlines=time, grace=0.2
    )
    await until(lambda: number_in(path), "the child")

    time.expire()

    outcome = await attempt
    threads.close()
    assert isinstance(outcome, Failed)
    assert outcome.timed_out
    assert outcome.kind == "Timeout"
    for file in (path, Path(f"{path}.same"), Path(f"{path}.other")):
        pid = number_in(file)
        assert pid
        await until(partial(dead, pid), f"the end of {file.name}")


async def test_a_canceled_child_may_clean_up(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    ctx = context({"path": str(path)})
    attempt = _soon(isolated(work.waits, ctx=ctx))
    pid = await until(lambda: number_in(path), "the child")

    ctx.cancel()

    assert await attempt == Canceled()
    assert number_in(Path(f"{path}.cleaned"))
    assert not alive(pid)


async def test_a_child_that_succeeds_although_it_was_canceled_has_succeeded(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    ctx = context({"path": str(path)})
    attempt = _soon(isolated(work.succeeds_all_the_same, ctx=ctx))
    await until(lambda: number_in(path), "the child")

    ctx.cancel()

    assert await attempt == Succeeded("done")


async def test_a_deaf_child_is_killed_when_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    ctx = context({"path": str(path)})
    attempt = _soon(isolated(work.hangs, ctx=ctx, grace=0.1))
    pid = await until(lambda: number_in(path), "the child")

    ctx.release()

    assert await attempt == Released()
    assert not alive(pid)


async def test_a_child_ended_by_a_stranger_is_a_failure_and_not_a_cancel(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    attempt = _soon(isolated(work.waits, {"path": str(path)}))
    pid = await until(lambda: number_in(path), "the child")

    os.kill(pid, signal.SIGTERM)

    outcome = await attempt
    assert isinstance(outcome, Failed)
    assert outcome.kind == "ChildDied"
    assert "SIGTERM" in outcome.message


async def test_nothing_a_finished_child_started_stays(tmp_path: Path) -> None:
    path = tmp_path / "pid"

    assert await isolated(work.leaves_a_daemon, {"path": str(path)}) == Succeeded("done")

    pid = number_in(path)
    assert pid
    await until(partial(dead, pid), "the daemon's end")


@pytest.mark.thorough
async def test_whoever_is_cancelled_while_waiting_kills_the_child(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    attempt = _soon(isolated(work.hangs, {"path": str(path)}))
    pid = await until(lambda: number_in(path), "the child")

    attempt.cancel()

    await until(partial(dead, pid), "the child's end")
    await until(attempt.cancelled, "the waiter's end")


PARENT = """
import asyncio, sys
from tests.handlers import decorated, work
from tests.handlers.attempts import outcome_of
asyncio.run(outcome_of(work.hangs, {"path": sys.argv[1]}, isolate=True))
"""


@pytest.mark.thorough
def test_a_worker_killed_with_9_leaves_no_child(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    root = str(Path(__file__).parents[2])
    with processes.started(
        [sys.executable, "-c", PARENT, str(path)], env={"PYTHONPATH": root}, cwd=root
    ) as parent:
        pid = processes.until(lambda: number_in(path), "the child")
        others = [number_in(Path(f"{path}.same")), number_in(Path(f"{path}.other"))]
        assert alive(pid)

        parent.send_signal(signal.SIGKILL)
        parent.wait()

        for one in (pid, *others):
            assert one
            processes.until(partial(dead, one), "the end of all it started")


def _soon(coroutine: Any) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.ensure_future(coroutine)
    return future
