"""Processes whose wall clock is wrong by minutes to hours. Their monotonic clock stays right.

A small library replaces the C library's functions in such a process. libfaketime would do, too, but with a right
monotonic clock its `clock_nanosleep`, which Python's `time.sleep` needs, fails.
"""

from pathlib import Path

from fairlead.chaos.faults.fault import FaultKind, FaultScene
from fairlead.chaos.faults.preloaded import build_library, find_obstacle
from fairlead.chaos.faults.proxy import Proxies
from fairlead.chaos.stage import Role, Stage

SOURCE = Path(__file__).with_name("wall_clock.c")
VARIABLE = "FAIRLEAD_CHAOS_CLOCK_SECONDS"
MINUTE, HOUR = 60, 3600
OFFSETS = (-3 * HOUR, -20 * MINUTE, -90, 90, 20 * MINUTE, 3 * HOUR)
SECONDS = (5.0, 20.0)
# The command that runs on a host inherits the agent's environment, so agents have their time right.
ROLES: tuple[Role, ...] = ("worker", "http_worker", "server", "scheduler")


def build_environment_with_offset(seconds: int) -> dict[str, str]:
    """The variables of a process whose wall clock is wrong by this time."""
    return {"LD_PRELOAD": str(build_library(SOURCE)), VARIABLE: str(seconds)}


async def offset_clock(scene: FaultScene) -> None:
    """Start a process again with a wrong clock for a while, and then with the right one."""
    process = scene.choose_process(*ROLES)
    offset = scene.chance.choice(OFFSETS)
    scene.notes.append(f"{offset:+} s")
    environment = build_environment_with_offset(offset)
    await scene.restart_for_a_while(process, environment, scene.chance.uniform(*SECONDS))


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
