"""A job is condemned only by what it does itself: not by another tenant's crashes, and not by outages.

`make test` does it for some seconds and with one outage, `make chaos` for a minute with forty jobs, and with three.
"""

import asyncio
import os
import threading
import time
from pathlib import Path
from uuid import UUID

import pytest

from fairlead.db import migrate
from fairlead.db.embedded import EmbeddedPostgres
from tests.acceptance.fleet import LEASE, Fleet
from tests.given import OTHER, TENANT
from tests.processes import until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

POISON_SECONDS = float(os.environ.get("BLAME_SECONDS", "2"))
HARMLESS = int(os.environ.get("BLAME_JOBS", "6"))
BETWEEN_POISON_SECONDS = 2.5
OUTAGES = int(os.environ.get("BLAME_OUTAGES", "1"))
IS_LONG = OUTAGES > 1
LONGEST_RUN = 2 * SECONDS + 30 * POISON_SECONDS


@pytest.mark.timeout(2 * LONGEST_RUN)
def test_one_tenants_crashes_cost_another_nothing(database_url: str, tmp_path: Path) -> None:
    # one process has no room for all of the harmless, so that the poison meets some in either
    room = str(HARMLESS * 2 // 3)
    flags = ("--concurrency", room, "--processes", "2")
    with Fleet(database_url, tmp_path) as fleet, fleet.worker(*flags, FAIRLEAD_LEASE_SECONDS="10"):
        payload = {"folder": str(fleet.folder)}
        harmless = [fleet.fl.enqueue("held", tenant=OTHER, payload=payload).id for _ in range(HARMLESS)]
        for job in harmless:
            fleet.began(job)
        poison = _poison(fleet)
        until(lambda: "lost" in _attempts(fleet, poison[0]), "a crash", seconds=LONGEST_RUN)

        until(
            lambda: all([_end(fleet, job) for job in harmless]),  # noqa: C419 - each of them
            "the harmless to succeed",
            seconds=LONGEST_RUN,
        )
        assert sum("lost" in _attempts(fleet, job) for job in harmless) >= 1
        assert set(_standing(fleet, harmless)) == {("succeeded", 0)}
        if IS_LONG:
            condemned = {("dead_letter", 3)}
            until(lambda: set(_standing(fleet, poison)) == condemned, "the poison", seconds=LONGEST_RUN)
        else:
            until(lambda: _standing(fleet, poison)[0][1] > 0, "the poison to be charged", seconds=LONGEST_RUN)
        fleet.is_consistent()


def _poison(fleet: Fleet) -> list[UUID]:
    """Jobs that end their process, one every few seconds."""
    poison, pause = [], threading.Event()
    deadline = time.monotonic() + POISON_SECONDS
    while time.monotonic() < deadline:
        poison.append(fleet.fl.enqueue("poison", tenant=TENANT).id)
        pause.wait(BETWEEN_POISON_SECONDS)
    return poison


def _standing(fleet: Fleet, jobs: list[UUID]) -> list[tuple[str, int]]:
    """Each job's status, and the losses that it was charged with."""
    query = "select status::text, lost_count from fairlead.jobs where id = any(%s)"
    return [(status, charged) for status, charged in fleet.rows(query, jobs)]


@pytest.mark.timeout(2 * LONGEST_RUN)
def test_outages_that_last_longer_than_a_lease_cost_a_healthy_job_nothing(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "data")
    url = server.start()
    try:
        asyncio.run(migrate.up(url, "fairlead"))
        with Fleet(url, tmp_path) as fleet, fleet.worker(), fleet.worker():
            fleet.fl.add_tenant(TENANT)
            jobs = [fleet.hold() for _ in range(5)]
            for outage in range(1, OUTAGES + 1):
                for job in jobs:
                    until(lambda job=job, n=outage: _runs(fleet, job, n), f"{job} to run")  # type: ignore[misc]
                    fleet.began(job, len(_attempts(fleet, job)))
                server.stop()
                away_until = time.monotonic() + LEASE + 0.5
                until(lambda: _nothing_runs(fleet), "the workers to stop what they run")
                until(lambda at=away_until: time.monotonic() > at, "the leases to end")  # type: ignore[misc]
                server.start()
            for job in jobs:
                until(lambda job=job: _end(fleet, job), f"{job} to succeed")  # type: ignore[misc]
            assert set(_standing(fleet, jobs)) == {("succeeded", 0)}
            ended = {status for job in jobs for status in _attempts(fleet, job)}
            # of a worker that comes back late the watchdog takes them, and charges nobody for that either
            assert ended <= {"released", "lost", "succeeded"}
        with Fleet(url, tmp_path) as fresh:  # the connections of the other one were cut
            fresh.is_consistent()
    finally:
        server.stop()


def _runs(fleet: Fleet, job: UUID, attempt_no: int) -> bool:
    """Whether a job runs, for at least the so many-th time."""
    attempts = _attempts(fleet, job)
    return len(attempts) >= attempt_no and attempts[-1] == "running"


def _nothing_runs(fleet: Fleet) -> bool:
    """Whether each attempt that began has ended in its worker, whatever became of it."""
    begun, ended = ({path.stem for path in fleet.folder.glob(f"*.{what}")} for what in ("begun", "ended"))
    return begun == ended


def _attempts(fleet: Fleet, job: UUID) -> list[str]:
    return list(fleet.stands(job)[1])


def _end(fleet: Fleet, job: UUID) -> bool:
    status, attempts, _ = fleet.stands(job)
    fleet.let_go(job, len(attempts))
    return bool(status == "succeeded")
