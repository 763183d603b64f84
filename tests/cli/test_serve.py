"""`fairlead serve` as a person or a service manager starts it."""

import signal
import socket

import httpx2
import pytest

from tests.processes import FAIRLEAD, free_port, run, started, until


def status(url: str) -> int | None:
    try:
        return httpx2.get(url).status_code
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
        output, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert f"serving {at}/api/v1" in output
    assert "stopped" in output
    assert status(f"{at}/healthz") is None


def test_a_token_made_on_the_command_line_opens_the_api_until_it_is_revoked(database_url: str) -> None:
    import json  # noqa: PLC0415

    env = {"FAIRLEAD_DATABASE_URL": database_url}
    port = free_port()
    at = f"http://127.0.0.1:{port}/api/v1"
    made = run("tokens", "create", "ci", "--role", "operator", "--tenant", "acme", "--json", env=env)
    token = json.loads(made.stdout)
    headers = {"Authorization": f"Bearer {token['secret']}"}
    with started([FAIRLEAD, "serve", "--port", str(port)], env=env):
        until(lambda: status(f"{at}/docs") == 200, "the server")
        body = {"definition_key": "greet", "payload": {"name": "Ada"}}
        created = httpx2.post(f"{at}/jobs", json=body, headers=headers)
        assert (created.status_code, created.json()["status"]) == (201, "queued")

        run("tokens", "revoke", token["id"], env=env)

        # another process took it away: promised within five seconds
        until(
            lambda: httpx2.get(f"{at}/jobs", headers=headers).status_code == 401, "the revocation", seconds=5
        )


def test_a_port_that_is_taken_is_named(database_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = run(
            "serve", "--port", str(taken.getsockname()[1]), env={"FAIRLEAD_DATABASE_URL": database_url}
        )

    assert refused.returncode == 1
    assert "port_taken" in refused.stderr
