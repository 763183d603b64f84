"""How an attempt is started: what the execution gives to a batch."""

import asyncio

from fairlead.handlers.batch_job import BatchJob, BatchOptions
from fairlead.handlers.registry import Registry
from fairlead.handlers.threads import Threads
from fairlead.lease_clock import lease_clock
from fairlead.model.outcome import SUCCEEDED, Canceled, Outcome
from fairlead.runtime.execution import Execution
from fairlead.runtime.worker_attempt import WorkerAttempt
from tests.runtime.sources import KEY, held_job

WAIT = 60.0


def attempt(ends: "asyncio.Queue[Outcome]", *, probation: float = 0.0) -> WorkerAttempt:
    return WorkerAttempt(held_job(probation=probation), lambda _, outcome: ends.put_nowait(outcome))


async def test_a_suspect_runs_in_a_batch_of_its_own_and_other_jobs_settle_after_their_wait() -> None:
    sizes, ends = list[int](), asyncio.Queue[Outcome]()

    async def work(jobs: list[BatchJob[dict[str, int]]]) -> None:
        sizes.append(len(jobs))

    async def enqueue(_: object) -> None: ...

    registry = Registry()
    registry.add(KEY, work, batch=BatchOptions(3, WAIT))
    execution = Execution(registry, threads=Threads(1), enqueue=enqueue)
    plain = [attempt(ends) for _ in range(3)]
    suspect = attempt(ends, probation=5.0)
    for one in plain:
        one.settles_at = lease_clock()

    execution(plain[0])
    execution(suspect)
    assert await ends.get() is SUCCEEDED
    assert sizes == [1]
    for one in plain[1:]:
        execution(one)
    assert [await ends.get() for _ in plain] == [SUCCEEDED] * 3

    assert sizes == [1, 3]
    assert all(one.settles_at > lease_clock() for one in plain)
    assert suspect.settles_at == 0.0


async def test_a_job_that_lost_its_lease_while_it_waited_for_its_batch_does_not_start() -> None:
    """As when the process was stopped meanwhile: the fence is the first to notice."""
    sizes, ends = list[int](), asyncio.Queue[Outcome]()

    async def work(jobs: list[BatchJob[dict[str, int]]]) -> None:
        sizes.append(len(jobs))

    async def enqueue(_: object) -> None: ...

    def fence() -> None:
        early.lost = len(started) == 1

    registry = Registry()
    registry.add(KEY, work, batch=BatchOptions(2, WAIT))
    execution = Execution(registry, threads=Threads(1), enqueue=enqueue)
    early = WorkerAttempt(held_job(), lambda _, outcome: ends.put_nowait(outcome), fence=fence)
    started = list[WorkerAttempt]()
    for one in (early, attempt(ends)):
        execution(one)
        started.append(one)

    assert [await ends.get(), await ends.get()] == [Canceled(), SUCCEEDED]
    assert sizes == [1]
