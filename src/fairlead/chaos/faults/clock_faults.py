"""Processes whose wall clock is wrong by minutes to hours. Their monotonic clock stays right.

A small library replaces the C library's functions in such a process. libfaketime would do, too, but with a right
monotonic clock its `clock_nanosleep`, which Python's `time.sleep` needs, fails.
"""

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from fairlead.chaos.faults.fault import FaultKind, FaultScene, NothingToHit
from fairlead.chaos.faults.proxy import Proxies
from fairlead.chaos.stage import Role, Stage

SOURCE = Path(__file__).with_name("wall_clock.c")
VARIABLE = "FAIRLEAD_CHAOS_CLOCK_SECONDS"
MINUTE, HOUR = 60, 3600
OFFSETS = (-3 * HOUR, -20 * MINUTE, -90, 90, 20 * MINUTE, 3 * HOUR)
SECONDS = (5.0, 20.0)
# The command that runs on a host inherits the agent's environment, so agents have their time right.
ROLES: tuple[Role, ...] = ("worker", "http_worker", "server", "scheduler")


def find_obstacle() -> str | None:
    """Why no process can have a wrong clock here; None if one can."""
    if sys.platform != "linux":
        return "only Linux can replace a process's clock"
    return (
        None if shutil.which("cc") else "a C compiler (cc) is needed for the library that replaces the clock"
    )


@cache
def build_library() -> Path:
    """Compile the library into a temporary folder that stays until this process ends."""
    folder = Path(_folder().name)
    library = folder / "wall_clock.so"
    argv = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise NothingToHit(f"cc cannot compile {SOURCE.name}: {done.stderr.strip()}")
    folder.chmod(0o755)  # commands may run as other users
    return library


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="fairlead-chaos-clock-")


def build_environment_with_offset(seconds: int) -> dict[str, str]:
    """The variables of a process whose wall clock is wrong by this time."""
    return {"LD_PRELOAD": str(build_library()), VARIABLE: str(seconds)}


async def offset_clock(scene: FaultScene) -> None:
    """Start a process again with a wrong clock for a while, and then with the right one."""
    process = scene.choose_process(*ROLES)
    offset = scene.chance.choice(OFFSETS)
    environment = build_environment_with_offset(offset)
    scene.notes.append(f"{offset:+} s")
    scene.pids.append(process.pid)
    scene.mark()
    process = await scene.stage.restart(process, environment)
    pid = process.pid
    try:
        await scene.pause(scene.chance.uniform(*SECONDS))
    finally:
        if (
            process.is_running() and process.pid == pid
        ):  # else it died already, and the next one has its time right
            scene.pids.append(pid)
            process = await scene.stage.restart(process, {})
        scene.mark_over()
        scene.recovering = process


def _needs_compiler(_stage: Stage, _proxies: Proxies) -> str | None:
    return find_obstacle()


CLOCK_FAULTS = (
    FaultKind(
        "clock_offset",
        "the wall clock of a process is wrong by minutes to hours",
        "clocks",
        offset_clock,
        why_not=_needs_compiler,
    ),
)
