"""The times of steps: how long each waited, and how long it ran."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from fairlead import Fairlead, Flow
from fairlead.settings import Settings
from tests.runs import ANY, begun, claimed, step_of

THEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
_STEP = (
    "update fairlead.workflow_steps set started_at = %s, finished_at = %s where run_id = %s and name = 'only'"
)
_JOB = """
update fairlead.job_records set queued_at = %s, scheduled_for = %s, started_at = %s, finished_at = %s
where workflow_run_id = %s and workflow_step = 0
"""
_ATTEMPT = "update fairlead.job_attempts set started_at = %s, finished_at = %s, duration_ms = %s where attempt_no = %s"


@pytest.fixture
async def fl(settings: Settings) -> AsyncIterator[Fairlead]:
    """Without the check at the end: these tests rewrite times, which the usage contradicts."""
    async with Fairlead(settings=settings, actor="tester") as opened:
        yield opened


def seconds(number: float) -> datetime:
    return THEN + timedelta(seconds=number)


def single() -> Flow:
    flow = Flow("single")
    flow.step("next", ANY, after=[flow.step("only", ANY, max_attempts=3)])
    return flow


async def test_the_wait_of_a_step_is_no_part_of_its_duration(fl: Fairlead) -> None:
    run = await begun(fl, single())
    queued, waiting = await step_of(run, "only"), await step_of(run, "next")
    assert (queued.started_at, queued.duration_ms) == (None, None)
    assert queued.queue_ms is not None
    assert (waiting.queued_at, waiting.queue_ms, waiting.duration_ms) == (None, None, None)
    await (await claimed(fl))["only"].succeed()
    async with fl.database.transaction() as tx:
        await tx.run(_STEP, [THEN, seconds(22.318), run.id])
        await tx.run(_JOB, [THEN, THEN, seconds(22), seconds(22.318), run.id])

    step = await step_of(run, "only")

    assert (step.queued_at, step.started_at, step.finished_at) == (THEN, seconds(22), seconds(22.318))
    assert (step.queue_ms, step.duration_ms) == (22_000, 318)


async def test_the_pauses_between_attempts_are_waits(fl: Fairlead) -> None:
    run = await begun(fl, single())
    await (await claimed(fl))["only"].fail("not yet")
    async with fl.database.transaction() as tx:
        await tx.run(_ATTEMPT, [seconds(2), seconds(5), 3000, 1])
        await tx.run(_STEP, [THEN, None, run.id])

    step = await step_of(run, "only")

    assert (step.started_at, step.duration_ms) == (seconds(2), 3000)
    assert step.queue_ms is not None
    assert step.queue_ms > 3000
