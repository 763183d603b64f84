"""The Django backend: its suite under Django's own test runner, and its commands as processes."""

import signal
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from fairlead import sync
from fairlead.actions import system
from tests.processes import environment, run_to_end, started, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

SUITE = Path(__file__).parent / "django_suite"
# Enqueues a task, and waits until a worker has run it.
VISIT = """
import time
from suite.more_tasks import elsewhere
result = elsewhere.enqueue()
end = time.monotonic() + 120
while not result.is_finished and time.monotonic() < end:
    time.sleep(0.05)
    result.refresh()
print(result.status, result.return_value, len(result.worker_ids))
"""


def manage(database_url: str, *arguments: str) -> CompletedProcess[str]:
    """`manage.py …` of the suite, called from another folder."""
    argv = [sys.executable, str(SUITE / "manage.py"), *arguments]
    return run_to_end(argv, env=environment(FAIRLEAD_DATABASE_URL=database_url), cwd=SUITE.parent)


def test_the_backend_does_what_django_expects(database_url: str) -> None:
    # all modules at once: Django makes and migrates a database for each call, which took longer than the tests
    done = manage(database_url, "test", "--noinput", "suite")

    assert (done.returncode, done.stderr.splitlines()[-2][:2]) == (0, "OK"), f"{done.stdout}\n{done.stderr}"


def test_processes_run_the_tasks_of_a_queue(database_url: str) -> None:
    assert manage(database_url, "migrate", "--verbosity", "0").returncode == 0
    argv = ["fairlead_worker", "--queue", "queue_1", "--processes", "2", "--concurrency", "3"]
    env = {"FAIRLEAD_DATABASE_URL": database_url}
    with started([sys.executable, str(SUITE / "manage.py"), *argv], env=env, cwd=SUITE.parent) as worker:
        visit = manage(database_url, "shell", "-v", "0", "-c", VISIT)
        assert (visit.stdout, visit.returncode) == ("SUCCESSFUL elsewhere 1\n", 0), visit.stderr
        with sync.Fairlead(database_url) as fl:
            sizes = until(lambda: read_concurrency(fl, 2), "two workers")
        assert sizes == [3, 3]
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(SECONDS) == 0


def read_concurrency(fl: sync.Fairlead, number: int) -> list[int] | None:
    """How many jobs each worker may run, once there are so many workers."""

    async def read() -> list[int]:
        async with fl.inner.transaction() as tx:
            return [
                one.concurrency
                for one in await system.list_workers(
                    tx, fl.inner.principal, lease_seconds=30, after="", limit=9
                )
            ]

    found = fl.wait(read())
    return found if len(found) == number else None
