"""Nothing is left behind by a run of the tests: however the command, this program or the `make` that started it ends."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import contained
from tests.processes import is_alive, until

ROOT = Path(__file__).parents[1]
# Starts a server in a session of its own, says where it is, and goes on until it is ended.
COMMAND = """
import json, os, pathlib, subprocess, sys, time
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
folder = pathlib.Path(os.environ["TMPDIR"])
(folder / "file").write_text("x")
said = pathlib.Path(sys.argv[1])
said.with_suffix(".new").write_text(json.dumps([server.pid, str(folder)]))
said.with_suffix(".new").rename(said)
if sys.argv[2] == "ends":
    sys.exit(int(sys.argv[3]))
time.sleep(600)
"""
# Stands for `make`: starts the program and waits for it.
MAKE = "import subprocess, sys; subprocess.run(sys.argv[1:])"


class Run(NamedTuple):
    """A run that has begun: the server and the folder that it would leave behind."""

    server: int
    folder: Path

    def is_gone(self) -> bool:
        return not is_alive(self.server) and not self.folder.exists()


def _argv(said: Path, *ends: str) -> list[str]:
    command = [sys.executable, "-c", COMMAND, str(said), *(ends or ("goes on",))]
    return [sys.executable, contained.__file__, "--grace", "0.1", *command]


def _wait_for(said: Path) -> Run:
    until(said.exists, "the command")
    server, folder = json.loads(said.read_text())
    return Run(server, Path(folder))


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Path]:
    yield (path := tmp_path / "said")
    if path.exists():
        run = _wait_for(path)
        if is_alive(run.server):
            os.kill(run.server, signal.SIGKILL)


def test_what_a_command_leaves_running_is_named_and_ended_and_fails_it(said: Path) -> None:
    done = subprocess.run(_argv(said, "ends", "0"), capture_output=True, text=True, check=False)

    run = _wait_for(said)
    assert done.returncode == contained.FAILED
    assert f"{run.server} {sys.executable}" in done.stderr
    assert run.is_gone()


def test_memory_is_that_of_all_processes_and_of_their_files_in_memory(tmp_path: Path) -> None:
    takes = "kept = b'x' * (50 << 20)\nprint(flush=True)\ninput()"
    argv = [sys.executable, "-c", takes]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        before = contained.measure_memory(tmp_path)
        assert before > 50 << 20
        with tempfile.TemporaryDirectory(dir=contained.MEMORY) as folder:
            Path(folder, "file").write_bytes(b"x" * (200 << 20))
            assert contained.measure_memory(Path(folder)) > before
        process.communicate(b"\n")


def test_a_command_that_takes_more_memory_than_it_may_fails() -> None:
    argv = [sys.executable, contained.__file__, sys.executable, "-c", "import time; time.sleep(1)"]
    limited = os.environ | {contained.LIMIT: "0.001"}
    done = subprocess.run(argv, env=limited, check=False, capture_output=True, text=True)

    assert done.returncode == contained.FAILED
    assert "of 0.001 GiB of memory were taken" in done.stderr


def test_the_exit_code_of_the_command_is_kept() -> None:
    argv = [sys.executable, contained.__file__, sys.executable, "-c", "raise SystemExit(7)"]
    assert subprocess.run(argv, check=False).returncode == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_program_is_told_to_end_or_killed(
    said: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(_argv(said)) as program:
        run = _wait_for(said)
        program.send_signal(number)
        assert program.wait() != 0
    until(run.is_gone, "everything to be gone")


def test_nothing_is_left_when_make_is_killed(said: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", MAKE, *_argv(said)]) as make:
        run = _wait_for(said)
        make.kill()
    until(run.is_gone, "everything to be gone")


def _find_server(folder: Path) -> int | None:
    """The process of a server below the folder. One that is set up there gives its place, and its file, to another."""
    with contextlib.suppress(FileNotFoundError):
        for file in folder.rglob("postmaster.pid"):
            if text := file.read_text():
                return int(text.split()[0])
    return None


@pytest.mark.thorough
def test_an_interrupted_run_of_the_tests_leaves_no_server() -> None:
    argv = [
        sys.executable,
        contained.__file__,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "tests/store",
    ]
    short = Path(tempfile.mkdtemp())  # a socket has a short path
    short.chmod(0o711)  # root's server runs as another user
    try:
        with subprocess.Popen(argv, cwd=ROOT, env=os.environ | {"TMPDIR": str(short)}) as program:
            server = until(lambda: _find_server(short), "a server")
            program.send_signal(signal.SIGINT)
            assert program.wait() != 0
        until(lambda: not is_alive(server) and not [*short.iterdir()], "everything to be gone")
    finally:
        shutil.rmtree(short, ignore_errors=True)
