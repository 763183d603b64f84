"""A run without faults: a server, a worker and clients on a test's database, and the history that they write."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, LiteralString
from uuid import uuid4

import msgspec
import psycopg

from fairlead.chaos import scenario
from fairlead.chaos.history import FOLDER_VARIABLE, HistoryRecord, read_history
from fairlead.chaos.load.commands import write_commands
from fairlead.chaos.load.handlers import fl as chaos_fl
from fairlead.chaos.load.secret_values import create_secrets
from fairlead.chaos.site.access import ACCESS_VARIABLE, RUN_VARIABLE, RunAccess
from fairlead.chaos.site.fleet import WORKER
from fairlead.chaos.site.install import install_scenario, write_access
from fairlead.chaos.site.labels import build_label_environment
from fairlead.chaos.site.master_keys import build_key_environment, create_master_keys
from fairlead.library.app import Fairlead
from fairlead.settings import Settings
from tests.acceptance.fleet import ROOT, WorkerUnderTest
from tests.processes import FAIRLEAD, free_port, started

# No lease is to be lost here, however slow the machine is.
SETTLED = {**scenario.SETTINGS, "FAIRLEAD_LEASE_SECONDS": "120", "FAIRLEAD_POLL_SECONDS": "0.2"}


class LiveRun:
    """The scenario on one database, and processes of it that the test starts."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.history = folder / "history"
        self.history.mkdir()
        self.port = free_port()
        self.mark = uuid4().hex
        environment = {FOLDER_VARIABLE: str(self.history), RUN_VARIABLE: self.mark}
        self.secrets = create_secrets(folder)
        self.config = write_commands(folder, environment, self.secrets)
        self.master_keys = create_master_keys(folder)
        self.environment = {
            **SETTLED,
            **environment,
            ACCESS_VARIABLE: str(folder / "access.json"),
            "FAIRLEAD_DATABASE_URL": url,
            "FAIRLEAD_CONFIG": str(self.config),
            **build_key_environment(self.master_keys),
            "PYTHONUNBUFFERED": "1",
        }
        self.access: RunAccess

    def install(self, *, unserved: Sequence[str]) -> None:
        """Install the scenario; clients enqueue no jobs of `unserved`."""
        asyncio.run(self._install(list(unserved)))

    async def _install(self, unserved: list[str]) -> None:
        settings = Settings(database_url=self.url, encryption_key=f"file:{self.master_keys[0]}")
        fl = Fairlead(settings=settings, name="fairlead-chaos")
        fl.functions.update(chaos_fl.functions)
        fl.allow_commands(self.config)
        async with fl:
            installed = await install_scenario(fl, servers=[f"http://127.0.0.1:{self.port}"], agents={})
        self.access = msgspec.structs.replace(installed, unserved=unserved, secrets=str(self.secrets))
        write_access(self.folder / "access.json", self.access)

    @contextlib.contextmanager
    def process(self, argv: Sequence[str], ready: str, **settings: str) -> Iterator[WorkerUnderTest]:
        """A process of the run that is ready."""
        with started(list(argv), env={**self.environment, **settings}, cwd=ROOT) as process:
            running = WorkerUnderTest(process)
            try:
                running.says(ready)
                yield running
            finally:
                running.end()

    def server(self, **settings: str) -> contextlib.AbstractContextManager[WorkerUnderTest]:
        return self.process([FAIRLEAD, "serve", "--port", str(self.port)], "serving", **settings)

    def worker(self) -> contextlib.AbstractContextManager[WorkerUnderTest]:
        """A worker that may run whatever a client enqueues."""
        return self.process([FAIRLEAD, *WORKER], "Ctrl-C stops", **build_label_environment(scenario.LABEL))

    def client(
        self, *, seed: int, rate: float, **settings: str
    ) -> contextlib.AbstractContextManager[WorkerUnderTest]:
        argv = [sys.executable, "-m", "fairlead.chaos.load.client", "--number", "1"]
        return self.process([*argv, "--seed", str(seed), "--rate", str(rate)], "ready", **settings)

    def rows(self, query: LiteralString, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query, params).fetchall()

    def has_drained(self) -> bool:
        return self.rows("select from fairlead.jobs where status in ('queued', 'running') limit 1") == []

    def read(self) -> list[HistoryRecord]:
        return read_history(self.history)
