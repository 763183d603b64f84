"""`fairlead serve` as a person or a service manager starts it."""

import json
import signal
import socket
from pathlib import Path

import httpx2
import pytest

from fairlead.errors import InvalidInput
from fairlead.server.app import bind
from tests.processes import FAIRLEAD, free_port, run, started, until
from tests.waiting import SECONDS


def status(url: str) -> int | None:
    try:
        return httpx2.get(url, timeout=SECONDS).status_code
    except httpx2.TransportError:
        return None


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_api_is_served_until_it_is_told_to_stop(database_url: str, end: signal.Signals) -> None:
    port = free_port()
    at = f"http://127.0.0.1:{port}"
    with started(
        [FAIRLEAD, "serve", "--port", str(port)], env={"FAIRLEAD_DATABASE_URL": database_url}
    ) as process:
        until(lambda: status(f"{at}/readyz") == 200, "/readyz")
        assert status(f"{at}/api/v1/docs") == 200
        assert status(f"{at}/api/v1/jobs") == 401

        process.send_signal(end)
        output, _ = process.communicate(timeout=SECONDS)

    assert process.returncode == 0
    assert f"serving {at}/api/v1" in output
    assert "stopped" in output
    assert status(f"{at}/healthz") is None


APP = """
from fairlead import Fairlead

fl = Fairlead()


@fl.every(3600, tenant="acme", name="hourly")
@fl.job(key="served.here")
def served(name: str = "nobody") -> str:
    return f"Hello, {name}"
"""


@pytest.mark.thorough
def test_tick_runs_the_functions_of_the_application_that_is_served(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_ENABLE_TICK": "1"}
    made = run("tokens", "create", "ci", "--role", "super_admin", "--json", env=env)
    headers = {"Authorization": f"Bearer {json.loads(made.stdout)['secret']}", "X-Tenant": "acme"}
    port = free_port()
    at = f"http://127.0.0.1:{port}/api/v1"
    with started([FAIRLEAD, "serve", "jobs:fl", "--port", str(port)], env=env, cwd=tmp_path) as process:
        until(lambda: status(f"{at}/docs") == 200, "the server")
        [schedule] = httpx2.get(f"{at}/jobs/triggers", headers=headers, timeout=SECONDS).json()["items"]
        body = {"definition_key": "served.here", "payload": {"name": "Ada"}}
        job = httpx2.post(f"{at}/jobs", json=body, headers=headers, timeout=SECONDS).json()

        ticked = httpx2.post(f"{at}/jobs/tick", headers=headers, timeout=SECONDS).json()

        ran = httpx2.get(f"{at}/jobs/{job['id']}", headers=headers, timeout=SECONDS).json()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=SECONDS)
    assert (ran["status"], ran["output"], schedule["label"]) == ("succeeded", "Hello, Ada", "hourly")
    assert ticked["statuses"]["succeeded"] >= 1
    assert "nothing to run" not in output


def test_serving_without_an_application_says_that_tick_has_nothing_to_run(database_url: str) -> None:
    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_ENABLE_TICK": "1"}
    with started([FAIRLEAD, "serve", "--port", "0"], env=env) as process:
        assert process.stdout is not None
        said = [process.stdout.readline(), process.stdout.readline()]
    assert any("POST /jobs/tick has nothing to run here" in line and "jobs:fl" in line for line in said)


@pytest.mark.parametrize("port", [99_999, 65_536, -1])
def test_a_number_that_is_no_port_is_refused_with_what_to_use(port: int) -> None:
    with pytest.raises(InvalidInput, match="use 1 to 65535, or 0 for any free one") as refused:
        bind("127.0.0.1", port)
    assert refused.value.faults[0].path == "port"


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1", "a" * 100, ":::"])
def test_a_host_that_is_none_of_this_machine_is_not_a_port_that_is_taken(host: str) -> None:
    with pytest.raises(InvalidInput, match="Name an address of this machine with --host") as refused:
        bind(host, 0)
    assert refused.value.faults[0].path == "host"


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_a_port_out_of_range_is_refused_on_the_command_line(command: str, tmp_path: Path) -> None:
    refused = run(command, "--port", "99999", env={"FAIRLEAD_DATA_DIR": str(tmp_path / "none")})
    assert refused.returncode == 1
    assert "error [invalid_input] --port 99999 is not a port" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_port_that_is_taken_is_named(database_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = run(
            "serve", "--port", str(taken.getsockname()[1]), env={"FAIRLEAD_DATABASE_URL": database_url}
        )

    assert refused.returncode == 1
    assert "port_taken" in refused.stderr
