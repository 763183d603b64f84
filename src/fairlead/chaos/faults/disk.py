"""A small file system in memory for PostgreSQL's data, which faults can fill without using the machine's memory."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlead.errors import DiskNotMounted

ROOM = 8 << 30
BLOCK = 4096
ATTEMPTS = 20
# As root, the server runs as another user, who must be able to enter.
MODE = "0711"


class MountedDisk:
    """A tmpfs. It is full when its limit is what it holds now."""

    def __init__(self, folder: Path, room: int) -> None:
        self.folder = folder
        self._room = room

    def fill(self) -> None:
        """Leave no space on it."""
        for more in range(
            ATTEMPTS
        ):  # files may grow at the same time, and a limit below their size is refused
            stat = os.statvfs(self.folder)
            used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
            said = _run_mount("-o", f"remount,size={used + more * BLOCK}", str(self.folder))
            if not said:
                return
        raise DiskNotMounted(f"The limit of {self.folder} cannot be lowered: {said}")

    def free(self) -> None:
        """Give it its space back."""
        if said := _run_mount("-o", f"remount,size={self._room}", str(self.folder)):
            raise DiskNotMounted(f"The limit of {self.folder} cannot be raised: {said}")


@contextmanager
def mount_disk(folder: Path, room: int = ROOM) -> Iterator[MountedDisk]:
    """Mount a tmpfs on an existing, empty folder; raises DiskNotMounted with the reason if that is not permitted."""
    if os.geteuid() != 0:
        raise DiskNotMounted("Only root may mount a file system.")
    if said := _run_mount("-t", "tmpfs", "-o", f"size={room},mode={MODE}", "tmpfs", str(folder)):
        raise DiskNotMounted(f"A file system cannot be mounted here: {said}")
    try:
        yield MountedDisk(folder, room)
    finally:
        # lazily: a process that was killed a moment ago may still have files open
        subprocess.run(["umount", "--lazy", str(folder)], check=False, stdin=subprocess.DEVNULL)  # noqa: S607


def _run_mount(*arguments: str) -> str:
    """Run mount(8). Why it failed, or nothing."""
    try:
        done = subprocess.run(
            ["mount", *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return "the program mount is missing"
    return "" if done.returncode == 0 else done.stderr.strip() or f"mount ended with {done.returncode}"
