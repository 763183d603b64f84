"""What enqueueing gives back."""

import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from fairlead import Fairlead, Fatal, Settings
from fairlead.errors import JobFailed, ResultTimeout
from fairlead.library.client import EnqueuedJob
from fairlead.model.job import JobStatus
from fairlead.model.workflow.run import RunStatus
from tests.given import TENANT

RUN_SECONDS = 0.2


def ending_late(read: Callable[..., Awaitable[Any]], status: str) -> Callable[..., Awaitable[Any]]:
    """What `read` sees, but ended as soon as the time to wait for it is up, and no sooner."""
    end = time.monotonic() + RUN_SECONDS

    async def look(wanted: UUID, **options: Any) -> Any:
        seen = await read(wanted, **options)
        return seen if time.monotonic() < end else replace(seen, status=status, output="at last")

    return look


async def test_a_job_that_ends_in_the_last_moment_has_a_result(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await fl.enqueue("anything", tenant=TENANT)
    monkeypatch.setattr(fl, "read", ending_late(fl.read, JobStatus.SUCCEEDED))

    assert await job.result(timeout=RUN_SECONDS) == "at last"


async def test_a_run_that_ends_in_the_last_moment_has_a_result(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await fl.chain("anything", tenant=TENANT)
    monkeypatch.setattr(fl, "run_standing", ending_late(fl.run_standing, RunStatus.SUCCEEDED))

    assert await run.result(RUN_SECONDS, look_seconds=3600) == "at last"


async def test_how_a_job_ended_can_be_told_from_its_failure(settings: Settings) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(max_attempts=1)
    async def unlucky() -> None:
        raise ConnectionError("not yet")

    @fl.job
    async def hopeless() -> None:
        raise Fatal("never")

    @fl.job
    async def unwanted() -> None: ...

    async with fl:
        made = [await one.enqueue(tenant=TENANT) for one in (unlucky, hopeless, unwanted)]
        await fl.cancel(made[2].id)
        await fl.tick()
        errors = [await failure(one) for one in made]

    assert [(one.job_id, one.status, one.last_error) for one in errors] == [
        (made[0].id, JobStatus.DEAD_LETTER, "ConnectionError: not yet"),
        (made[1].id, JobStatus.FAILED, "Fatal: never"),
        (made[2].id, JobStatus.CANCELED, None),
    ]
    assert str(errors[0]) == f"Job {made[0].id} is dead_letter: ConnectionError: not yet"
    assert str(errors[2]) == f"Job {made[2].id} was canceled"


async def test_a_job_that_failed_before_it_was_canceled_says_both(fl: Fairlead) -> None:
    job = await fl.enqueue("anything", tenant=TENANT)
    [lease] = await fl.claim()
    await lease.fail("no luck")
    await fl.cancel(job.id)

    assert str(await failure(job)) == f"Job {job.id} was canceled, after: Failed: no luck"


async def failure(job: EnqueuedJob) -> JobFailed:
    with pytest.raises(JobFailed) as raised:
        await job.result(timeout=0)
    return raised.value


async def test_who_waited_in_vain_is_told_what_to_ask(fl: Fairlead) -> None:
    job = await fl.enqueue("anything", tenant=TENANT)
    run = await fl.chain("anything", tenant=TENANT)

    with pytest.raises(ResultTimeout, match=f"still queued after 0.01 s.*fairlead jobs why {job.id}$"):
        await job.result(timeout=0.01)
    with pytest.raises(ResultTimeout, match=f"is still running after 0 s.*fairlead workflows run {run.id}$"):
        await run.result(0)
