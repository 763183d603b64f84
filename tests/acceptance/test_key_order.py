"""Two workers run the jobs of one key in strict order, one after the other, without standing still."""

from pathlib import Path
from typing import Any

import pytest

from fairlead import NewJob
from tests.acceptance import keys_under_test
from tests.acceptance.fleet import Fleet
from tests.given import TENANT
from tests.processes import until

pytestmark = pytest.mark.thorough

JOBS = 200
# The whole takes at most this many times what its attempts take together. The database's clock measures both, so a busy
# machine stretches both: 1.2 to 1.4 times, alone and beside twelve busy processes on two cores.
FACTOR = 2


def test_a_key_in_strict_order_does_not_stand_still(database_url: str, tmp_path: Path) -> None:
    """Nor where jobs in between are canceled, or expire."""
    with (
        Fleet(database_url, tmp_path, keys_under_test) as fleet,
        fleet.worker("--concurrency", "5"),
        fleet.worker("--concurrency", "5"),
    ):
        jobs = fleet.fl.enqueue_many([_job(n, expires=n % 10 == 3) for n in range(JOBS)])
        for job in jobs[7::10]:
            fleet.fl.cancel(job.id)
        until(lambda: not {"queued", "running"} & fleet.tally().keys(), "all jobs to end")

        assert set(fleet.tally()) <= {"succeeded", "canceled"}
        assert fleet.tally()["succeeded"] >= JOBS * 8 / 10
        ran = fleet.rows(
            "select (j.payload ->> 'n')::int from fairlead.attempts a join fairlead.jobs j on j.id = a.job_id "
            "where a.status = 'succeeded' order by a.started_at"
        )
        assert ran == sorted(ran)
        assert fleet.rows(
            "select max(finished_at) - min(started_at) < %s * sum(finished_at - started_at) "
            "from fairlead.attempts",
            FACTOR,
        ) == [(True,)]
        fleet.is_consistent()


def _job(n: int, *, expires: bool) -> NewJob:
    options: dict[str, Any] = {"expires_in": 0.5} if expires else {}
    return NewJob(definition="in_order", tenant=TENANT, payload={"customer": 1, "n": n}, **options)
