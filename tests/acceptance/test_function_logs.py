"""The log of a function is there while the function runs."""

import re
from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.acceptance.fleet import LONG, Fleet
from tests.databases import Databases
from tests.processes import until

pytestmark = pytest.mark.thorough

TOKEN = "hunter2-is-the-token"  # noqa: S105


# No lease is to be lost because a machine stumbles.
PATIENT = {"FAIRLEAD_LEASE_SECONDS": str(LONG)}


@pytest.fixture(scope="module")
def served(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One worker for all tests that only have it run functions."""
    with databases.lend() as url, Fleet(url, tmp_path_factory.mktemp("served")) as fleet:
        with fleet.worker(**PATIENT):
            yield fleet
        fleet.is_consistent()


def chunks(fleet: Fleet, job_id: UUID) -> str:
    """The streamed log."""
    rows = fleet.rows(
        "select text from fairlead.log_chunks where job_id = %s order by attempt_no, seq", job_id
    )
    return "".join(text for (text,) in rows)


def events(text: str) -> list[str]:
    return re.findall(r"info +(\w+)", text)


@pytest.mark.parametrize("way", ["_in_a_thread", "_in_a_process"])
def test_lines_are_stored_while_the_function_runs_and_once_when_it_ends(served: Fleet, way: str) -> None:
    job_id = served.hold(f"logs_and_waits{way}")
    until(lambda: chunks(served, job_id), "the first line")
    assert served.fl.read(job_id).status == "running"
    assert events(chunks(served, job_id)) == ["first"]

    served.let_go(job_id)
    served.reaches(job_id, "succeeded")

    assert events(chunks(served, job_id)) == ["first", "last"]


def test_the_same_on_the_loop_with_a_secret_that_is_masked_in_streamed_lines(served: Fleet) -> None:
    job_id = served.enqueue("logs_and_waits", folder=str(served.folder), token=TOKEN)
    until(lambda: chunks(served, job_id), "the first line")
    assert served.fl.read(job_id).status == "running"
    served.let_go(job_id)
    served.reaches(job_id, "succeeded")

    stored = chunks(served, job_id)
    assert events(stored) == ["first", "last"]
    assert TOKEN not in stored
    assert stored.count("token=[redacted]") == 2
