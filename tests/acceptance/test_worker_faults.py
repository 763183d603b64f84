"""Workers and PostgreSQL die at the worst moments: every job still ends once, and as it should."""

import signal
from pathlib import Path
from uuid import UUID

import pytest

from tests.acceptance.fleet import LONG, Fleet, WorkerUnderTest
from tests.acceptance.proxy import Proxy
from tests.processes import until

# Long enough that a machine that stumbles does not decide: the second where a lease has to end by itself.
PATIENT = {"FAIRLEAD_LEASE_SECONDS": str(LONG)}
SHORT = {"FAIRLEAD_LEASE_SECONDS": "20"}


def test_the_jobs_of_a_killed_worker_all_run_again_and_end_once(fleet: Fleet) -> None:
    with fleet.worker("--concurrency", "50", **PATIENT) as first:
        jobs = fleet.enqueue_many(*[("held", {"folder": str(fleet.folder)})] * 50)
        assert {fleet.began(job) for job in jobs} == {first.pid}
        with fleet.worker("--concurrency", "50", **PATIENT) as second:
            first.kill()
            fleet.end_leases()
            assert {fleet.began(job, 2) for job in jobs} == {second.pid}
            for job in jobs:
                fleet.let_go(job, 2)
            until(lambda: fleet.tally() == {"succeeded": 50}, "all of them to succeed")
    assert {str(fleet.stands(job)) for job in jobs} == {"('succeeded', ['lost', 'succeeded'], 0)"}
    ends = fleet.rows("select count(*) from fairlead.audit_entries where action = 'JOB_SUCCEEDED'")
    assert ends == [(50,)]


@pytest.mark.thorough
def test_a_worker_that_was_stopped_past_its_lease_changes_nothing(fleet: Fleet) -> None:
    with fleet.worker(**PATIENT) as sleeper:
        jobs = [fleet.hold(key) for key in ("held", "held_in_a_thread")]
        assert {fleet.began(job) for job in jobs} == {sleeper.pid}
        sleeper.signal(signal.SIGSTOP)
        with fleet.worker(**PATIENT) as other:
            fleet.end_leases()
            assert {fleet.began(job, 2) for job in jobs} == {other.pid}
            for job in jobs:
                fleet.let_go(job, 1)  # so that the sleeper finds it done as it wakes
            sleeper.signal(signal.SIGCONT)
            for job in jobs:
                until(lambda job=job: _refused(sleeper, job), "the sleeper to notice")  # type: ignore[misc]
                assert fleet.stands(job) == ("running", ["lost", "running"], 0)
            for job in jobs:
                fleet.let_go(job, 2)
                assert fleet.output(job) == 2
        assert fleet.output(fleet.enqueue("on_the_loop"))["pid"] == sleeper.pid  # it works on
    for job in jobs:
        assert fleet.stands(job) == ("succeeded", ["lost", "succeeded"], 0)
        assert fleet.fl.read(job).output == 2


def _refused(worker: WorkerUnderTest, job: UUID) -> bool:
    """Whether a worker has said that it gave up this job, or that its write was refused."""
    return any(
        str(job) in line and ("stale_write_refused" in line or "lease_lost" in line)
        for line in worker.said.splitlines()
    )


@pytest.mark.thorough
def test_a_worker_cut_off_from_the_database_stops_in_time_and_its_late_writes_are_refused(
    fleet: Fleet,
) -> None:
    """Its connections hang: nobody closes them, and nothing comes through until much later."""
    with Proxy(fleet.url) as proxy, fleet.worker(**SHORT, FAIRLEAD_DATABASE_URL=proxy.url) as cut_off:
        running = [fleet.hold(key) for key in ("held", "held", "held_in_a_thread", "held_in_a_process")]
        done = [fleet.hold() for _ in range(3)]
        pids = {job: fleet.began(job) for job in running + done}
        # from now on one looks after expired leases: else the database would seem to have been away
        with fleet.worker(**PATIENT) as other:
            proxy.hang()
            for job in done:
                fleet.let_go(job)  # they end while nothing can be written
            [(first_end, last_end)] = fleet.rows(
                "select min(expires_at), max(expires_at) from fairlead.leases"
            )
            stopped_at, pause = _stopped(fleet, running, pids)
            assert stopped_at - pause < first_end.timestamp()
            until(lambda: cut_off.said.count("lease_lost") == len(pids), "it to say so")

            fleet.let_time_pass()
            assert {fleet.began(job, 2) for job in [*running[:-1], *done]} == {other.pid}
            assert fleet.began(running[-1], 2) != pids[running[-1]]
            proxy.go_on()
            until(
                lambda: cut_off.said.count("stale_write_refused") == len(done),
                "its late writes to be refused",
            )
            assert {str(fleet.stands(job)) for job in pids} == {"('running', ['lost', 'running'], 0)"}
            for job in pids:
                fleet.let_go(job, 2)
                assert fleet.output(job) == 2
        assert last_end < fleet.rows("select clock_timestamp()")[0][0]
        assert fleet.output(fleet.enqueue("on_the_loop"))["pid"] == cut_off.pid  # it works on
    assert {str(fleet.stands(job)) for job in pids} == {"('succeeded', ['lost', 'succeeded'], 0)"}
    assert cut_off.said.count("stale_write_refused") == len(done)
    ends = fleet.rows("select count(*) from fairlead.audit_entries where action = 'JOB_SUCCEEDED'")
    assert ends == [(len(pids) + 1,)]


def _stopped(fleet: Fleet, jobs: list[UUID], pids: dict[UUID, int]) -> tuple[float, float]:
    """Wait until these first attempts have stopped: when the last of them did, and for how long the machine let them stand still."""
    *told, isolated = jobs
    until(lambda: not Path(f"/proc/{pids[isolated]}").exists(), "the process to be killed")
    ended = [fleet.folder / f"{job}.1.ended" for job in told]
    until(lambda: all(file.exists() for file in ended), "the functions to be stopped")
    alive = fleet.folder / f"{isolated}.1.alive"
    pause = sum(float(file.read_text()) for file in ended)
    return max(file.stat().st_mtime for file in [alive, *ended]), pause
