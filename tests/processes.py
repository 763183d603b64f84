"""Real processes for tests: started, waited for, and never left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fairlead.chaos.site.ports import find_free_ports
from tests import preloaded
from tests.waiting import SECONDS

T = TypeVar("T")
FAIRLEAD = preloaded.FAIRLEAD


def environment(**more: str) -> dict[str, str]:
    """The environment without any setting of ours but the place of root's clusters and Citus, plus what is given."""
    ours = {name for name in os.environ if name.startswith("FAIRLEAD_")} - {
        "FAIRLEAD_SYSTEM_DIR",
        "FAIRLEAD_CITUS",
    }
    return {name: value for name, value in os.environ.items() if name not in ours} | more


def run(*argv: str, env: Mapping[str, str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """A `fairlead` command, to its end."""
    return run_to_end([FAIRLEAD, *argv], env=environment(**env), stdin=stdin)


def run_to_end(
    argv: list[str],
    *,
    env: Mapping[str, str],
    stdin: str | None = None,
    cwd: str | Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """A process that has imported Fairlead already, to its end."""
    pipe = subprocess.PIPE
    process = preloaded.Process(
        argv,
        env=env,
        cwd=cwd,
        stdin=None if stdin is None else pipe,
        stdout=pipe,
        stderr=pipe,
    )
    try:
        told, wrong = process.communicate(stdin, timeout=5 * SECONDS)
    finally:
        process.kill()
    return subprocess.CompletedProcess(argv, process.returncode, told, wrong)


@contextlib.contextmanager
def started(argv: list[str], *, env: Mapping[str, str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end of the block if it still runs. With Fairlead or Python it is a preloaded one."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options, "env": environment(**env)}
    process: subprocess.Popen[str]
    if argv[0] in (FAIRLEAD, sys.executable):
        process = preloaded.Process(argv, **options)
    else:
        process = subprocess.Popen(argv, text=True, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def until(
    look: Callable[[], T | None], what: str, *, seconds: float = SECONDS, longest_pause: float = 0.15
) -> T:
    """Poll until `look` answers something true, or fail saying what was waited for.

    The longer it takes, the longer the pauses: a look is often a new connection, and would take the time of what it waits for.
    """
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < seconds:
        if found := look():
            return found
        time.sleep(min(0.01 + waited / 15, longest_pause))
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


def free_port() -> int:
    """A port that no outgoing connection takes before it is used."""
    [port] = find_free_ports(1)
    return port


def is_alive(pid: int) -> bool:
    """Whether this process still runs; one that has ended and nobody waits for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
