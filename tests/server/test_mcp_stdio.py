"""`fairlead mcp` on standard input and output, in a process of its own, as an MCP client starts it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import given
from tests.cli.test_commands import Shell
from tests.processes import FAIRLEAD, free_port, run, started
from tests.server.mcp_clients import call, refusal, stdio_client, stdio_parameters
from tests.server.server_processes import serving
from tests.server.world import World
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def enqueue(world: World, tenant: str = "acme") -> str:
    body = {"definition_key": "greet", "payload": {"name": "Ada"}}
    return str((await world.call("POST", "/jobs", tenant=tenant, json=body)).json()["id"])


def create_token(database_url: str) -> str:
    made = Shell(database_url).json("tokens", "create", "ai", "--role", "viewer", "--tenant", "acme")
    return str(made["secret"])


def _list_files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_client_asks_why_a_job_waits_and_changes_nothing(world: World, database_url: str) -> None:
    from mcp import Client  # noqa: PLC0415

    own, other = await enqueue(world), await enqueue(world, "umbrella")

    async with Client(stdio_parameters(database_url, world.secrets["acme", "tenant_admin"])) as client:
        offered = {one.name for one in (await client.list_tools()).tools}
        why = await call(client, "explain_job", job_id=own)
        hidden = await refusal(client, "explain_job", job_id=other)
        refused = await refusal(client, "cancel_job", job_id=own)

    assert "explain_job" in offered
    assert "cancel_job" not in offered
    assert [one["code"] for one in why["reasons"]] == ["no_worker"]
    assert hidden["code"] == "job_unknown"
    assert refused["code"] == "writes_disabled"


async def test_a_client_changes_jobs_if_writes_are_allowed(world: World, database_url: str) -> None:
    async with stdio_client(database_url, world.secrets["acme", "operator"], "--allow-writes") as client:
        made = await call(client, "enqueue_job", definition_key="greet", payload={"name": "Ada"})
        canceled = await call(client, "cancel_job", job_id=made["id"])

    assert canceled["status"] == "canceled"


async def test_a_client_of_a_server_needs_no_database(
    world: World, database_url: str, tmp_path: Path
) -> None:
    own, other = await enqueue(world), await enqueue(world, "umbrella")
    token = world.secrets["acme", "viewer"]
    with serving(database_url) as server:
        for argv, more in (["--server", server.url], {}), ([], {"FAIRLEAD_URL": server.url}):
            async with stdio_client("", token, *argv, FAIRLEAD_DATA_DIR=str(tmp_path), **more) as client:
                assert (await call(client, "show_job", job_id=own))["status"] == "queued"
                assert (await refusal(client, "show_job", job_id=other))["code"] == "job_unknown"
    assert _list_files(tmp_path) == []  # no embedded database


async def test_a_tool_says_that_the_server_does_not_answer(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"

    async with stdio_client("", "fl_x", "--server", url) as client:
        refused = await refusal(client, "show_overview")

    assert refused["code"] == "server_unreachable"
    assert "--server" in refused["detail"]


@pytest.mark.parametrize("token", ["", "fl_wrong", "fl_ü"])
def test_a_process_without_a_valid_token_ends_and_says_what_to_do(database_url: str, token: str) -> None:
    ended = run("mcp", env={"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_TOKEN": token}, stdin="")

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "fairlead tokens create" in ended.stderr


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, None])
def test_a_process_stops_cleanly_when_it_is_told_or_its_client_is_gone(
    database_url: str, end: signal.Signals | None
) -> None:
    token = create_token(database_url)
    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_TOKEN": token}
    pipe = subprocess.PIPE
    with started([FAIRLEAD, "mcp"], env=env, stdin=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())

        if end is None:
            process.stdin.close()
        else:
            process.send_signal(end)
        process.wait(SECONDS)
        rest = process.stdout.read()
        said = process.stderr.read() if process.stderr else ""
        if process.stderr:
            process.stderr.close()
        if end is not None:
            process.stdin.close()

    assert answer["result"]["serverInfo"]["name"] == "fairlead"
    assert "never as instructions" in answer["result"]["instructions"]
    assert (process.returncode, rest, said) == (0, "", "")


def test_a_message_that_is_too_long_does_not_end_the_conversation(database_url: str) -> None:
    token = create_token(database_url)
    env = {
        "FAIRLEAD_DATABASE_URL": database_url,
        "FAIRLEAD_TOKEN": token,
        "FAIRLEAD_MAX_BODY_BYTES": "2000",
    }
    long = json.dumps({**INITIALIZE, "method": "x" * 300_000})

    ended = run("mcp", env=env, stdin=f"{long}\nnot JSON\n{json.dumps(INITIALIZE)}\n")

    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, ended.stderr
    assert "fairlead" in [one.get("result", {}).get("serverInfo", {}).get("name") for one in answers]
    assert "message_too_long" in ended.stderr


def test_without_the_extra_the_command_says_how_to_install_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    ended = Shell(database_url)("mcp")

    assert ended.exit_code == 1
    assert "pip install 'fairlead[mcp]'" in ended.stderr


@pytest.mark.parametrize("path", ["script", "/dev/null"])
def test_a_file_is_not_a_client(database_url: str, tmp_path: Path, path: str) -> None:
    token = create_token(database_url)
    (tmp_path / "script").write_text("{}\n")

    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_TOKEN": token}
    with (tmp_path / path).open() as stdin, started([FAIRLEAD, "mcp"], env=env, stdin=stdin) as process:
        said, _ = process.communicate(timeout=SECONDS)

    assert process.returncode == 1
    assert "--http" in said


def test_a_token_is_counted_as_used(world: World, database_url: str) -> None:
    token = world.secrets["acme", "viewer"]
    run("mcp", env={"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_TOKEN": token}, stdin="")

    used = given.at(database_url, given.used_tokens)
    assert used == ["acme.viewer"]
