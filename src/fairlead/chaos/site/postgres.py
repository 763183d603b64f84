"""The PostgreSQL of a run: one that the run starts itself and may kill, or a scratch database on the user's server."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from fairlead.chaos.faults.slow_disk import SlowDisk
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.errors import ChaosFailed
from fairlead.handlers.supervisor import find_descendants

LOOK_SECONDS = 0.02
# Backends of a killed postmaster end by themselves when they next wait for anything.
GONE_SECONDS = 60.0
# The data may be in memory, and a crash recovery should be short.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "300",
    "max_wal_size": "256MB",
}


class RunPostgres:
    """A PostgreSQL in a folder of the run."""

    def __init__(self, folder: Path) -> None:
        self.slow_disk = SlowDisk.find()
        binaries = self.slow_disk.binaries if self.slow_disk else None
        self._embedded = EmbeddedPostgres(folder, binaries=binaries, settings=SETTINGS)

    @property
    def pid(self) -> int:
        """The postmaster's pid."""
        return self._embedded.pid

    @property
    def url(self) -> str:
        return self._embedded.url

    async def start(self) -> None:
        """Start it unless it runs, and wait until it accepts connections."""
        await asyncio.to_thread(self._embedded.start)

    async def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal that ends it to the postmaster, and wait until all of its processes are gone."""
        pids = {self.pid, *find_descendants(self.pid)}
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        try:
            async with asyncio.timeout(GONE_SECONDS):
                while any(map(_is_postgres, pids)):  # noqa: ASYNC110 - other processes end
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError as error:
            raise ChaosFailed(
                f"Processes of the killed PostgreSQL still run after {GONE_SECONDS:g} s: "
                f"{', '.join(str(pid) for pid in sorted(pids) if _is_postgres(pid))}."
            ) from error

    async def stop(self) -> None:
        await asyncio.to_thread(self._embedded.stop)


def _is_postgres(pid: int) -> bool:
    """Whether this process is there, not a zombie, and not another one that got its number."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    name, _, rest = status.partition("(")[2].rpartition(")")
    return name.startswith("postgres") and rest.split()[0] not in "ZX"
