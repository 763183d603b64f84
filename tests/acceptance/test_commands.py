"""Commands of real worker processes: hostile ones, and workers that die at the worst moments."""

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from uuid import UUID, uuid4

import pytest

from fairlead.actions import definitions
from fairlead.db.tx import Tx
from fairlead.model.command.spec import build_command_definition
from tests.acceptance.fleet import LONG, QUICK, Fleet, WorkerUnderTest, running
from tests.handlers.commands import MARK, marked
from tests.processes import FAIRLEAD, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

TIMEOUT, GRACE = 1, 0.5
# Before hostile commands would end by themselves. Less would measure how busy the machine is.
IN_TIME = 200.0
LEASE = 30.0
MOST_BYTES = 200 * 2**20

# What a command leaves behind if nobody looks after it: in its session, out of it, and deaf to TERM.
LINGERS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        time.sleep(3600)
print("here", flush=True)
time.sleep(3600)
"""
NOISE = {
    "endless": "import os\nwhile True: os.write(1, b'line of text\\n' * 5000)",
    "no-newline": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "noise": "import os\nnoise = os.urandom(65536)\nwhile True: os.write(1, noise); os.write(2, noise)",
    "progress": "import os\nwhile True: os.write(3, b'50 half\\n' * 5000)",
    "results": "import os\nwhile True: os.write(1, b'fairlead:result {}\\n' * 3000)",
    "dribbles": "import os\nos.write(1, b'fairlead:result ')\nwhile True: os.write(1, b'x')",
}


class Commands(Fleet):
    """A fleet whose workers run commands, all of them with one mark in their environment."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        self.mark = uuid4().hex
        self.config = folder / "fairlead.toml"
        self._scripts: dict[str, str] = {}

    def allow(self, hostile: Mapping[str, str] = MappingProxyType({}), **scripts: str) -> None:
        """Have these scripts on the list, and their definitions in the database. The hostile ones are ended soon."""
        tables = []
        for key, text in {**hostile, **scripts}.items():
            path = self.folder / f"{key}.py"
            path.write_text(text)
            argv = json.dumps([sys.executable, "-I", "-S", str(path)])
            tables.append(
                f"[commands.{key}]\nargv = {argv}\ntimeout = {TIMEOUT if key in hostile else 120}\n"
                f'max_attempts = 1\ngrace_seconds = {GRACE}\nset_env = {{ {MARK} = "{self.mark}" }}\n'
            )
        self.config.write_text("\n".join(tables))
        self.fl.inner.allow_commands(self.config)

        async def publish(tx: Tx) -> None:
            for command in self.fl.inner.commands.values():
                says = build_command_definition(command.spec)
                await definitions.patch(tx, self.fl.inner.principal, says.pop("key"), says)

        self.fl.wait(self.fl.inner.database.transact(publish))

    @contextmanager
    def commanding(self, **settings: str) -> Iterator[WorkerUnderTest]:
        """A worker that runs the commands of the list."""
        argv = [FAIRLEAD, "--verbose", "worker", "tests.acceptance.commands_under_test:fl"]
        settings = {**QUICK, "FAIRLEAD_LEASE_SECONDS": str(LONG), **settings}
        env = {"FAIRLEAD_DATABASE_URL": self.url, "FAIRLEAD_CONFIG": str(self.config), **settings}
        with running(argv, env, says="serving") as worker:
            yield worker

    def alive(self) -> set[int]:
        return marked(self.mark)

    def lingers(self) -> UUID:
        """A job whose command is there with all that it leaves behind."""
        job = self.enqueue("lingers")
        until(lambda: len(self.alive()) == 5, "the command to begin")
        return job

    def lease_left(self, job_id: UUID) -> float:
        """In how many seconds its lease ends."""
        [(seconds,)] = self.rows(
            "select extract(epoch from expires_at - clock_timestamp())::float8 from fairlead.leases where job_id = %s",
            job_id,
        )
        return float(seconds)

    def took(self, job_id: UUID) -> float:
        [(seconds,)] = self.rows(
            "select extract(epoch from finished_at - started_at)::float8 from fairlead.attempts where job_id = %s",
            job_id,
        )
        return float(seconds)


@pytest.fixture
def commands(database_url: str, tmp_path: Path) -> Iterator[Commands]:
    with Commands(database_url, tmp_path) as opened:
        yield opened
        opened.is_consistent()
    assert not opened.alive()


def test_a_worker_of_endless_commands_stays_small_ends_them_in_time_and_goes_on(commands: Commands) -> None:
    commands.allow(NOISE, fine="print('fairlead:result {\"fine\": true}')")
    with commands.commanding() as worker:
        assert commands.output(commands.enqueue("fine")) == {"fine": True}
        jobs = dict(zip(NOISE, commands.enqueue_many(*[(key, {}) for key in NOISE]), strict=True))
        for job in jobs.values():
            until(lambda job=job: commands.fl.read(job).status not in ("queued", "running"), "its end")  # type: ignore[misc]

        assert worker.most_memory < MOST_BYTES
        endless = [commands.stands(job) for job in jobs.values()]
        assert endless == [("dead_letter", ["timeout"], 1)] * len(NOISE)
        assert {key: took for key, job in jobs.items() if (took := commands.took(job)) >= IN_TIME} == {}
        until(lambda: not commands.alive(), "all of them to be gone", seconds=IN_TIME)
        assert commands.output(commands.enqueue("fine")) == {"fine": True}


def test_commands_of_a_worker_that_is_stopped_are_dead_before_its_leases_end(commands: Commands) -> None:
    commands.allow(lingers=LINGERS)
    with commands.commanding(FAIRLEAD_LEASE_SECONDS=str(LEASE)) as worker:
        job = commands.lingers()
        # just after it was renewed: the commands have half of a lease, and a busy machine as much on top of that
        until(lambda: commands.lease_left(job) > LEASE * 0.9, "a new lease", longest_pause=0.01)

        worker.signal(signal.SIGSTOP)
        until(lambda: not commands.alive(), "its commands to be gone")

        assert commands.lease_left(job) > 0
        worker.kill()


@pytest.mark.parametrize("signals", [1, 2])
def test_a_worker_that_is_asked_to_end_leaves_no_command(commands: Commands, signals: int) -> None:
    go = commands.folder / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
    commands.allow(lingers=LINGERS, waits=waits)
    drain = "0.5" if signals == 1 else "600"
    with commands.commanding(FAIRLEAD_DRAIN_SECONDS=drain) as worker:
        job = commands.lingers()
        last = commands.enqueue("waits") if signals == 2 else None
        until(lambda: len(commands.alive()) == 4 + signals, "all of them to run")
        worker.signal(signal.SIGTERM)
        if last is not None:
            worker.says("stopping:")  # two signals at once would be one
            go.touch()
            commands.reaches(last, "succeeded")
            assert worker.process.poll() is None
            worker.signal(signal.SIGTERM)

        assert worker.exit_code(seconds=SECONDS) == 0
        assert not commands.alive()
        assert commands.stands(job) == ("queued", ["released"], 0)
