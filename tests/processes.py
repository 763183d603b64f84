"""Real processes for tests: started, waited for, and never left behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
FAIRLEAD = str(Path(sys.executable).parent / "fairlead")
SECONDS = 60.0


def environment(**more: str) -> dict[str, str]:
    """The environment without any setting of ours, plus what is given."""
    return {k: v for k, v in os.environ.items() if not k.startswith("FAIRLEAD_")} | more


def run(*argv: str, env: Mapping[str, str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """A `fairlead` command, to its end."""
    return subprocess.run(
        [FAIRLEAD, *argv],
        env=environment(**env),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@contextlib.contextmanager
def started(argv: list[str], *, env: Mapping[str, str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end of the block if it still runs."""
    process = subprocess.Popen(
        argv, env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def until(look: Callable[[], T | None], what: str, *, seconds: float = SECONDS) -> T:
    """Poll until `look` answers something true, or fail saying what was waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
