"""A worker whose event loop is blocked keeps no job from the workers beside it."""

from pathlib import Path

import pytest

from tests.acceptance.fleet import Fleet
from tests.processes import until

pytestmark = pytest.mark.thorough

# on either side of the job that blocks: enough for the worker to claim ahead
JOBS = 1500


def test_a_blocked_worker_gives_back_what_it_has_not_started(database_url: str, tmp_path: Path) -> None:
    with Fleet(database_url, tmp_path) as fleet:
        brief = [("echo", {"n": n}) for n in range(JOBS)]
        jobs = fleet.enqueue_many(*brief, ("blocks_the_loop", {"folder": str(tmp_path)}), *brief)
        blocking = jobs[JOBS]
        with fleet.worker("--concurrency", "1") as blocked:
            fleet.began(blocking)
            with fleet.worker("--concurrency", "1"):
                # also those that had ended when the loop was blocked, and were not written
                until(
                    lambda: fleet.tally() == {"succeeded": 2 * JOBS, "running": 1},
                    "all other jobs to be done",
                )
                fleet.let_go(blocking)
                fleet.reaches(blocking, "succeeded")
            assert "lease_lost" not in blocked.said
        assert (
            fleet.rows("select status from fairlead.attempts where status not in ('succeeded', 'released')")
            == []
        )
        assert (
            fleet.rows("select id from fairlead.jobs where lost_count + suspected + failure_count > 0") == []
        )
        assert fleet.rows("select count(*) from fairlead.attempts where status = 'succeeded'") == [
            (2 * JOBS + 1,)
        ]
        fleet.is_consistent()
