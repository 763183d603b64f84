"""Rolling upgrades: processes of an earlier version beside a database that a later one has migrated."""

import shutil
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest

from fairlead import Settings
from fairlead.cli.exits import OUTDATED
from fairlead.sync import Fairlead
from tests.acceptance.fleet import LONG, QUICK, ROOT, WorkerUnderTest, running
from tests.given import TENANT
from tests.processes import FAIRLEAD, environment, free_port, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

APP = """
import asyncio
from pathlib import Path

from fairlead import Fairlead

fl = Fairlead(name="upgrade")


@fl.job(key="upgrade.wait", max_attempts=1)
async def wait(go: str) -> None:
    while not Path(go).exists():
        await asyncio.sleep(0.02)
"""
ADDITIVE = """-- A column that earlier versions do not use.
-- needs: 0001
alter table fairlead.job_workers add column note text;
"""
BREAKING = """-- A column that earlier versions would have to fill.
alter table fairlead.job_workers add column note text;
"""
WORKER = [FAIRLEAD, "worker", "upgrade_app:fl"]
JOBS = 20
CONCURRENCY = 2
# After a third of it, processes look whether the database was migrated; a machine may stand still for the rest.
LEASE = 30.0
# What a process that does not fit tells people to do.
ADVICE = ("Upgrade Fairlead", "Use the Fairlead version", "fairlead migrate up")


class LaterVersion:
    """A copy of this tree with one more migration."""

    def __init__(self, folder: Path, migration: str) -> None:
        self._source = folder / "later"
        shutil.copytree(
            ROOT / "src" / "fairlead",
            self._source / "fairlead",
        )
        (self._source / "fairlead/db/migrations/0002_more.sql").write_text(migration)

    def command(self, *argv: str) -> list[str]:
        # not the preloaded Python of this test process, which has imported this tree
        return ["/usr/bin/env", f"PYTHONPATH={self._source}", sys.executable, "-m", "fairlead.cli", *argv]


class Site:
    """A database that this version has migrated, an application, and jobs of it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.env = {**QUICK, "FAIRLEAD_LEASE_SECONDS": str(LEASE), "FAIRLEAD_DRAIN_SECONDS": str(LONG)}
        self.env["FAIRLEAD_DATABASE_URL"] = url
        self._url = url
        # jobs run until it exists
        self.go = folder / "go"
        (folder / "upgrade_app.py").write_text(APP)

    def migrate(self, later: LaterVersion) -> None:
        done = subprocess.run(
            later.command("migrate", "up"),
            env=environment(**self.env),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def enqueue(self, number: int) -> None:
        with Fairlead(settings=Settings(database_url=self._url)) as fl:
            fl.enqueue_many(
                [
                    {"definition": "upgrade.wait", "tenant": TENANT, "payload": {"go": str(self.go)}}
                    for _ in range(number)
                ]
            )

    def count(self, status: str) -> int:
        with psycopg.connect(self._url) as connection:
            [(number,)] = connection.execute(
                "select count(*) from fairlead.jobs where status::text = %s", [status]
            ).fetchall()
            return int(number)

    def attempts(self) -> int:
        with psycopg.connect(self._url) as connection:
            [(number,)] = connection.execute("select count(*) from fairlead.attempts").fetchall()
            return int(number)

    def running(
        self, argv: list[str], *, says: str = "serving", **env: str
    ) -> AbstractContextManager[WorkerUnderTest]:
        return running(argv, self.env | env, says=says, cwd=self.folder)


def last_words(process: WorkerUnderTest) -> str:
    """All that a process has said when it has ended by itself, as one line."""
    process.exit_code(seconds=SECONDS)
    process.end()
    return " ".join(process.said.split())


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


def test_an_additive_migration_lets_earlier_workers_go_on(site: Site, tmp_path: Path) -> None:
    later = LaterVersion(tmp_path, ADDITIVE)
    with site.running(WORKER) as worker:
        site.enqueue(JOBS)
        until(lambda: site.count("running") > 0, "a running job")
        site.migrate(later)
        site.enqueue(JOBS)
        site.go.touch()
        until(lambda: site.count("succeeded") == 2 * JOBS, "all jobs")
        with site.running(WORKER), site.running(later.command(*WORKER[1:])):
            pass
        assert worker.process.poll() is None
    assert site.attempts() == 2 * JOBS


def test_a_breaking_migration_stops_earlier_processes_and_loses_nothing(site: Site, tmp_path: Path) -> None:
    later = LaterVersion(tmp_path, BREAKING)
    serve = [FAIRLEAD, "serve", "--port", str(free_port())]
    with (
        site.running([*WORKER, "--concurrency", str(CONCURRENCY)]) as worker,
        site.running([FAIRLEAD, "scheduler"], says="firing schedules") as scheduler,
        site.running(serve) as server,
    ):
        site.enqueue(JOBS)
        until(lambda: site.count("running") == CONCURRENCY, "running jobs")
        site.migrate(later)
        worker.says("stopping: 2 jobs are running")
        site.go.touch()
        for one in (worker, scheduler, server):
            said = last_words(one)
            assert "process_outdated" in said, said
            assert "needs migration 0002" in said
            assert "start this process again" in said
            assert one.process.returncode == OUTDATED, said
    assert [site.count(status) for status in ("running", "succeeded", "queued")] == [0, 2, JOBS - 2]
    with site.running(WORKER, says="") as another:
        assert "needs migration 0002" in last_words(another)
        assert another.process.returncode == OUTDATED

    with site.running(later.command(*WORKER[1:])):
        until(lambda: site.count("succeeded") == JOBS, "the other jobs")


def git(*argv: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *argv], capture_output=True, check=True).stdout


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """The source folder of the previous commit that changed Fairlead."""
    try:
        commits = git("rev-list", "-2", "HEAD", "--", "src").decode().split()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and the history of the repository")
    if len(commits) < 2:
        pytest.skip("needs two commits in the history of the repository")
    archive = tmp_path / "previous.zip"
    archive.write_bytes(git("archive", "--format=zip", commits[1], "src/fairlead"))
    shutil.unpack_archive(archive, tmp_path / "previous")
    return tmp_path / "previous" / "src"


def read_sources(source: Path, folder: str) -> dict[str, str]:
    return {one.name: one.read_text() for one in (source / "fairlead/db" / folder).glob("*.sql")}


def test_a_worker_of_the_previous_commit_runs_jobs_or_says_why_not(site: Site, previous: Path) -> None:
    # what was only added does not concern it
    fits = all(
        read_sources(previous, folder).items() <= read_sources(ROOT / "src", folder).items()
        for folder in ("migrations", "functions")
    )
    command = ["/usr/bin/env", f"PYTHONPATH={previous}", sys.executable, "-m", "fairlead.cli", *WORKER[1:]]
    with site.running(command, says="serving" if fits else "", PYTHONSAFEPATH="") as worker:
        if fits:
            site.go.touch()
            site.enqueue(JOBS)
            until(lambda: site.count("succeeded") == JOBS, "all jobs")
        else:
            said = last_words(worker)
            assert "schema_outdated" in said or "process_outdated" in said, said
            assert any(advice in said for advice in ADVICE), said
            assert worker.process.returncode != 0
