"""A stage for single faults: a database, and small processes that do nothing."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg

from fairlead.chaos.faults.fault import FaultScene
from fairlead.chaos.faults.kinds import choose_kinds
from fairlead.chaos.faults.plan import inject_fault
from fairlead.chaos.faults.proxy import PostgresProxy, Proxies
from fairlead.chaos.history import FOLDER_VARIABLE, FaultRecord, HistoryRecord, HistoryWriter, read_history
from fairlead.chaos.scenario import LEASE_SECONDS
from fairlead.chaos.site.processes import ProcessPlan, RunProcess
from fairlead.chaos.stage import Role, StagedDisk, StagedPostgres, StagedProcess
from tests.waiting import SECONDS

DOES_NOTHING = "import time; print('ready', flush=True); time.sleep(600)"


class SmallStage:
    """What faults may touch, as far as a test needs it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.database_url = url
        self.lease_seconds = LEASE_SECONDS
        self.postgres: StagedPostgres | None = None
        self.disk: StagedDisk | None = None
        self.folder = folder
        self.history = HistoryWriter(folder / "test.history")
        self.environments: list[Mapping[str, str]] = []
        self.master_keys: Sequence[Path] = ()
        # what commands were started with
        self.commands: list[tuple[str, ...]] = []
        self._processes: list[RunProcess] = []

    def processes(self, *roles: Role) -> Sequence[RunProcess]:
        return [one for one in self._processes if one.is_running() and (not roles or one.role in roles)]

    async def restart(self, process: StagedProcess, environment: Mapping[str, str]) -> StagedProcess:
        self.environments.append(environment)
        assert isinstance(process, RunProcess)
        await process.restart(environment)
        return process

    async def start_command(
        self, *arguments: str, environment: Mapping[str, str], module: str = "fairlead.cli"
    ) -> Process:
        self.commands.append(arguments)
        self.environments.append(environment)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            env={**os.environ, "FAIRLEAD_DATABASE_URL": self.database_url, **environment},
            cwd=self.folder,
        )

    async def rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.database_url, autocommit=True) as connection:
            cursor = await connection.execute(query.encode(), params)
            return await cursor.fetchall()

    async def run(self, query: str) -> None:
        async with await psycopg.AsyncConnection.connect(self.database_url, autocommit=True) as connection:
            await connection.execute(query.encode())

    async def wait_until_ready(self) -> None:
        """Wait until each process, or the one that took its place, works."""
        for one in self._processes:
            await one.wait_until_ready(SECONDS)

    async def start(
        self, *roles: Role, code: str = DOES_NOTHING, name: str | None = None
    ) -> list[RunProcess]:
        """Start a process of each role, which the stage keeps running."""
        started = [self._build(role, code, name) for role in roles]
        for one in started:
            await one.start()
        for one in started:
            await one.wait_until_ready(SECONDS)
        self._processes += started
        return started

    def _build(self, role: Role, code: str, name: str | None) -> RunProcess:
        argv = [sys.executable, "-I", "-S", "-c", code]
        plan = ProcessPlan(
            name or f"{role}-{len(self._processes)}",
            role,
            lambda _: argv,
            {FOLDER_VARIABLE: str(self.folder)},
            "ready",
        )
        return RunProcess(plan, self.folder, self.history)

    async def stop(self) -> None:
        for one in self._processes:
            one.kill_group()
        await asyncio.gather(*(one.stop() for one in self._processes))
        self.history.close()

    def faults(self) -> list[FaultRecord]:
        return [record for record in self.records() if isinstance(record, FaultRecord)]

    def records(self) -> Iterator[HistoryRecord]:
        return iter(read_history(self.folder))


@asynccontextmanager
async def open_small_stage(url: str, folder: Path) -> AsyncIterator[SmallStage]:
    stage = SmallStage(url, folder)
    try:
        yield stage
    finally:
        await stage.stop()


async def hit(
    stage: SmallStage,
    name: str,
    *,
    seed: int = 1,
    proxies: Proxies | None = None,
    over: asyncio.Event | None = None,
) -> FaultRecord:
    """Do one fault. Its record."""
    [kind] = choose_kinds([name])
    scene = FaultScene(
        stage, proxies or Proxies(PostgresProxy(stage.database_url)), seed, over or asyncio.Event()
    )
    await inject_fault(kind, scene, stage.history)
    return stage.faults()[-1]
