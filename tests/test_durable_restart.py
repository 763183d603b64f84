"""A durable function that is retried from a step: that step and all that came after it run again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import Context, Fairlead, JobStatus, Settings
from fairlead.errors import JobNotRetryable, StepUnknown
from fairlead.model.durable import Place, comes_after
from tests import given
from tests.cli.test_commands import Shell
from tests.given import TENANT


class Stage:
    """An application whose function fails at its end until it may succeed, and what ran."""

    def __init__(self, settings: Settings) -> None:
        self.ran: list[str] = []
        self.fails = True
        self.fl = fl = Fairlead(settings=settings, actor="tester")

        def note(name: str) -> str:
            self.ran.append(name)
            return name

        @fl.job
        async def child(n: int) -> int:
            self.ran.append(f"child {n}")
            return n

        @fl.job(durable=True, max_attempts=1)
        async def order(ctx: Context) -> Any:
            async def branch(name: str) -> None:
                await ctx.step("begin", note, f"{name} begins")
                await ctx.step(f"end {name}", note, f"{name} ends")

            await ctx.step("charge", note, "charge")
            await ctx.gather(branch("left"), branch("right"))
            signal = await ctx.wait_for_signal("packed")
            called = await ctx.call(child, {"n": 1})
            await ctx.step("mail", note, "mail")
            if self.fails:
                raise ValueError("broken")
            return [signal.data, called]

    async def start(self) -> str:
        """The id of a job that has failed."""
        job = await self.fl.enqueue("order", tenant=TENANT)
        await self.fl.signal(job.id, "packed", 3)
        await self.run(str(job.id), JobStatus.DEAD_LETTER)
        self.ran.clear()
        self.fails = False
        return str(job.id)

    async def run(self, job_id: str, status: JobStatus = JobStatus.SUCCEEDED) -> Any:
        """Run what is due until the job has this status. Its output."""
        async with asyncio.timeout(60):
            while (job := await self.fl.read(job_id)).status is not status:
                await self.fl.tick()
        return job.output


@pytest.fixture
async def stage(settings: Settings) -> AsyncIterator[Stage]:
    stage = Stage(settings)
    await stage.fl.open()
    yield stage
    await given.no_inconsistencies(stage.fl.database)
    await stage.fl.close()


FROM_PACKED = ["child 1", "mail"]


@pytest.mark.parametrize(
    ("from_step", "ran"),
    [
        (None, []),
        ("mail", ["mail"]),
        ("packed", FROM_PACKED),
        (2, FROM_PACKED),
        ("2", FROM_PACKED),
        ("end left", ["left ends", *FROM_PACKED]),
        ("/1.0.1:1", ["right begins", "right ends", *FROM_PACKED]),
        ("charge", ["charge", "left begins", "right begins", "left ends", "right ends", *FROM_PACKED]),
    ],
)
async def test_a_step_and_what_came_after_it_run_again(stage: Stage, from_step: Any, ran: list[str]) -> None:
    job_id = await stage.start()
    await stage.fl.retry(job_id, from_step=from_step)
    # the signal is received again, and the child is a new one
    assert await stage.run(job_id) == [3, 1]
    assert sorted(stage.ran) == sorted(ran)


async def test_each_retry_from_a_step_calls_a_new_child(stage: Stage) -> None:
    job_id = await stage.start()
    stage.fails = True
    for _ in range(2):
        await stage.fl.retry(job_id, from_step="child")
        await stage.run(job_id, JobStatus.DEAD_LETTER)
    assert stage.ran == [*FROM_PACKED, *FROM_PACKED]
    assert [step.place for step in await stage.fl.steps(job_id)][:4] == ["1", "2", "3", "4"]


async def test_unknown_steps_are_refused_and_nothing_changes(stage: Stage, database_url: str) -> None:
    job_id = await stage.start()
    before = await stage.fl.steps(job_id)
    for wrong, message in (
        ("begin", "2 steps with the name 'begin': give the place of one instead, such as /1.0.0:1, /1.0.1:1"),
        ("nothing", "no step 'nothing'"),
        ("9", "no step '9'"),
        (0, "no step '0'"),
    ):
        with pytest.raises(StepUnknown, match=message):
            await stage.fl.retry(job_id, from_step=wrong)
    assert await stage.fl.steps(job_id) == before
    shell = Shell(database_url)
    assert await asyncio.to_thread(shell.refused, "jobs", "retry", "--from-step", "mail") == "invalid_input"
    await asyncio.to_thread(shell, "jobs", "retry", job_id, "--from-step", "mail")
    await stage.run(job_id)
    assert stage.ran == ["mail"]
    with pytest.raises(JobNotRetryable):
        await stage.fl.retry(job_id, from_step="mail")


@pytest.mark.parametrize(
    ("place", "start", "after"),
    [
        (("", 3), ("", 3), True),
        (("", 2), ("", 3), False),
        (("/3.0.0", 0), ("", 3), False),
        (("/4.0.0", 0), ("", 3), True),
        (("/3.0.0", 5), ("/3.0.0", 5), True),
        (("/3.0.0", 4), ("/3.0.0", 5), False),
        (("/3.0.1", 9), ("/3.0.0", 5), False),
        (("/3.1.1", 0), ("/3.0.0", 5), True),
        (("", 3), ("/3.0.0", 5), True),
        (("", 2), ("/3.0.0", 5), False),
        (("/3.0.0/6.0.1", 0), ("/3.0.0", 5), True),
        (("/3.0.0/5.0.1", 0), ("/3.0.0", 5), False),
        (("/10.0.0", 0), ("/9.0.0", 0), True),
    ],
)
def test_what_comes_after_a_call(place: tuple[str, int], start: tuple[str, int], after: bool) -> None:  # noqa: FBT001
    assert comes_after(Place(*place), Place(*start)) is after
