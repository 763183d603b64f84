"""What fault injectors may touch: the processes of a run, its PostgreSQL, and the way between them."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

Role = Literal["worker", "http_worker", "typescript_worker", "server", "scheduler", "agent", "client"]


class StagedProcess(Protocol):
    """A process of the run, in a process group of its own. The site starts another when it ends."""

    name: str
    role: Role

    @property
    def pid(self) -> int: ...

    def is_running(self) -> bool: ...

    def signal(self, number: int) -> None:
        """Send a signal to the process alone, as the kernel would; its children stay."""

    async def wait_until_ready(self, seconds: float) -> None:
        """Wait until the process (or the one that took its place) has said that it works."""


class StagedCommand(Protocol):
    """A command of Fairlead that the run has started."""

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int:
        """Wait until it has ended. Its exit code."""

    def kill(self) -> None: ...


class StagedSlowDisk(Protocol):
    """What makes the disk of a PostgreSQL slow."""

    def delay(self, seconds: float) -> None:
        """Let each sync of a file take so long, and each write a tenth of that; 0: as ever."""


class StagedPostgres(Protocol):
    """A PostgreSQL that the run has started itself."""

    @property
    def pid(self) -> int: ...

    # None if this machine cannot slow down its disk
    @property
    def slow_disk(self) -> StagedSlowDisk | None: ...

    async def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal that ends the postmaster, if it still runs, and wait until all of its processes are gone."""

    async def start(self) -> None:
        """Start it unless it runs, and wait until it accepts connections."""


class StagedDisk(Protocol):
    """A file system with the data of the run's PostgreSQL, and nothing else that must go on."""

    def fill(self) -> None:
        """Leave no space on it."""

    def free(self) -> None:
        """Give it its space back; does nothing if it has it."""


class Stage(Protocol):
    """A run's processes and databases, as faults see them."""

    # None if the run uses a PostgreSQL of the user's
    postgres: StagedPostgres | None
    # None if the run may not mount a file system of its own
    disk: StagedDisk | None
    # the database itself, past the proxies
    database_url: str
    # the lease of all workers
    lease_seconds: float
    # the files of the master keys, which all processes have
    master_keys: Sequence[Path]

    def processes(self, *roles: Role) -> Sequence[StagedProcess]:
        """The processes of these roles that run now; all of them without roles."""

    async def restart(self, process: StagedProcess, environment: Mapping[str, str]) -> StagedProcess:
        """Kill a process, and start one in its place that also has these variables. The one after it has none of them."""

    async def start_command(
        self, *arguments: str, environment: Mapping[str, str], module: str = "fairlead.cli"
    ) -> StagedCommand:
        """Start `fairlead` or a like module with these arguments and variables, on the database itself."""

    async def rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        """Run a query past the proxies, on a connection of the injector's own."""
