"""`fairlead worker --max-jobs` and `--max-rss`: processes are replaced without a gap, and drain."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead import Settings, sync
from fairlead.model.job import JobStatus
from fairlead.store.workers import RecyclingState
from tests.cli.test_commands import Shell
from tests.given import TENANT
from tests.processes import FAIRLEAD, free_port, run, started, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

APP = """
import os, pathlib, time
from fairlead import BatchJob, Fairlead

fl = Fairlead()
kept = []

@fl.job(batch=3, batch_wait=60)
async def count(jobs: list[BatchJob]) -> list:
    return [[os.getpid(), len(jobs)]] * len(jobs)

@fl.job
async def tell() -> int:
    return os.getpid()

@fl.job
def wait_for(path: str) -> int:
    while not pathlib.Path(path).exists():
        time.sleep(0.02)
    return os.getpid()

@fl.job
async def keep(megabytes: int) -> int:
    kept.append(bytearray(os.urandom(1024) * 1024 * megabytes))
    return os.getpid()
"""


class Recycled:
    """A worker that is recycled, and what it printed."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def text(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str, count: int = 1) -> None:
        until(lambda: len(re.findall(pattern, self.text)) >= count, f"{count} times {pattern!r} in the log")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=SECONDS)


@contextmanager
def recycled(settings: Settings, folder: Path, *options: str, **env: str) -> Iterator[Recycled]:
    (folder / "app.py").write_text(APP)
    log = folder / "log.txt"
    given = {"FAIRLEAD_DATABASE_URL": str(settings.database_url), **env}
    with (
        log.open("w") as out,
        started([FAIRLEAD, "worker", "app:fl", *options], env=given, cwd=folder, stdout=out) as process,
    ):
        worker = Recycled(process, log)
        worker.wait_for("serving count, keep, tell, wait_for; Ctrl-C stops\n")
        yield worker


def run_job(fl: sync.Fairlead, key: str = "tell", **payload: Any) -> Any:
    return fl.enqueue(key, tenant=TENANT, payload=payload).result(timeout=SECONDS)


def test_a_process_is_replaced_after_its_jobs_and_its_running_job_ends_there(
    settings: Settings, tmp_path: Path
) -> None:
    flag = tmp_path / "go"
    with (
        recycled(settings, tmp_path, "--max-jobs", "3", FAIRLEAD_DRAIN_SECONDS="100") as worker,
        sync.Fairlead(settings=settings) as fl,
    ):
        slow = fl.enqueue("wait_for", tenant=TENANT, payload={"path": str(flag)})
        until(lambda: fl.read(slow.id).status is JobStatus.RUNNING, "the slow job runs")
        first = {run_job(fl) for _ in range(3)}
        worker.wait_for("is replaced by")
        # the old process drains, and the new one has claimed meanwhile
        worker.wait_for("stopping: 1 job is running")
        second = run_job(fl)
        assert fl.read(slow.id).status is JobStatus.RUNNING
        flag.touch()
        slow_pid = slow.result(timeout=SECONDS)
        worker.wait_for("stopped\n")
        attempts = fl.read(slow.id).attempt_count
        assert worker.stop() == 0

    assert len(first) == 1
    assert first == {slow_pid}
    assert second not in first
    assert second != worker.process.pid
    assert attempts == 1
    assert "recycling: 3 jobs have ended; --max-jobs is 3\n" in worker.text
    assert re.search(r"the worker process (\d+) is replaced by (\d+)\n", worker.text)
    assert "starting another" not in worker.text


def test_jobs_go_on_while_processes_are_replaced_again_and_again(settings: Settings, tmp_path: Path) -> None:
    with (
        recycled(settings, tmp_path, "--processes", "2", "--max-jobs", "10") as worker,
        sync.Fairlead(settings=settings) as fl,
    ):
        pids: set[int] = set()
        while len(re.findall("is replaced by", worker.text)) < 3 or len(pids) < 3:
            enqueued = fl.enqueue_many([{"definition": "tell", "tenant": TENANT, "payload": {}}] * 15)
            pids |= {job.result(timeout=SECONDS) for job in enqueued}
            assert {fl.read(job.id).attempt_count for job in enqueued} == {1}
        assert worker.stop() == 0

    assert "starting another" not in worker.text


def test_a_process_that_uses_too_much_memory_is_replaced_and_the_list_of_workers_says_so(
    shell: Shell, settings: Settings, tmp_path: Path
) -> None:
    flag = tmp_path / "go"
    # a third of a lease is the time until a worker describes itself again
    env = {"FAIRLEAD_LEASE_SECONDS": "30", "FAIRLEAD_DRAIN_SECONDS": "100"}
    with (
        recycled(settings, tmp_path, "--max-rss", "400M", **env) as worker,
        sync.Fairlead(settings=settings) as fl,
    ):
        [alone] = until(lambda: shell.json("workers")["items"], "the worker is listed")
        assert alone["metadata"]["recycling"]["max_rss"] == 400 * 1024 * 1024
        assert 0 < alone["metadata"]["recycling"]["rss"] < 400 * 1024 * 1024
        slow = fl.enqueue("wait_for", tenant=TENANT, payload={"path": str(flag)})
        until(lambda: fl.read(slow.id).status is JobStatus.RUNNING, "the slow job runs")
        old = run_job(fl, "keep", megabytes=400)
        worker.wait_for("is replaced by")
        until(lambda: "being replaced" in shell("workers").output, "the list says that it is being replaced")
        assert run_job(fl) != old
        flag.touch()
        assert slow.result(timeout=SECONDS) == old
        assert worker.stop() == 0

    assert re.search(r"recycling: it uses \d+ MB; --max-rss is 400 MB\n", worker.text)


def test_a_successor_that_cannot_start_leaves_the_old_process_at_work(
    settings: Settings, tmp_path: Path
) -> None:
    with (
        recycled(settings, tmp_path, "--max-jobs", "1") as worker,
        sync.Fairlead(settings=settings) as fl,
    ):
        (tmp_path / "app.py").write_text("import a_module_that_is_not_there")
        old = run_job(fl)
        worker.wait_for("a worker process ended with 1; starting another")
        assert run_job(fl) == old
        (tmp_path / "app.py").write_text(APP)
        worker.wait_for("is replaced by")
        until(lambda: run_job(fl) != old, "the new process claims")
        assert worker.stop() == 0


def test_a_replaced_process_drains_on_when_the_worker_is_stopped(settings: Settings, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    with (
        recycled(settings, tmp_path, "--max-jobs", "1", FAIRLEAD_DRAIN_SECONDS="100") as worker,
        sync.Fairlead(settings=settings) as fl,
    ):
        slow = fl.enqueue("wait_for", tenant=TENANT, payload={"path": str(flag)})
        until(lambda: fl.read(slow.id).status is JobStatus.RUNNING, "the slow job runs")
        run_job(fl)
        worker.wait_for("stopping: 1 job is running")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for("stopping: 0 jobs are running")  # the new process got the signal
        flag.touch()
        assert worker.process.wait(timeout=SECONDS) == 0
        ended = fl.read(slow.id)

    assert (ended.status, ended.attempt_count) == (JobStatus.SUCCEEDED, 1)


def test_sizes_are_checked(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    env = {"FAIRLEAD_DATABASE_URL": str(settings.database_url), "PYTHONPATH": str(tmp_path)}
    for size in ("much", "0", "-5M", "5X"):
        done = run("worker", "app:fl", "--max-rss", size, env=env)
        assert done.returncode == 2
        assert "Use a number of bytes, or one such as 512M or 1.5G." in done.stderr
    assert run("worker", "app:fl", "--max-jobs", "0", env=env).returncode == 2
    with started([FAIRLEAD, "worker", "app:fl", "--max-rss", "1MB"], env=env, cwd=tmp_path) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
    assert re.search(r"--max-rss must be more than \d+ MB", line)


def test_the_words_of_the_list_of_workers() -> None:
    state = RecyclingState(jobs=1200, rss=300 * 1024 * 1024, max_jobs=5000, max_rss=512 * 1024 * 1024)
    assert state.words == "1,200 of 5,000 jobs, 300 of 512 MB"
    assert RecyclingState().words == ""


def test_a_worker_over_http_is_replaced_too_and_runs_batches(
    shell: Shell, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    database = {"FAIRLEAD_DATABASE_URL": str(settings.database_url)}
    port = free_port()
    with (
        started([FAIRLEAD, "serve", "app:fl", "--port", str(port)], env=database, cwd=tmp_path) as server,
        sync.Fairlead(settings=settings) as fl,
    ):
        assert server.stdout is not None
        lines = server.stdout
        until(lambda: f":{port}" in lines.readline(), "the server listens")
        token = shell.json("tokens", "create", "one", "--role", "worker", "--tenant", TENANT)["secret"]
        env = {"FAIRLEAD_DATABASE_URL": "postgresql://127.0.0.1:1/none", "FAIRLEAD_TOKEN": token}
        log = tmp_path / "log.txt"
        argv = [FAIRLEAD, "worker", "app:fl", "--server", f"http://127.0.0.1:{port}", "--max-jobs", "3"]
        with log.open("w") as out, started(argv, env=env, cwd=tmp_path, stdout=out) as process:
            worker = Recycled(process, log)
            worker.wait_for("over HTTP; Ctrl-C stops\n")
            batch = fl.enqueue_many([{"definition": "count", "tenant": TENANT, "payload": {}}] * 3)
            [(old, _)] = {tuple(job.result(timeout=SECONDS)) for job in batch}
            worker.wait_for("is replaced by")
            until(lambda: run_job(fl) != old, "the new process claims")
            assert worker.stop() == 0
