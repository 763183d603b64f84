"""`fairlead dev APP`: the newcomer's own code, reloaded when it changes."""

from pathlib import Path

import pytest

from tests.dev import Dev, dev
from tests.given import TENANT
from tests.processes import FAIRLEAD, started, until

pytestmark = pytest.mark.thorough

HELLO = """
import asyncio
import os
from fairlead import Fairlead

fl = Fairlead()


@fl.every(3600, tenant="demo", name="hourly")
@fl.job(max_attempts=1)
async def greet(ctx, name: str = "nobody") -> str:
    if name == "crash":
        os._exit(7)
    if name == "wait" and "Hello" == "{word}":
        await asyncio.Event().wait()
    return f"{word}, {{name}}"
"""


def test_dev_runs_an_application_reloads_it_when_it_changes_and_survives_its_errors(
    tmp_path: Path, database_url: str
) -> None:
    source = tmp_path / "hello.py"
    with dev(tmp_path, database_url, "hello:fl") as running:
        running.wait_for("The module 'hello' was not found")
        running.wait_for("it restarts when a file changes")
        source.write_text("def greet(:\n")
        running.wait_for("SyntaxError: invalid syntax")
        running.wait_for("it restarts when a file changes", times=2)

        source.write_text(HELLO.format(word="Hello"))
        running.wait_for("hello:fl: serving greet")
        assert running.job_when(running.enqueue("Ada"), "succeeded")["output"] == "Hello, Ada"
        [hourly] = running.api("GET", "/jobs/triggers?definition_key=greet")["items"]
        assert hourly["label"] == "hourly"
        waiting = running.enqueue("wait")
        running.job_when(waiting, "running")

        source.write_text(HELLO.format(word="Howdy"))  # as long as before, and in the same second perhaps
        # far within its lease, so it was given back; and uncharged, as it has one attempt only
        assert running.job_when(waiting, "succeeded")["output"] == "Howdy, wait"
        running.wait_for("hello.py changed: reloading hello:fl")

        running.enqueue("crash")
        running.wait_for("the worker of hello:fl ended with 7; restarting it")
        assert running.job_when(running.enqueue("Ada"), "succeeded")["output"] == "Howdy, Ada"


def test_without_reload_a_change_is_left_alone_and_a_killed_dev_takes_its_worker_along(
    tmp_path: Path, database_url: str
) -> None:
    source = tmp_path / "hello.py"
    hello = HELLO.format(word="Hello").replace("demo", TENANT)  # without the demo, there is no such tenant
    source.write_text(hello + "print('worker is', os.getpid(), flush=True)\n")
    env = {"FAIRLEAD_DATABASE_URL": database_url}
    argv = [FAIRLEAD, "dev", "hello:fl", "--no-reload", "--no-demo", "--port", "0"]
    with started(argv, env=env, cwd=tmp_path) as process:
        running = Dev(process, tmp_path)
        running.wait_for("hello:fl: serving greet")
        [line] = [line for line in running.lines if line.startswith("worker is")]
        source.write_text("def greet(:\n")
        process.kill()
        process.wait()

        until(lambda: not _is_alive(int(line.split()[-1])), "the worker to end")
    assert not any("reloading" in line for line in running.lines)


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "Z" not in stat.rpartition(")")[2].split()[0]
