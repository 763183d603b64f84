"""Why a bulk action leaves a job as it is."""

from fairlead.actions import bulk_jobs
from fairlead.actions.jobs import JobFilter
from fairlead.db.database import Database
from tests import given


async def test_a_job_that_is_being_changed_is_skipped_as_busy(db: Database) -> None:
    async with db.transaction() as tx:
        dead = await given.ended_job(tx, "dead_letter")
        await given.queued_job(tx)

    async with db.transaction() as other, db.transaction() as tx:
        await given.hold(other, "job", dead)
        await given.hold(other, "place")
        retried = await bulk_jobs.retry_chosen(tx, given.TESTER, [dead], told={})
        canceled = await bulk_jobs.cancel(tx, given.TESTER, JobFilter(definition_key="greet"))

    assert (retried.count, retried.skipped, retried.reasons) == (0, 1, {"busy": 1})
    assert (canceled.count, canceled.skipped, canceled.reasons) == (0, 1, {"busy": 1})
