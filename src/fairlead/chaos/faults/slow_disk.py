"""A PostgreSQL whose disk can get slow: its data may be in memory, so the functions that write and sync wait instead.

A device mapper that delays needs a block device and root, and control groups bound bytes, not the time of a sync.
"""

import tempfile
from pathlib import Path
from typing import Self

from fairlead.chaos.faults.fault import NothingToHit
from fairlead.chaos.faults.preloaded import build_library, find_obstacle, open_folder
from fairlead.db.binaries import Binaries, choose_server_user, ensure_usable, find_binaries

SOURCE = Path(__file__).with_name("slow_disk.c")
VARIABLE = "FAIRLEAD_CHAOS_SLOW_DISK"
# The server's environment is always a clean one, so the program itself sets its variables.
_PROGRAM = """#!/bin/sh
LD_PRELOAD='{library}' {variable}='{place}' exec '{postgres}' "$@"
"""


class SlowDisk:
    """The programs of a PostgreSQL whose disk can get slow."""

    def __init__(self, library: Path, real: Binaries) -> None:
        folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=open_folder()))
        folder.chmod(0o755)
        self._place = folder / "delay"
        program = folder / "postgres"
        values = {
            "library": library,
            "variable": VARIABLE,
            "place": self._place,
            "postgres": real.bin / "postgres",
        }
        program.write_text(_PROGRAM.format(**values), encoding="utf-8")
        program.chmod(0o755)
        (folder / "initdb").symlink_to(real.bin / "initdb")
        self.binaries = Binaries(folder, real.major, "system")

    @classmethod
    def find(cls) -> Self | None:
        """One for the PostgreSQL of this machine; None if there cannot be one."""
        if find_obstacle() is not None:
            return None
        try:
            library = build_library(SOURCE)
        except NothingToHit:
            return None
        return cls(library, ensure_usable(choose_server_user(), find_binaries()))

    def delay(self, seconds: float) -> None:
        """Let each sync take so long, and each write a tenth of that; 0: as ever, at once."""
        if not seconds:
            self._place.unlink(missing_ok=True)
            return
        new = self._place.with_suffix(".new")
        new.write_text(str(round(seconds * 1_000_000)), encoding="ascii")
        new.chmod(0o644)
        new.replace(self._place)
