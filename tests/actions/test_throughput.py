"""Throughput: the ends of attempts, whatever becomes of the jobs later."""

from fairlead.actions import bulk_jobs, jobs, stats
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus
from fairlead.store import counts
from tests import given


async def test_a_retry_does_not_undo_a_failure(tx: Tx) -> None:
    one, other = [await given.ended_job(tx, "dead_letter") for _ in range(2)]

    await jobs.retry(tx, given.TESTER, given.catalog(), one)
    await bulk_jobs.retry_chosen(tx, given.TESTER, [other], told={})

    steps = await stats.get_throughput(tx, given.TESTER, seconds=3600, step=60)
    assert sum(step.failed for step in steps) == 2
    # the levels follow, folded or not
    for _ in range(2):
        found = (await stats.get_overview(tx, given.TESTER, rows=1)).counts.by_status
        assert (found[JobStatus.DEAD_LETTER], found[JobStatus.QUEUED]) == (0, 2)
        await counts.fold_history(tx)
