"""Batches without a worker: how jobs are collected, and what stops the handler."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from fairlead.deadlines import Deadlines
from fairlead.handlers.attempt import AttemptContext, Bounds
from fairlead.handlers.batch import Batches
from fairlead.handlers.batch_job import BatchJob, BatchOptions
from fairlead.handlers.context import current_job
from fairlead.handlers.function import find_context, running_tasks
from fairlead.handlers.registry import Handler
from fairlead.handlers.threads import Threads
from fairlead.model.outcome import SUCCEEDED, Canceled, Failed, Outcome, Released, Succeeded
from tests.handlers.attempts import context
from tests.waiting import SECONDS, eventually


class Started:
    """Jobs of one handler in batches, with the outcomes so far by their numbers."""

    def __init__(self, function: Callable[..., Any], options: BatchOptions, *, grace: float = 20.0) -> None:
        self.threads = Threads(2)
        self._handler = Handler.of("work", function, batch=options)
        self._batches = Batches(self.threads)
        self._bounds = Bounds(SECONDS, Deadlines(), grace)
        self.outcomes: dict[int, Outcome] = {}
        self._tenant = context().tenant_id

    def add(self, number: int, *, alone: bool = False) -> AttemptContext:
        ctx = context({"number": number}, tenant_id=self._tenant)

        def then(outcome: Outcome) -> None:
            assert number not in self.outcomes
            self.outcomes[number] = outcome

        self._batches.start(self._handler, ctx, then, self._bounds, alone=alone)
        return ctx

    async def wait_for(self, *numbers: int) -> list[Outcome]:
        await eventually(lambda: self.outcomes.keys() >= set(numbers), f"the outcomes of {numbers}")
        return [self.outcomes[number] for number in numbers]


async def test_a_suspect_does_not_wait_for_others_and_takes_none_with_it() -> None:
    sizes = list[list[int]]()

    async def work(jobs: list[BatchJob[dict[str, int]]]) -> None:
        sizes.append([job.payload["number"] for job in jobs])

    started = Started(work, BatchOptions(3, 60))
    started.add(1)
    started.add(2, alone=True)
    assert await started.wait_for(2) == [SUCCEEDED]
    assert sizes == [[2]]
    for number in (3, 4):
        started.add(number)
    await started.wait_for(1, 3, 4)
    assert sizes == [[2], [1, 3, 4]]


async def test_the_handler_runs_in_no_jobs_context_and_is_known_by_its_first_job() -> None:
    seen = list[Any]()

    async def work(jobs: list[BatchJob[dict[str, int]]]) -> None:
        seen.extend([current_job.get(), find_context(asyncio.current_task())])

    started = Started(work, BatchOptions(2, 60))
    first = started.add(1)
    started.add(2)
    await started.wait_for(1, 2)
    assert seen == [None, first]
    assert first not in running_tasks.values()


async def test_a_handler_is_stopped_when_the_last_of_its_jobs_must_stop() -> None:
    begun, stopped = asyncio.Event(), list[int]()

    async def work(jobs: list[BatchJob[dict[str, int]]]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(len([job for job in jobs if job.is_canceled]))
            jobs[2].succeed("in time")
            raise

    started = Started(work, BatchOptions(3, 60))
    contexts = [started.add(number) for number in range(3)]
    await begun.wait()
    contexts[0].cancel()
    contexts[1].lose(20.0)
    await asyncio.sleep(0)
    assert (stopped, started.outcomes) == ([], {})
    contexts[2].release()

    assert await started.wait_for(0, 1, 2) == [Canceled(), Released(), Succeeded("in time")]
    assert stopped == [3]


async def test_a_lost_job_ends_after_its_grace_and_what_the_handler_does_with_it_has_no_effect() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(jobs: list[BatchJob[dict[str, int]]]) -> list[int]:
        begun.set()
        await go_on.wait()
        return [job.payload["number"] for job in jobs]

    started = Started(work, BatchOptions(2, 60))
    lost, _ = started.add(1), started.add(2)
    await begun.wait()
    lost.lose(0.01)
    assert await started.wait_for(1) == [Released()]
    go_on.set()
    assert await started.wait_for(1, 2) == [Released(), Succeeded(2)]


async def test_a_thread_whose_jobs_all_ended_without_it_counts_as_stuck_until_it_returns() -> None:
    release = threading.Event()

    def work(jobs: list[BatchJob[dict[str, int]]]) -> None:
        release.wait()

    started = Started(work, BatchOptions(2, 60), grace=0.01)
    contexts = [started.add(number) for number in range(2)]
    for one in contexts:
        one.cancel()
    assert await started.wait_for(0, 1) == [Canceled(), Canceled()]
    await eventually(lambda: started.threads.stuck == 1, "the thread is given up")
    release.set()
    await eventually(lambda: started.threads.stuck == 0, "the thread returns")


async def test_jobs_that_wait_for_a_thread_are_withdrawn() -> None:
    release, calls = threading.Event(), list[int]()

    def work(jobs: list[BatchJob[dict[str, int]]]) -> None:
        calls.append(jobs[0].payload["number"])
        release.wait()

    started = Started(work, BatchOptions(1, 0))
    for number in range(2):
        started.add(number)
    third = started.add(2)
    third.cancel()
    assert await started.wait_for(2) == [Canceled()]
    release.set()
    await started.wait_for(0, 1)
    assert sorted(calls) == [0, 1]


async def test_a_handler_that_cannot_be_started_fails_all_its_jobs() -> None:
    def work(jobs: list[BatchJob[dict[str, int]]]) -> None: ...

    started = Started(work, BatchOptions(2, 60))
    started.threads.submit = None  # type: ignore[assignment, method-assign]
    for number in range(2):
        started.add(number)
    ends = await started.wait_for(0, 1)
    assert all(isinstance(one, Failed) and one.kind == "TypeError" for one in ends)


async def test_a_batch_of_jobs_that_were_all_canceled_before_is_not_called() -> None:
    calls = list[int]()

    async def work(jobs: list[BatchJob[dict[str, int]]]) -> None:
        calls.append(len(jobs))

    started = Started(work, BatchOptions(5, 0))
    contexts = [started.add(number) for number in range(2)]
    for one in contexts:
        one.cancel()
    assert await started.wait_for(0, 1) == [Canceled(), Canceled()]
    started.add(3)
    await started.wait_for(3)
    assert calls == [1]
