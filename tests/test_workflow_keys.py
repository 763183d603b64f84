"""A run that is retried brings the job back that waited for it: with its dedupe key, or not at all."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlead import Fairlead, JobStatus
from fairlead.actions import jobs, schedule_firing, workflows
from fairlead.actions.firing import OVERLAP
from fairlead.actions.jobs import JobFilter
from fairlead.db.tx import Tx
from fairlead.errors import JobNotRetryable
from fairlead.model.trigger import Firing, FiringOutcome, Trigger
from fairlead.model.workflow.run import RunStatus
from fairlead.store import firings
from fairlead.store import triggers as stored_triggers
from tests import given
from tests.given import TENANT, TESTER
from tests.runs import ANY, claimed, published

RUN = {"workflow": "w"}


async def enqueued(fl: Fairlead) -> Any:
    return await fl.enqueue("ENGINE_RUN", tenant=TENANT, payload=RUN, dedupe_key="one at a time")


async def failed_run(fl: Fairlead) -> UUID:
    """The newest run failed, and so did the job that waited for it."""
    await fl.tick()
    await (await claimed(fl))["a"].fail("no", retryable=False)
    await fl.tick()
    [run, *_] = await fl.database.transact(lambda tx: workflows.list_runs(tx, TESTER))
    assert run.status is RunStatus.FAILED
    return run.id


async def active(fl: Fairlead) -> list[UUID]:
    wanted = JobFilter(definition_key="ENGINE_RUN", status=[JobStatus.QUEUED, JobStatus.RUNNING])
    page = await fl.database.transact(lambda tx: jobs.list_jobs(tx, TESTER, wanted))
    return [job.id for job in page.items]


async def fire(fl: Fairlead, trigger: Trigger) -> list[Firing]:
    """An instant of the schedule came a second ago; all its firings, newest first."""

    async def come(tx: Tx) -> list[Firing]:
        second_ago = await stored_triggers.read_clock(tx) - timedelta(seconds=1)
        await given.set_trigger(tx, trigger.id, start_at=second_ago, next_fire_at=second_ago)
        await schedule_firing.fire_due(tx, given.catalog(), limit=10, grace_seconds=60)
        return await firings.list_page(tx, trigger.id, outcome=None, before=None, limit=10)

    return await fl.database.transact(come)


@pytest.fixture
async def flow(fl: Fairlead) -> Fairlead:
    fl.workflow("w").step("a", ANY)
    await published(fl)
    return fl


async def test_a_retried_run_takes_the_dedupe_key_of_its_job_again(flow: Fairlead) -> None:
    job = await enqueued(flow)
    await flow.retry_run(await failed_run(flow))

    again = await enqueued(flow)

    assert (again.id, again.deduplicated) == (job.id, True)
    assert await active(flow) == [job.id]


async def test_a_run_is_not_retried_while_another_job_has_the_dedupe_key_of_its_job(flow: Fairlead) -> None:
    first = await enqueued(flow)
    run_id = await failed_run(flow)
    second = await enqueued(flow)

    with pytest.raises(JobNotRetryable, match=str(second.id)):
        await flow.retry_run(run_id)

    assert await active(flow) == [second.id]
    assert (await flow.read(first.id)).status is JobStatus.FAILED
    assert (await flow.run_standing(run_id)).status is RunStatus.FAILED


async def test_a_schedule_that_skips_overlaps_sees_a_retried_run(flow: Fairlead) -> None:
    rule: dict[str, Any] = {
        "definition_key": "ENGINE_RUN",
        "payload_template": RUN,
        "every_seconds": 3600,
        "overlap": "skip",
    }
    trigger = await flow.database.transact(lambda tx: given.trigger(tx, **rule))
    await fire(flow, trigger)
    await flow.retry_run(await failed_run(flow))

    [last, *_] = await fire(flow, trigger)

    assert (last.outcome, last.reason) == (FiringOutcome.SKIPPED, OVERLAP)
    assert len(await active(flow)) == 1
