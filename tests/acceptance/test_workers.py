"""`fairlead worker` as its users run it: two processes, handlers that break, progress, cancels, and a decent end."""

import asyncio
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.db import migrate
from fairlead.db.embedded import EmbeddedPostgres
from tests.acceptance.fleet import Fleet, WorkerUnderTest
from tests.databases import Databases
from tests.processes import run, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

DOUBLE = ("--processes", "2")
# Where no lease is to be lost, a machine that stumbles must not decide.
LONG = {"FAIRLEAD_LEASE_SECONDS": "3600"}
WATCHED_SECONDS = 6
SLACK = 8  # the slower loops may all come round while we watch


@pytest.fixture(scope="module")
def served(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Fleet, WorkerUnderTest]]:
    """One worker for all tests that only have it run jobs."""
    with databases.lend() as url, Fleet(url, tmp_path_factory.mktemp("served")) as fleet:
        with fleet.worker(**LONG) as worker:
            yield fleet, worker
        fleet.is_consistent()


def test_two_processes_work_side_by_side(fleet: Fleet) -> None:
    with fleet.worker("--concurrency", "1", *DOUBLE, **LONG) as worker:
        jobs = [fleet.hold() for _ in range(2)]
        assert len({fleet.began(job) for job in jobs} | {worker.pid}) == 3
        for job in jobs:
            fleet.let_go(job)
            assert fleet.output(job) == 1
        isolated = fleet.output(fleet.enqueue("in_a_process"))
        assert isolated["pid"] not in fleet.workers()


def test_what_a_handler_raises_or_kills_harms_neither_the_worker_nor_other_jobs(
    served: tuple[Fleet, WorkerUnderTest],
) -> None:
    fleet, worker = served
    beside = [fleet.hold(key) for key in ("held", "held_in_a_thread", "held_in_a_process")]
    pids = [fleet.began(job) for job in beside]
    for key in (
        "exits_on_the_loop",
        "exits_in_a_thread",
        "dies_in_a_process",
        "raises_what_is_no_exception",
    ):
        assert fleet.reaches(fleet.enqueue(key), "dead_letter") == ("dead_letter", ["failed"], 1), key
    assert worker.process.poll() is None
    assert pids[:2] == [worker.pid] * 2
    for job in beside:
        fleet.let_go(job)
        assert fleet.reaches(job, "succeeded") == ("succeeded", ["succeeded"], 0)


def test_a_worker_told_to_stop_lets_jobs_end_and_told_twice_stops_at_once(fleet: Fleet) -> None:
    """With one process: test_commands.py."""
    with fleet.worker(*DOUBLE, **LONG, FAIRLEAD_DRAIN_SECONDS="3600") as worker:
        until(lambda: worker.said.count("Ctrl-C stops") == 2, "all processes to be at work")
        quick, *slow = (fleet.hold() for _ in range(5))
        for job in (quick, *slow):
            fleet.began(job)
        worker.signal(signal.SIGTERM)
        until(lambda: worker.said.count("stopping: ") == 2, "the first signal to be seen")
        too_late = fleet.hold()
        fleet.let_go(quick)
        assert fleet.reaches(quick, "succeeded") == ("succeeded", ["succeeded"], 0)
        assert worker.process.poll() is None
        worker.signal(signal.SIGTERM)
        assert worker.exit_code(seconds=SECONDS) == 0
    assert [fleet.stands(job) for job in slow] == [("queued", ["released"], 0)] * 4
    assert fleet.stands(too_late) == ("queued", [], 0)
    assert fleet.workers() == set()


def test_a_worker_told_to_stop_gives_back_what_does_not_end_in_time(fleet: Fleet) -> None:
    with fleet.worker(*DOUBLE, **LONG, FAIRLEAD_DRAIN_SECONDS="0.5") as worker:
        until(lambda: worker.said.count("Ctrl-C stops") == 2, "all processes to be at work")
        jobs = fleet.hold(), fleet.hold("held_in_a_process")
        _, isolated = [fleet.began(job) for job in jobs]
        worker.signal(signal.SIGTERM)
        assert worker.exit_code(seconds=SECONDS) == 0
    assert [fleet.stands(job) for job in jobs] == [("queued", ["released"], 0)] * 2
    assert not Path(f"/proc/{isolated}").exists()
    assert fleet.workers() == set()


@pytest.mark.parametrize("drain", ["3600", "0.5"], ids=["in time", "too late"])
def test_workers_whose_supervisor_was_killed_drain_and_end(fleet: Fleet, drain: str) -> None:
    with fleet.worker("--concurrency", "2", *DOUBLE, **LONG, FAIRLEAD_DRAIN_SECONDS=drain) as supervisor:
        jobs = [fleet.hold() for _ in range(4)]
        pids = {fleet.began(job) for job in jobs}
        assert len(pids) == 2
        supervisor.kill()
        until(lambda: supervisor.said.count("the parent process has died") == 2, "both workers to notice")
        too_late = fleet.hold()
        if drain == "3600":
            for job in jobs:
                fleet.let_go(job)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the workers to end")
    ended = ("succeeded", ["succeeded"], 0) if drain == "3600" else ("queued", ["released"], 0)
    assert [fleet.stands(job) for job in jobs] == [ended] * 4
    assert fleet.stands(too_late) == ("queued", [], 0)
    assert fleet.workers() == set()


def test_progress_is_seen_while_the_job_runs(served: tuple[Fleet, WorkerUnderTest]) -> None:
    fleet, _ = served
    job = fleet.enqueue("reports", folder=str(fleet.folder))
    half = {"percent": 50.0, "message": "halfway there"}
    until(lambda: fleet.fl.read(job).progress == half, "the progress to be written")
    shown = run("jobs", "show", str(job), "--json", env={"FAIRLEAD_DATABASE_URL": fleet.url})
    seen = json.loads(shown.stdout)
    assert (seen["status"], seen["progress"]) == ("running", half)
    people = run("jobs", "show", str(job), env={"FAIRLEAD_DATABASE_URL": fleet.url})
    assert "halfway there" in people.stdout
    fleet.let_go(job)
    assert fleet.output(job) == 1


def test_a_running_job_that_is_canceled_stops(fleet: Fleet) -> None:
    """Its owner hears of it by notification: the lease is far too long to wait for the next heartbeat."""
    keys = ("held", "held_in_a_thread", "held_in_a_process_that_listens")
    with fleet.worker(**LONG) as worker:
        jobs = {key: (fleet.hold(key), fleet.hold(key)) for key in keys}
        for key, (job, beside) in jobs.items():
            pid = fleet.began(job)
            fleet.began(beside)
            fleet.fl.cancel(job)
            assert fleet.reaches(job, "canceled") == ("canceled", ["canceled"], 0), key
            assert (fleet.folder / f"{job}.1.ended").exists()
            if key == "held_in_a_process_that_listens":
                assert pid != worker.pid
                assert not Path(f"/proc/{pid}").exists()
        for _, beside in jobs.values():
            fleet.let_go(beside)
            assert fleet.output(beside) == 1


def test_an_idle_worker_asks_the_database_little(tmp_path: Path) -> None:
    """PostgreSQL's own log tells every statement of a worker with default settings and nothing to do."""
    defaults = {
        f"FAIRLEAD_{name}_SECONDS": seconds
        for name, seconds in (("LEASE", "30"), ("SWEEP", "10"), ("POLL", "1"))
    }
    with EmbeddedPostgres(tmp_path / "data") as server:
        asyncio.run(migrate.up(server.url, "fairlead"))
        with Fleet(server.url, tmp_path) as fleet:
            fleet.rows("alter database fairlead set log_statement = 'all'")
            with fleet.worker(**defaults):
                log = Statements(tmp_path / "data" / "postgres.log")
                until(lambda: len(log.of("fairlead.claim")) > 2, "the worker to settle down")
                due = "select name from fairlead.duties where due_at <= clock_timestamp()"
                until(lambda: not fleet.rows(due), "the first round of each duty")
                # on a busy machine the worker may still be starting: then it is watched again
                until(log.are_few, "the worker to ask little")


class Statements:
    """The statements in a log of PostgreSQL, but for the brackets of transactions."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def of(self, text: str = "") -> list[str]:
        said = re.findall(r"LOG:  (?:statement|execute [^:]+): (.*(?:\n\t.*)*)", self._log.read_text())
        return [one for one in said if text in one and not one.startswith(("BEGIN", "COMMIT"))]

    def are_few(self) -> bool:
        """Watch the log for some seconds: whether the worker asks, and no more than it may in the time that this took."""
        begun, before = time.monotonic(), len(self.of())
        time.sleep(WATCHED_SECONDS)
        number, seconds = len(self.of()) - before, time.monotonic() - begun
        return WATCHED_SECONDS / 2 <= number <= seconds * 2 + SLACK
