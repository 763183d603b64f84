"""Small libraries in C that LD_PRELOAD puts before the C library of a process."""

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from fairlead.chaos.faults.fault import NothingToHit


def find_obstacle() -> str | None:
    """Why no process can have such a library here; None if one can."""
    if sys.platform != "linux":
        return "only Linux can replace functions of a process"
    return (
        None if shutil.which("cc") else "a C compiler (cc) is needed for the library that replaces functions"
    )


@cache
def build_library(source: Path) -> Path:
    """Compile a library into a temporary folder that stays until this process ends."""
    folder = open_folder()
    library = folder / f"{source.stem}.so"
    argv = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise NothingToHit(f"cc cannot compile {source.name}: {done.stderr.strip()}")
    return library


def open_folder() -> Path:
    """The folder, which other users may enter: PostgreSQL and commands may run as such."""
    folder = Path(_folder().name)
    folder.chmod(0o755)
    return folder


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="fairlead-chaos-libraries-")
