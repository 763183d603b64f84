"""A worker's environment is not for the commands that it runs as its own user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment, run_to_end

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs Linux, which can hide a process's memory"
)

# As a user without rights, which root in the tests is not: one process hides, or does not, and another one looks. To change
# the user hides it as well, so that is undone first. prctl(4) sets it.
LOOK = """
import os, sys
from fairlead.handlers.supervisor import _libc, keep_private

def give_up_rights():
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    _libc.prctl(4, 1, 0, 0, 0)

give_up_rights()
if sys.argv[1] == "hide":
    keep_private()
worker = os.getpid()
command = os.fork()
if command == 0:
    _libc.prctl(4, 1, 0, 0, 0)
    try:
        print("found", b"SECRET=shown" in open(f"/proc/{worker}/environ", "rb").read(), flush=True)
    except PermissionError:
        print("refused", flush=True)
    os._exit(0)
os.waitpid(command, 0)
"""


@pytest.mark.parametrize(("way", "seen"), [("show", "found True"), ("hide", "refused")])
def test_a_process_of_the_same_user_cannot_read_a_private_environment(way: str, seen: str) -> None:
    env = {**os.environ, "SECRET": "shown"}
    looked = subprocess.run(
        [sys.executable, "-c", LOOK, way], env=env, capture_output=True, text=True, check=True
    )
    assert looked.stdout.strip() == seen


RUN = """
import asyncio, os, sys
from fairlead.handlers.supervised import Supervised
from fairlead.handlers.supervisor import is_private

async def main():
    supervised = Supervised(600.0)
    before = is_private()
    supervised.new_file(None, None)
    print(before, is_private())
    supervised.close()

asyncio.run(main())
"""


def test_a_process_is_private_before_it_runs_its_first_command() -> None:
    ran = run_to_end([sys.executable, "-c", RUN], env=environment())
    assert ran.stdout.split() == ["False", "True"], ran.stderr


COMMANDS = """
[commands.hello]
argv = ["/bin/echo", "hello"]
"""


START = """
import sys
import fairlead.cli.worker as worker
from fairlead.cli.root import main
from fairlead.handlers.supervisor import is_private

def say():
    print(is_private(), flush=True)
    sys.exit()

worker.signals = say  # the first thing that a worker does with its commands known
sys.argv = ["fairlead", "worker"]
main()
"""


@pytest.mark.parametrize("commands", ["", COMMANDS], ids=["no commands", "commands"])
def test_a_worker_with_commands_is_private_from_its_start_and_warns_if_it_is_root(
    tmp_path: Path, commands: str
) -> None:
    (tmp_path / "fairlead.toml").write_text(commands)
    env = environment(FAIRLEAD_HTTP_REQUESTS="true")  # so that there is something to run
    ran = run_to_end([sys.executable, "-c", START], cwd=tmp_path, env=env)
    assert ran.stdout.splitlines()[-1:] == [str(bool(commands))], ran.stderr
    warned = "commands_run_as_root" in ran.stdout + ran.stderr
    assert warned == (os.getuid() == 0 and bool(commands))
