"""`fairlead workers drain` and `resume`, with a real worker process."""

import signal
from pathlib import Path
from typing import Any

from fairlead import Settings, sync
from fairlead.model.job import JobStatus
from tests.cli.test_commands import Shell
from tests.given import TENANT
from tests.processes import FAIRLEAD, started, until
from tests.waiting import SECONDS

APP = """
import pathlib, time
from fairlead import Fairlead

fl = Fairlead()

@fl.job
def wait_for(path: str) -> str:
    while not pathlib.Path(path).exists():
        time.sleep(0.02)
    return "ended"
"""


def find_worker(shell: Shell) -> dict[str, Any] | None:
    found = shell.json("workers")["items"]
    return found[0] if found else None


def test_a_worker_that_drains_finishes_its_jobs_and_claims_no_more(
    shell: Shell, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    # a third of a lease is the time until it reads the request
    env = {"FAIRLEAD_DATABASE_URL": str(settings.database_url), "FAIRLEAD_LEASE_SECONDS": "30"}
    with (
        started([FAIRLEAD, "worker", "app:fl", "--concurrency", "4"], env=env, cwd=tmp_path) as process,
        sync.Fairlead(settings=settings) as fl,
    ):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving wait_for")
        flag = tmp_path / "go"
        running = fl.enqueue("wait_for", tenant=TENANT, payload={"path": str(flag)})
        until(lambda: fl.read(running.id).status is JobStatus.RUNNING, "the job runs")
        # it is listed by the connection of its heartbeat, perhaps after its first claim
        worker = until(lambda: find_worker(shell), "the worker to be listed")
        drained = shell("workers", "drain", worker["worker_id"])
        assert drained.exit_code == 0
        assert "claims no more jobs" in drained.output
        wait_until_drains(process)
        later = fl.enqueue("wait_for", tenant=TENANT, payload={"path": str(flag)})
        flag.touch()

        assert running.result(timeout=SECONDS) == "ended"
        [reason] = [one["code"] for one in shell.json("jobs", "why", str(later.id))["reasons"]]
        assert reason == "no_worker"
        assert "draining" in shell("workers").output
        assert fl.read(later.id).status is JobStatus.QUEUED
        shell("workers", "resume", worker["worker_id"])
        assert later.result(timeout=SECONDS) == "ended"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)

    assert process.returncode == 0
    actions = [one["action"] for one in shell.json("audit")["items"]]
    assert [one for one in actions if one.startswith("worker_")] == ["worker_resumed", "worker_drained"]


def wait_until_drains(process: Any) -> None:
    """Read the worker's log until it says that it drains."""
    for line in process.stdout:
        if "worker_draining" in line:
            return
    raise AssertionError("the worker did not drain")


def test_an_unknown_worker_is_refused(shell: Shell) -> None:
    found = shell("workers", "drain", "nobody:1:a")

    assert found.exit_code == 1
    assert "worker_unknown" in found.output
