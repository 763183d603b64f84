"""A database, a folder and worker processes: what the acceptance tests of the worker play with."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, LiteralString, Self
from uuid import UUID

import psycopg

from fairlead import NewJob, Settings
from fairlead.handlers.supervisor import find_descendants
from fairlead.sync import Fairlead
from tests import given
from tests.acceptance import jobs_under_test
from tests.processes import FAIRLEAD, started, until

ROOT = Path(__file__).parents[2]
LEASE, SWEEP = 4.0, 0.5
# Where no lease is to be lost, a machine that stumbles must not decide.
LONG = 120.0
# A heartbeat comes after a third of a lease. With this one: later than any test waits for anything.
NO_HEARTBEAT = 3600.0
QUICK = {
    "FAIRLEAD_LEASE_SECONDS": str(LEASE),
    "FAIRLEAD_SWEEP_SECONDS": str(SWEEP),
    "FAIRLEAD_POLL_SECONDS": "0.2",
}


class WorkerUnderTest:
    """A `fairlead worker`, and what it has said so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.said = ""
        self._orphans: set[int] = set()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it alone, as the kernel would: its children stay."""
        self._orphans = find_descendants(self.pid)
        self.signal(signal.SIGKILL)
        self.process.wait()

    def says(self, *any_of: str) -> None:
        try:
            until(lambda: self._said(any_of) or self.process.poll() is not None, " or ".join(any_of))
            self._reader.join(None if self.process.returncode is not None else 0)
            assert self._said(any_of), f"the worker ended without saying {' or '.join(any_of)}"
        except AssertionError as error:
            error.add_note(f"It said: {self.said[-4000:]}")
            raise

    def _said(self, any_of: tuple[str, ...]) -> bool:
        return any(text in self.said for text in any_of)

    @property
    def most_memory(self) -> int:
        """The most that it had at any time, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        return int(kilobytes) << 10

    def exit_code(self, *, seconds: float) -> int:
        """The code it ends with by itself, within so many seconds."""
        return self.process.wait(timeout=seconds)

    def end(self) -> None:
        """Leave nothing behind: the children of a supervisor outlive it."""
        living = [self.pid, *find_descendants(self.pid)] if self.process.poll() is None else []
        for pid in [*living, *self._orphans]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.said += line


@contextlib.contextmanager
def running(
    argv: Sequence[str], env: Mapping[str, str], *, says: str, cwd: Path = ROOT
) -> Iterator[WorkerUnderTest]:
    """A process that has said this; killed with all its processes if it still runs at the end of the block."""
    with started(list(argv), env={"PYTHONUNBUFFERED": "1", **env}, cwd=cwd) as process:
        process_under_test = WorkerUnderTest(process)
        try:
            process_under_test.says(says)
            yield process_under_test
        except AssertionError as error:
            error.add_note(f"process {process.pid}, {argv[1:3]}, said: {process_under_test.said[-3000:]}")
            raise
        finally:
            process_under_test.end()


class Fleet:
    """Jobs of one tenant, the workers that run them, and the folder through which jobs and test speak."""

    def __init__(self, url: str, folder: Path, app: ModuleType = jobs_under_test) -> None:
        self.url = url
        self.folder = folder
        self.app = app
        self.fl = Fairlead(settings=Settings(database_url=url), actor="tester")
        self.fl.inner.functions.update(app.fl.functions)
        self._asking: psycopg.Connection | None = None

    def __enter__(self) -> Self:
        self.fl.open()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._asking is not None:
            self._asking.close()
        self.fl.close()

    @contextlib.contextmanager
    def worker(self, *flags: str, **settings: str) -> Iterator[WorkerUnderTest]:
        """A worker that is ready for work; killed with all its processes if it still runs at the end."""
        argv = [FAIRLEAD, "--verbose", "worker", f"{self.app.__name__}:fl", *flags]
        env = {"FAIRLEAD_DATABASE_URL": self.url} | QUICK | settings
        with running(argv, env, says="serving") as worker:
            yield worker

    def enqueue(self, key: str, **payload: Any) -> UUID:
        return self.fl.enqueue(key, tenant=given.TENANT, payload=payload).id

    def enqueue_many(self, *calls: tuple[str, dict[str, Any]]) -> list[UUID]:
        new = [NewJob(definition=key, tenant=given.TENANT, payload=payload) for key, payload in calls]
        return [one.id for one in self.fl.enqueue_many(new)]

    def hold(self, key: str = "held") -> UUID:
        """A job that runs until it is let go."""
        return self.enqueue(key, folder=str(self.folder))

    def began(self, job_id: UUID, attempt_no: int = 1) -> int:
        """Wait until this attempt runs; the answer is its process."""
        begun = self.folder / f"{job_id}.{attempt_no}.begun"
        until(begun.exists, f"attempt {attempt_no} to begin")
        return int(begun.read_text())

    def let_go(self, job_id: UUID, attempt_no: int = 1) -> None:
        (self.folder / f"{job_id}.{attempt_no}.go").touch()

    def rows(self, query: LiteralString, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self._ask(query, params)
        return cursor.fetchall() if cursor.description else []

    def _ask(self, query: LiteralString, params: Sequence[Any]) -> psycopg.Cursor:
        """On the connection of the query before, unless its server has ended it: tests ask a hundred times a second."""
        if self._asking is not None:
            try:
                return self._asking.execute(query, params)
            except psycopg.OperationalError:
                self._asking.close()
        self._asking = psycopg.connect(self.url, autocommit=True)
        return self._asking.execute(query, params)

    def stands(self, job_id: UUID) -> tuple[Any, ...]:
        """(status, how its attempts ended, failures that were charged)"""
        [row] = self.rows(
            """
            select j.status::text, array(select a.status from fairlead.attempts a
                where a.job_id = j.id order by a.attempt_no), j.failure_count
            from fairlead.jobs j where j.id = %s
            """,
            job_id,
        )
        return row

    def reaches(self, job_id: UUID, status: str) -> tuple[Any, ...]:
        """Wait for a job's status; the answer is how it stands then."""
        look: Callable[[], bool] = lambda: self.fl.read(job_id).status == status  # noqa: E731
        until(look, f"{job_id} to be {status}")
        return self.stands(job_id)

    def output(self, job_id: UUID) -> Any:
        """Wait for a job's success; the answer is its output."""
        self.reaches(job_id, "succeeded")
        return self.fl.read(job_id).output

    def end_leases(self) -> None:
        """As if nobody had renewed a lease for as long as the longest of them lasts."""
        self.rows("update fairlead.leases set expires_at = clock_timestamp()")
        self.let_time_pass()

    def let_time_pass(self) -> None:
        """As if somebody had looked after expired leases all the time: after an outage their owners have a lease's time."""
        self.rows("update fairlead.pulse set resumed_at = resumed_at - make_interval(secs => %s)", LONG)

    def tally(self) -> dict[str, int]:
        """How many jobs there are of each status."""
        return dict(self.rows("select status::text, count(*) from fairlead.jobs group by 1"))

    def workers(self) -> set[int]:
        """The worker processes that say they are there."""
        return {
            int(worker_id.split(":")[-2])
            for (worker_id,) in self.rows("select worker_id from fairlead.job_workers")
        }

    def is_consistent(self) -> None:
        """Queue and record agree."""
        self.fl.wait(given.no_inconsistencies(self.fl.inner.database))
