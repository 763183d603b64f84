"""The programs that the HTTP worker conformance suite tests, and how it starts them."""

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests import typescript
from tests.processes import FAIRLEAD, started
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


class Program(NamedTuple):
    """A worker program: how to start it, and the line that it prints when it claims."""

    name: str
    argv: Callable[[Mapping[str, str]], list[str]]
    ready: str = "ready"
    # builds it; skips the test where that is not possible
    prepare: Callable[[], object] = lambda: None


class RunningProgram:
    """A started worker program, and what it has printed."""

    def __init__(self, process: "subprocess.Popen[str]", ready: str) -> None:
        self.process = process
        self.printed = ""
        self._ready = ready
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    async def until_ready(self) -> None:
        """Wait until it claims jobs."""
        try:
            await eventually(
                lambda: self._ready in self.printed or self.process.poll() is not None,
                "the worker to be ready",
            )
            assert self._ready in self.printed, f"the worker ended with {self.process.returncode}"
        except AssertionError as error:
            error.add_note(f"It printed: {self.printed[-4000:]}")
            raise

    async def exit_code(self, *, seconds: float) -> int:
        """The code that it ends with by itself."""
        await eventually(lambda: self.process.poll() is not None, "the worker to end", seconds=seconds)
        return int(self.process.returncode)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.printed += line


@contextmanager
def start_program(
    program: Program, *, url: str, token: str, concurrency: int, drain_seconds: float
) -> Iterator[RunningProgram]:
    """Start a program; it is killed at the end of the block if it still runs."""
    env = {
        "FAIRLEAD_URL": url,
        "FAIRLEAD_TOKEN": token,
        "WORKER_CONCURRENCY": str(concurrency),
        "WORKER_DRAIN_SECONDS": str(drain_seconds),
        # a worker over HTTP needs no database
        "FAIRLEAD_DATABASE_URL": "postgresql://127.0.0.1:1/none",
        "FAIRLEAD_DRAIN_SECONDS": str(drain_seconds),
        "PYTHONUNBUFFERED": "1",
    }
    with started(program.argv(env), env=env, cwd=ROOT) as process:
        yield RunningProgram(process, program.ready)


def list_programs() -> list[Program]:
    """The programs to test: that of HTTP_WORKER_COMMAND alone, if it is set."""
    if own := os.environ.get("HTTP_WORKER_COMMAND"):
        return [Program("own", lambda _: shlex.split(own))]
    return [
        Program("python", _python_argv, ready="serving"),
        Program(
            "typescript",
            lambda _: [typescript.require_build(), str(typescript.PACKAGE / "conformance" / "worker.mjs")],
            prepare=typescript.require_build,
        ),
    ]


def _python_argv(env: Mapping[str, str]) -> list[str]:
    app = "tests.conformance.python_worker:fl"
    return [
        *(FAIRLEAD, "worker", app),
        *("--server", env["FAIRLEAD_URL"], "--concurrency", env["WORKER_CONCURRENCY"]),
    ]
