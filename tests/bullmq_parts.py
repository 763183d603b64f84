"""What the tests of BullMQ need: a real redis-server, the tables of BullMQ in PostgreSQL, and real Node workers."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from bullmq.backends.postgres_connection import run_migrations

from fairlead.integrations.configuration import ConnectionTable
from tests import node_programs
from tests.processes import free_port, started, until


def why_not() -> str | None:
    """Why Node workers cannot run here, or None."""
    return node_programs.why_not("bullmq")


def why_no_redis() -> str | None:
    """Why no redis-server can run here, or None."""
    return None if shutil.which("redis-server") else "needs redis-server; see scripts/test-tools"


def node_folder() -> Path:
    """The Node programs with BullMQ."""
    return node_programs.node_folder("bullmq")


class Broker(NamedTuple):
    """Where BullMQ keeps its jobs: redis or postgres, and its URL."""

    kind: str
    url: str

    @property
    def table(self) -> ConnectionTable:
        return ConnectionTable("engines", "bullmq", "bullmq", {"url": self.url})


class Redis:
    """A redis-server that keeps every write, so that it may be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self._folder,
            "save": "",
            "loglevel": "warning",
        }
        keeps = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        argv: list[str] = []
        for name, value in (options | keeps).items():
            argv += [f"--{name}", str(value)]
        with (self._folder / "redis.log").open("a") as log:
            self._process = subprocess.Popen(["redis-server", *argv], text=True, stdout=log, stderr=log)
        until(self._answers, "redis-server to answer")

    def _answers(self) -> bool:
        ping = ["redis-cli", "-p", str(self.port), "ping"]
        return "PONG" in subprocess.run(ping, capture_output=True, text=True, check=False).stdout

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def forget(self) -> None:
        """Lose everything."""
        subprocess.run(["redis-cli", "-p", str(self.port), "flushall"], check=True, capture_output=True)


@contextmanager
def redis_server(folder: Path) -> Iterator[Redis]:
    folder.mkdir(parents=True, exist_ok=True)
    redis = Redis(folder)
    redis.start()
    try:
        yield redis
    finally:
        redis.kill()


async def create_tables(url: str) -> None:
    """BullMQ's tables, in the schema `bullmq`."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await run_migrations(connection)


class NodeWorker:
    """A Node process with BullMQ workers."""

    def __init__(self, process: "subprocess.Popen[str]", file: Path) -> None:
        self.process = process
        self._file = file

    def lines(self, what: str = "begin") -> list[dict[str, Any]]:
        """What the workers of this file have noted, oldest first."""
        if not self._file.exists():
            return []
        # the last line may be half written
        whole = self._file.read_text().rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, whole) if line["what"] == what]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def node_worker(url: str, queues: Sequence[str], file: Path, **options: Any) -> Iterator[NodeWorker]:
    """Run BullMQ workers for these queues in one Node process, until the block ends."""
    argument = json.dumps({"connection": url, "queues": list(queues), "file": str(file), **options})
    argv = ["node", str(node_folder() / "worker.mjs"), argument]
    with started(argv, env={"NODE_NO_WARNINGS": "1"}) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        assert told == "ready\n", told + process.stdout.read()
        yield NodeWorker(process, file)


def use_queue(url: str, queue: str, **request: Any) -> Any:
    """Use a queue from Node, as an application does: tests/node/bullmq/queue.mjs."""
    argument = json.dumps({"connection": url, "queue": queue, **request})
    argv = ["node", str(node_folder() / "queue.mjs"), argument]
    told = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NODE_NO_WARNINGS": "1"},
    )
    return json.loads(told.stdout) if told.stdout else None
