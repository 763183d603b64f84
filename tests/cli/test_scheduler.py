"""`fairlead scheduler`, and the schedulers inside `serve` and `worker`, as people start and stop them."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fairlead.db.embedded import EmbeddedPostgres
from tests.cli.test_commands import Shell
from tests.processes import FAIRLEAD, free_port, run, started, until
from tests.waiting import SECONDS

ROOT = Path(__file__).parents[2]
QUICK = {"FAIRLEAD_POLL_SECONDS": "0.2", "PYTHONUNBUFFERED": "1"}
APP = "tests.acceptance.jobs_under_test:fl"


@contextmanager
def process(url: str, *argv: str, **settings: str) -> Iterator["subprocess.Popen[str]"]:
    env = {"FAIRLEAD_DATABASE_URL": url} | QUICK | settings
    with started([FAIRLEAD, *argv], env=env, cwd=ROOT) as begun:
        yield begun


def every_second(shell: Shell, definition: str = "anything") -> str:
    add = ("triggers", "add", "--tenant", "acme", "--definition", definition)
    return str(shell.json(*add, "--every", "1", "--overlap", "allow")["id"])


def outcomes(url: str, trigger_id: str) -> list[tuple[Any, ...]]:
    """(outcome, scheduled instant) of each firing, oldest first."""
    with psycopg.connect(url) as connection:
        query = "select outcome, scheduled_at from fairlead.trigger_firings where trigger_id = %s order by 2"
        return connection.execute(query, [trigger_id]).fetchall()


def fires(url: str, trigger_id: str, *, more_than: int = 0) -> None:
    until(lambda: len(outcomes(url, trigger_id)) > more_than, "the schedule to fire")


def test_the_scheduler_fires_and_dispatches_until_it_is_told_to_stop(shell: Shell, database_url: str) -> None:
    schedule = every_second(shell)
    add = ("triggers", "add", "--tenant", "acme", "--definition", "anything", "--event", "user.signed_up")
    trigger = shell.json(*add)["id"]
    with process(database_url, "scheduler") as scheduler:
        fires(database_url, schedule, more_than=1)
        shell.json("events", "emit", "user.signed_up", "{}", "--tenant", "acme")
        fires(database_url, trigger)
        scheduler.send_signal(signal.SIGINT)
        said, _ = scheduler.communicate(timeout=SECONDS)
    assert scheduler.returncode == 0
    assert said.startswith("firing schedules and dispatching events; Ctrl-C stops\n")
    assert said.endswith("stopped\n")
    at = [instant for _, instant in outcomes(database_url, schedule)]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(at)]
    assert gaps == [1.0] * (len(at) - 1)


@pytest.mark.thorough
def test_a_worker_has_a_scheduler_inside_if_it_is_asked_for(shell: Shell, database_url: str) -> None:
    """In one of its processes. With one process: test_webhooks.py."""
    schedule = every_second(shell)
    with process(database_url, "worker", APP, "--scheduler", "--processes", "2") as worker:
        fires(database_url, schedule, more_than=1)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=SECONDS)
    assert worker.returncode == 0
    fired = [instant for _, instant in outcomes(database_url, schedule)]
    assert len(fired) == len(set(fired))


@pytest.mark.parametrize("flags", [("--scheduler",), ()], ids=["asked for", "not asked for"])
def test_a_server_has_a_scheduler_inside_if_it_is_asked_for(
    shell: Shell, database_url: str, flags: tuple[str, ...]
) -> None:
    schedule = every_second(shell)
    with process(database_url, "serve", "--port", str(free_port()), *flags) as server:
        if flags:
            fires(database_url, schedule)
        else:
            line = server.stdout.readline() if server.stdout else ""
            assert "serving" in line  # all of it that is asked for runs by now
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=SECONDS)
    assert server.returncode == 0
    assert bool(outcomes(database_url, schedule)) == bool(flags)


@pytest.mark.thorough
def test_a_scheduler_rides_out_a_restart_of_the_database(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres")
    url = server.start()
    shell = Shell(url)
    try:
        assert run("migrate", "up", env={"FAIRLEAD_DATABASE_URL": url}).returncode == 0
        shell.json("tenants", "add", "acme")
        shell.json("definitions", "put", "anything")
        schedule = every_second(shell)
        with process(url, "scheduler", FAIRLEAD_CONNECT_TIMEOUT_SECONDS="4") as scheduler:
            fires(url, schedule)
            server.stop()
            server.start()
            fires(url, schedule, more_than=len(outcomes(url, schedule)))
            server.stop()
            scheduler.send_signal(signal.SIGTERM)  # and stops decently while it is away
            scheduler.communicate(timeout=SECONDS)
        assert scheduler.returncode == 0
    finally:
        server.stop()
