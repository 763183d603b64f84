"""What runs in a scratch copy leaves nothing behind."""

import sys
from pathlib import Path

import pytest

from tests.mutants.scratch import ScratchTree
from tests.processes import is_alive

pytestmark = pytest.mark.thorough

# Starts a process in a session of its own, as a chaos run does, and never ends.
STARTS_ANOTHER = """
import subprocess, sys, time
started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(started.pid, flush=True)
time.sleep(600)
"""
# Long enough for a slow machine to start two processes.
SECONDS = 8.0


def test_a_command_that_is_stopped_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    tree = ScratchTree(tmp_path)
    tree.root.mkdir()
    tree.python.parent.mkdir(parents=True)
    tree.python.symlink_to(sys.executable)

    done = tree.run(["-c", STARTS_ANOTHER], seconds=SECONDS)

    pid, *_, said = done.stdout.splitlines()
    assert said == f"did not end in {SECONDS:.0f} s"
    assert not is_alive(int(pid))
