"""Built-in jobs as a person has them: turned on in fairlead.toml, served by `fairlead worker`."""

from pathlib import Path

import pytest

from tests.cli.test_command_jobs import Machine, serves


@pytest.fixture
def machine(database_url: str, tmp_path: Path) -> Machine:
    made = Machine(database_url, tmp_path)
    made.allows(
        'http_requests = true\n[email]\nprovider = "smtp"\nfrom = "a@acme.example"\nhost = "127.0.0.1"\n'
    )
    return made


def test_a_worker_without_an_application_serves_what_is_turned_on(machine: Machine) -> None:
    with machine.worker() as process:
        line = serves(process)
        keys = {one["key"] for one in machine.json("definitions", "list")["items"]}
        job = machine.ended(machine.enqueued("http.request", url="http://127.0.0.1:1/"))

    assert line == "serving EMAIL_SEND, http.request; Ctrl-C stops\n"
    assert {"EMAIL_SEND", "http.request"} <= keys
    assert job["status"] == "failed"
    assert job["last_error"].startswith("RequestRefused: 127.0.0.1 is not on the public network.")
