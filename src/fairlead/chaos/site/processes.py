"""A process of a run: started, watched, and started again when it ends, as systemd would do."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from fairlead.chaos.history import ENDING, FOLDER_VARIABLE, HistoryWriter, ProcessRecord, now
from fairlead.chaos.stage import Role
from fairlead.errors import ChaosFailed

# A process that ends is started again at once, but not more often than this.
RESTART_SECONDS = 1.0
LOOK_SECONDS = 0.05
READY_SECONDS = 300.0
# How long a process may take to end after SIGTERM, and how much of its log an error shows.
STOP_SECONDS = 30.0
TAIL_BYTES = 2000
# The last line of a process that could not reach the database when it started.
UNREACHABLE = "error [database_unreachable]"


class ProcessPlan(msgspec.Struct, frozen=True):
    """What a process runs. `argv` gets the number of starts before this one; `ready` is what it prints when it works."""

    name: str
    role: Role
    argv: Callable[[int], list[str]]
    environment: Mapping[str, str]
    ready: str


class RunProcess:
    """A process of the run, or the one that took its place."""

    def __init__(self, plan: ProcessPlan, folder: Path, history: HistoryWriter) -> None:
        self.name = plan.name
        self.role: Role = plan.role
        self.starts = 0
        self._plan = plan
        self._folder = folder
        self._history = history
        self._log = folder / f"{plan.name}.log"
        self._log_start = 0
        self._process: Process | None = None
        self._once: dict[str, str] = {}
        self._hurry = asyncio.Event()
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The pid of the newest process, which may have ended."""
        if self._process is None:
            raise ChaosFailed(f"{self.name} was not started yet.")
        return self._process.pid

    def is_running(self) -> bool:
        """Whether it has not ended; a stopped process runs."""
        return self._process is not None and self._process.returncode is None

    def signal(self, number: int) -> None:
        """Send a signal to the process alone; its children stay."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def start(self) -> None:
        """Start it, and keep it running from now on."""
        await self._launch()
        self._task = asyncio.create_task(self._keep_running(), name=self.name)

    async def restart(self, environment: Mapping[str, str]) -> None:
        """Kill it and start it at once with these variables; the process that follows has none of them."""
        before = self.starts
        self._once = dict(environment)
        self._hurry.set()
        self.signal(signal.SIGKILL)
        while self.starts == before and not self._is_stopping:  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(LOOK_SECONDS)

    async def wait_until_ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until the process (or the one that took its place) has said that it works."""
        try:
            async with asyncio.timeout(seconds):
                while not (self.is_running() and self.is_ready()):  # noqa: ASYNC110 - another process writes it
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError as error:
            raise ChaosFailed(
                f"{self.name} was not ready within {seconds:g} s. Its log {self._log} ends with:\n{self._read_tail()}"
            ) from error

    def is_ready(self) -> bool:
        """Whether the newest process has said that it works."""
        with self._log.open("rb") as file:
            file.seek(self._log_start)
            return self._plan.ready.encode() in file.read()

    def _has_worked(self) -> bool:
        """Whether the newest process got so far that nothing but a fault should have ended it.

        A worker says that it serves, then registers. If that fails it ends with an error, and has begun no attempt.
        """
        if not self.is_ready():
            return False
        last_line = self._read_tail().rstrip().rpartition("\n")[2]
        begun = Path(self._plan.environment[FOLDER_VARIABLE], f"handlers-{self.pid}{ENDING}")
        return not last_line.startswith(UNREACHABLE) or begun.exists()

    async def stop(self) -> None:
        """End it for good: SIGTERM, and SIGKILL for its group if it takes too long."""
        self._is_stopping = True
        self._hurry.set()
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._wait()
        except TimeoutError:
            self.kill_group()
            await self._wait()

    def kill_group(self) -> None:
        """End the process and its group at once, for good."""
        self._is_stopping = True
        self._hurry.set()
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def _wait(self) -> None:
        if self._process is not None:
            await self._process.wait()
        if self._task is not None:
            await self._task

    async def _keep_running(self) -> None:
        while self._process is not None:
            started = now()
            await self._process.wait()
            if not self._is_stopping and not self._hurry.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), RESTART_SECONDS - (now() - started))
            if self._is_stopping:
                return
            self._hurry.clear()
            await self._launch()

    async def _launch(self) -> None:
        once, self._once = self._once, {}
        was_ready = self.starts == 0 or self._has_worked()
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._plan.argv(self.starts),
                env={**self._plan.environment, **once},
                stdin=DEVNULL,
                stdout=log,
                stderr=STDOUT,
                cwd=self._folder,
                start_new_session=True,
            )
        self.starts += 1
        self._history.write(ProcessRecord(now(), self.name, self.role, self.pid, was_ready, once))

    def _read_tail(self) -> str:
        return self._log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
