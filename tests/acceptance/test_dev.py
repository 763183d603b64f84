"""`fairlead dev` as a person or a script starts it."""

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from fairlead.db.addresses import describe_address
from fairlead.db.embedded import EmbeddedPostgres
from tests.processes import FAIRLEAD, free_port, run, started, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough


def _ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz", timeout=SECONDS).status_code == 200
    except httpx2.TransportError:
        return False


def _items(*argv: str, env: dict[str, str]) -> list[dict[str, Any]]:
    return list(json.loads(run(*argv, "--json", env=env).stdout)["items"])


def test_dev_runs_everything_until_it_is_told_to_stop_and_finds_its_data_the_second_time(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data with spaces"
    for number, end in enumerate((signal.SIGINT, signal.SIGTERM)):
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with started([FAIRLEAD, "dev", "--port", str(port), "--data-dir", str(data)], env={}) as process:
            until(lambda url=url: _ready(url), "/readyz")  # type: ignore[misc]
            announced = data / "dev.json"  # there as soon as /readyz says yes
            until(announced.exists, "dev.json")
            said = json.loads(announced.read_text())
            database = {"FAIRLEAD_DATABASE_URL": said["database_url"]}
            if number == 0:
                _lets_people_in(url, said, announced)
            # and no second demo is added the second time
            assert len(_items("jobs", "list", "--tenant", "demo", "--source", "manual", env=database)) == 9
            for source, times in (("manual", 5), ("schedule", 1), ("event", 1)):
                until(
                    lambda said=said, source=source, times=times: (  # type: ignore[misc]
                        _greeted(said["database_url"], source) >= times
                    ),
                    f"the worker to greet for {source}",
                )
            shared = run("tenants", "list", "--json", env={"FAIRLEAD_DATA_DIR": str(data)})
            assert {one["slug"] for one in json.loads(shared.stdout)["items"]} == {"demo", "global"}
            assert _count(said["database_url"], _TRIGGERS) == 3
            assert len(_items("events", "list", env=database)) == 2
            assert process.poll() is None

            process.send_signal(end)
            output, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        _says_where_it_is(output, url, said)
        assert not announced.exists()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(said["database_url"])


def _lets_people_in(url: str, said: dict[str, str], announced: Path) -> None:
    assert (said["url"], said["tenant"]) == (url, "demo")
    for name, role in (("tenant_admin_token", "tenant_admin"), ("super_admin_token", "super_admin")):
        assert _me(url, said[name])["role"] == role
    assert stat.S_IMODE(announced.stat().st_mode) == 0o600
    signing = {"next": "/audit", "email": said["tenant_admin_email"], "password": said["password"]}
    entered = httpx2.post(f"{url}/console/sign-in", data=signing, timeout=SECONDS)
    assert (entered.status_code, entered.headers["location"]) == (303, "/console/audit")
    assert httpx2.get(f"{url}/healthz", timeout=SECONDS).json()["status"] == "ok"


def _says_where_it_is(output: str, url: str, said: dict[str, str]) -> None:
    assert "Fairlead is running" in output
    assert f'curl -H "Authorization: Bearer {said["tenant_admin_token"]}" {url}/api/v1/jobs' in output
    assert f"password {said['password']}" in output
    assert "triggers list" in output
    assert "stopped" in output


def test_tokens_are_good_for_as_long_as_dev_runs(tmp_path: Path, database_url: str) -> None:
    argv = [FAIRLEAD, "dev", "--data-dir", str(tmp_path), "--no-demo"]
    announced = tmp_path / "dev.json"
    secrets = []
    for end in (signal.SIGKILL, signal.SIGTERM):  # the second finds what the first left behind
        port = free_port()
        before = announced.read_bytes() if announced.exists() else b""
        with started([*argv, "--port", str(port)], env={"FAIRLEAD_DATABASE_URL": database_url}) as process:
            until(lambda before=before: announced.exists() and announced.read_bytes() != before, "dev.json")  # type: ignore[misc]
            said = json.loads(announced.read_text())
            assert "tenant_admin_token" not in said
            secrets.append(said["super_admin_token"])
            assert [_me(said["url"], one).get("role") for one in secrets] == (
                [None] * (len(secrets) - 1) + ["super_admin"]
            )
            process.send_signal(end)
            process.communicate(timeout=SECONDS)
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("select revoked_at is null from fairlead.tokens").fetchall()
        users = connection.execute("select disabled_at is null from fairlead.users").fetchall()
    assert rows == [(False,), (False,)]
    assert users == [(False,)]


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    import socket  # noqa: PLC0415

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = run("dev", "--port", str(port), "--data-dir", str(tmp_path / "d"), env={})
    assert refused.returncode == 1
    assert "port_taken" in refused.stderr
    assert not (tmp_path / "d").exists()


@pytest.mark.timeout(10 * SECONDS)
def test_an_embedded_database_that_was_killed_comes_back_by_itself(tmp_path: Path) -> None:
    data = tmp_path / "d"
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with started([FAIRLEAD, "dev", "--port", str(port), "--data-dir", str(data)], env={}) as process:
        until(lambda: _ready(url), "/readyz")
        until((data / "dev.json").exists, "dev.json")
        database_url = json.loads((data / "dev.json").read_text())["database_url"]
        pid = _postmaster(database_url)
        os.kill(pid, signal.SIGKILL)
        until(lambda: _ready(url) and _is_replaced(database_url, pid), "another PostgreSQL behind /readyz")
        until(
            lambda: _greeted(database_url, "manual") == 5,
            "the worker, if it had only begun, to begin again, and its jobs, if they were lost, a lease later",
        )
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, printed


def test_dev_uses_the_database_it_is_given_and_is_not_ready_while_it_is_away(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = [FAIRLEAD, "dev", "--port", str(port), "--data-dir", str(tmp_path / "d"), "--no-demo"]
    try:
        database_url = server.start()
        # the server here asks for no password, and so takes any
        with started(argv, env={"FAIRLEAD_DATABASE_URL": f"{database_url}&password=hunter2"}) as process:
            until(lambda: _ready(url), "/readyz")
            until((tmp_path / "d" / "dev.json").exists, "dev.json")
            assert os.listdir(tmp_path / "d") == ["dev.json"]  # noqa: PTH208 - no PostgreSQL was started here
            server.stop()
            until(lambda: httpx2.get(f"{url}/readyz", timeout=SECONDS).status_code == 503, "a 503")
            server.start()
            until(lambda: _ready(url) or process.poll() is not None, "/readyz again")
            assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == 0
            assert describe_address(database_url) in output
            assert "hunter2" not in output
    finally:
        server.stop()


_TRIGGERS = "select count(*) from fairlead.job_triggers where deleted_at is null"
_GREETED = """
select count(*) from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id
where d.key = 'demo.greet' and j.status = 'succeeded' and j.source = %s
"""


def _greeted(database_url: str, source: str) -> int:
    return _count(database_url, _GREETED, source)


def _count(database_url: str, sql: str, *values: str) -> int:
    with psycopg.connect(database_url) as connection:
        [(found,)] = connection.execute(sql, values).fetchall()
    return int(found)


def _me(url: str, token: str) -> dict[str, str]:
    answer = httpx2.get(f"{url}/api/v1/me", headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS)
    return dict(answer.json())


def _is_replaced(database_url: str, pid: int) -> bool:
    """Whether another PostgreSQL answers: the server may be ready a moment longer than the one that was killed."""
    try:
        return _postmaster(database_url) != pid
    except psycopg.OperationalError:
        return False


def _postmaster(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        [(data_directory,)] = connection.execute("show data_directory").fetchall()
    return int((Path(data_directory) / "postmaster.pid").read_text().splitlines()[0])
