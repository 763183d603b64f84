"""The log of a function is there while the function runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.acceptance.fleet import Fleet
from tests.processes import FAIRLEAD, started, until

TOKEN = "hunter2-is-the-token"  # noqa: S105


@pytest.fixture
def fleet(database_url: str, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(database_url, tmp_path) as opened:
        yield opened
        opened.is_consistent()


def chunks(fleet: Fleet, job_id: UUID) -> str:
    """The streamed log."""
    rows = fleet.rows(
        "select text from fairlead.log_chunks where job_id = %s order by attempt_no, seq", job_id
    )
    return "".join(text for (text,) in rows)


def events(text: str) -> list[str]:
    return re.findall(r"info +(\w+)", text)


@pytest.mark.parametrize("way", ["", "_in_a_thread", "_in_a_process"])
def test_lines_are_stored_while_the_function_runs_and_once_when_it_ends(fleet: Fleet, way: str) -> None:
    with fleet.worker():
        job_id = fleet.hold(f"logs_and_waits{way}")
        until(lambda: chunks(fleet, job_id), "the first line")
        assert fleet.fl.read(job_id).status == "running"
        assert events(chunks(fleet, job_id)) == ["first"]

        fleet.let_go(job_id)
        fleet.reaches(job_id, "succeeded")

    assert events(chunks(fleet, job_id)) == ["first", "last"]


def test_a_secret_is_masked_in_streamed_lines(fleet: Fleet) -> None:
    with fleet.worker():
        job_id = fleet.enqueue("logs_and_waits", folder=str(fleet.folder), token=TOKEN)
        until(lambda: chunks(fleet, job_id), "the first line")
        fleet.let_go(job_id)
        fleet.reaches(job_id, "succeeded")

    stored = chunks(fleet, job_id)
    assert TOKEN not in stored
    assert stored.count("token=[redacted]") == 2


def test_what_was_streamed_outlives_a_killed_worker(fleet: Fleet) -> None:
    with fleet.worker() as worker:
        job_id = fleet.hold("logs_and_waits")
        until(lambda: chunks(fleet, job_id), "the first line")
        worker.kill()

        with fleet.worker():
            fleet.began(job_id, 2)
            fleet.let_go(job_id, 2)
            fleet.reaches(job_id, "succeeded")

    [(first,)] = fleet.rows(
        "select text from fairlead.log_chunks where job_id = %s and attempt_no = 1", job_id
    )
    assert events(first) == ["first"]


def test_the_command_line_follows_a_function(fleet: Fleet) -> None:
    with fleet.worker():
        job_id = fleet.hold("logs_and_waits")
        argv = [FAIRLEAD, "jobs", "logs", "-f", str(job_id)]
        env = {"FAIRLEAD_DATABASE_URL": fleet.url, "PYTHONUNBUFFERED": "1"}
        with started(argv, env=env) as following:
            assert following.stdout is not None
            assert events(following.stdout.readline()) == ["first"]
            assert fleet.fl.read(job_id).status == "running"

            fleet.let_go(job_id)
            assert events(following.stdout.read()) == ["last"]
            assert following.wait() == 0
