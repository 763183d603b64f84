"""Processes that a chaos run watches, those that it leaves behind, and its ports."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from fairlead.chaos.history import ENDING, FOLDER_VARIABLE, HistoryWriter, ProcessRecord, read_history
from fairlead.chaos.site.access import RUN_VARIABLE
from fairlead.chaos.site.leftovers import find_marked, find_orphans, kill_marked
from fairlead.chaos.site.ports import EPHEMERAL, find_free_ports
from fairlead.chaos.site.processes import ProcessPlan, RunProcess
from fairlead.errors import ChaosFailed
from tests.processes import until
from tests.waiting import eventually

pytestmark = pytest.mark.thorough

# Prints the number of its start and what it was given, and waits.
WAITS = (
    "import os, sys, time; print('ready', sys.argv[1], os.environ.get('EXTRA'), flush=True); time.sleep(600)"
)
UNREACHABLE = (
    "import sys; print('ready', flush=True); sys.exit('error [database_unreachable] Nothing answers.')"
)


@asynccontextmanager
async def run_process(folder: Path, script: str) -> AsyncIterator[RunProcess]:
    plan = ProcessPlan(
        name="one",
        role="worker",
        argv=lambda starts: [sys.executable, "-I", "-S", "-c", script, str(starts)],
        environment={**os.environ, FOLDER_VARIABLE: str(folder)},
        ready="ready",
    )
    process = RunProcess(plan, folder, HistoryWriter(folder / f"run{ENDING}"))
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


def starts(folder: Path) -> list[tuple[int, bool]]:
    return [(one.pid, one.former_was_ready) for one in read_history(folder) if isinstance(one, ProcessRecord)]


async def test_a_process_that_was_killed_is_started_again_and_recorded(tmp_path: Path) -> None:
    async with run_process(tmp_path, WAITS) as process:
        await process.wait_until_ready()
        first = process.pid
        process.signal(signal.SIGKILL)
        await eventually(lambda: process.pid != first, "another process")
        await process.wait_until_ready()

        assert starts(tmp_path) == [(first, True), (process.pid, True)]
    assert not process.is_running()


async def test_variables_of_a_restart_are_for_one_process_only(tmp_path: Path) -> None:
    async with run_process(tmp_path, WAITS) as process:
        await process.wait_until_ready()
        await process.restart({"EXTRA": "once"})
        await process.wait_until_ready()
        second = process.pid
        process.signal(signal.SIGKILL)
        await eventually(lambda: process.pid != second, "another process")
        await process.wait_until_ready()

    said = (tmp_path / "one.log").read_text().splitlines()
    assert said == ["ready 0 None", "ready 1 once", "ready 2 None"]


async def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    async with run_process(tmp_path, WAITS) as process:
        await process.wait_until_ready()
        process.signal(signal.SIGSTOP)

    assert not process.is_running()


async def test_a_process_that_ends_as_it_starts_has_not_worked(tmp_path: Path) -> None:
    async with run_process(tmp_path, UNREACHABLE) as process:
        await eventually(lambda: process.starts > 1, "another start")

    assert [was_ready for _, was_ready in starts(tmp_path)][:2] == [True, False]


async def test_a_worker_that_has_begun_an_attempt_has_worked(tmp_path: Path) -> None:
    wrote = f"open(f'{tmp_path}/handlers-{{__import__(\"os\").getpid()}}{ENDING}', 'w'); "
    async with run_process(tmp_path, wrote + UNREACHABLE) as process:
        await eventually(lambda: process.starts > 1, "another start")

    assert [was_ready for _, was_ready in starts(tmp_path)][:2] == [True, True]


async def test_a_process_that_never_works_fails_the_run_with_the_end_of_its_log(tmp_path: Path) -> None:
    async with run_process(tmp_path, "print('no')") as process:
        await eventually(lambda: process.starts > 1, "another start")
        with pytest.raises(ChaosFailed, match=r"one was not ready within 0\.1 s(.|\n)*no"):
            await process.wait_until_ready(0.1)


def test_a_process_whose_parent_was_killed_is_an_orphan() -> None:
    run_id = uuid4().hex
    script = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    env = {**os.environ, RUN_VARIABLE: run_id}
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", script], env=env) as parent:
        try:
            until(lambda: len(find_marked(run_id)) == 2, "both processes")
            assert find_orphans(run_id, [parent.pid]) == {}
            parent.kill()
            parent.wait()

            assert len(find_orphans(run_id, [])) == 1
        finally:
            kill_marked(run_id)
    until(lambda: not find_marked(run_id), "the end of both")


def test_ports_are_free_and_never_those_of_outgoing_connections() -> None:
    ports = find_free_ports(3)

    assert len(set(ports)) == 3
    if EPHEMERAL.exists():
        assert max(ports) < int(EPHEMERAL.read_text().split()[0])
    for port in ports:
        with socket.socket() as free:
            free.bind(("127.0.0.1", port))
