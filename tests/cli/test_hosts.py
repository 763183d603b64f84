"""`fairlead hosts`, `resources`, `definitions install`, and jobs for a host, as a person and a script use them."""

import json
import re
from typing import Any

from tests.cli.test_commands import Shell, text


def rack(shell: Shell, name: str = "rack-1", *more: str, tenant: str = "acme") -> dict[str, Any]:
    return dict(shell.json("hosts", "add", name, "--tenant", tenant, *more))


def test_a_host_is_added_listed_shown_and_changed(shell: Shell) -> None:
    made = rack(shell, "rack-1", "--labels", '{"zone": "a"}')
    assert (made["name"], made["max_running"], made["labels"]) == ("rack-1", 1, {"zone": "a"})
    assert [one["id"] for one in shell.json("hosts", "list", "--tenant", "acme")["items"]] == [made["id"]]
    assert shell.json("hosts", "list", "--tenant", "umbrella")["items"] == []
    assert "rack-1 offline 0/1 – – –" in text(shell, "hosts", "list")

    changed = shell.json("hosts", "change", "rack-1", "--max-running", "3", "--name", "rack-one")
    assert (changed["id"], changed["max_running"], changed["name"]) == (made["id"], 3, "rack-one")
    assert changed["labels"] == {"zone": "a"}
    shown = text(shell, "hosts", "show", made["id"])
    assert "running 0 of at most 3" in shown
    assert "The host has no resources." in shown
    assert "added host rack-2" in text(shell, "hosts", "add", "rack-2", "--tenant", "acme")

    assert shell.refused("hosts", "add", "x", "--tenant", "acme", "--labels", "[]") == "invalid_input"
    assert shell.refused("hosts", "show", "nobody") == "host_unknown"


def test_a_name_that_two_tenants_have_needs_the_tenant(shell: Shell) -> None:
    mine, theirs = rack(shell), rack(shell, tenant="umbrella")
    assert shell.refused("hosts", "show", "rack-1") == "invalid_input"
    assert shell.json("hosts", "show", "rack-1", "--tenant", "acme")["id"] == mine["id"]
    assert shell.refused("hosts", "show", theirs["id"], "--tenant", "acme") == "host_unknown"


def test_a_host_is_paused_drained_and_resumed(shell: Shell) -> None:
    rack(shell)
    paused = shell.json("hosts", "pause", "rack-1", "--note", "new disk")
    assert (paused["pause_note"], paused["paused_at"] is not None) == ("new disk", True)
    assert shell.json("hosts", "drain", "rack-1")["draining"] is True
    assert "offline, paused, draining" in text(shell, "hosts", "list")
    assert "note new disk" in text(shell, "hosts", "show", "rack-1")

    resumed = shell.json("hosts", "resume", "rack-1")
    assert (resumed["paused_at"], resumed["draining"]) == (None, False)
    assert text(shell, "hosts", "pause", "rack-1") == "paused rack-1\n"


def test_enrolment_is_one_line_to_copy_and_revoking_says_how_many(shell: Shell) -> None:
    host = rack(shell)
    result = shell("hosts", "enrol", "rack-1", "--server", "https://jobs.example/")
    assert result.exit_code == 0
    line = r"fairlead agent --server https://jobs\.example --enrol fl_[\w-]+\n"
    assert re.fullmatch(line, result.stdout), result.stdout
    assert "Run it once on rack-1. The code expires in 15 min." in result.stderr

    told = shell.json("hosts", "enrol", "rack-1", "--server", "http://127.0.0.1:8000")
    assert told["command"] == f"fairlead agent --server http://127.0.0.1:8000 --enrol {told['code']}"
    assert told["host_id"] == host["id"]
    assert shell.json("hosts", "revoke", "rack-1") == {"host_id": host["id"], "tokens": 0}
    assert text(shell, "hosts", "revoke", "rack-1") == "revoked 0 tokens of rack-1\n"


def test_a_host_is_removed_by_its_name_with_what_is_on_it(shell: Shell) -> None:
    first = rack(shell)
    shell.json("resources", "add", "lobby", "--host", "rack-1", "--kind", "server")
    assert shell.json("hosts", "remove", "rack-1")["id"] == first["id"]
    assert shell.json("hosts", "list")["items"] == shell.json("resources", "list")["items"] == []
    rack(shell)
    assert text(shell, "hosts", "remove", "rack-1") == "removed rack-1\n"


def test_a_resource_is_added_listed_and_moved(shell: Shell) -> None:
    first, second = rack(shell), rack(shell, "rack-2")
    lobby = shell.json("resources", "add", "lobby", "--host", "rack-1", "--kind", "server")
    assert (lobby["host_id"], lobby["host"], lobby["kind"]) == (first["id"], "rack-1", "server")
    assert [one["name"] for one in shell.json("resources", "list", "--host", "rack-1")["items"]] == ["lobby"]
    assert shell.json("resources", "list", "--kind", "volume")["items"] == []
    assert "lobby server rack-1" in text(shell, "resources", "list")
    assert [one["id"] for one in shell.json("hosts", "show", "rack-1")["resources"]] == [lobby["id"]]

    assert shell.json("resources", "move", "lobby", "--host", "rack-2")["host_id"] == second["id"]
    assert text(shell, "resources", "move", lobby["id"], "--host", "rack-1") == "server lobby is on rack-1\n"

    assert shell.refused("resources", "move", "nobody", "--host", "rack-1") == "resource_unknown"


def test_the_server_definitions_are_installed_once(shell: Shell) -> None:
    made = shell.json("definitions", "install", "servers")["items"]
    assert [one["key"] for one in made] == ["SERVER_START", "SERVER_STOP", "SERVER_RESTART"]
    for one in made:
        assert (one["kind"], one["resource_pointer"], one["version"]) == ("host", "/serverInstanceId", 1)
        assert (one["max_attempts"], one["timeout_seconds"]) == (3, 300)
        assert (one["backoff"]["base_seconds"], one["backoff"]["factor"]) == (2, 2)
        assert one["arg_schema"]["required"] == ["serverInstanceId"]

    shell.json("definitions", "put", "SERVER_STOP", "--timeout-seconds", "60")
    again = shell.json("definitions", "install", "servers")["items"]
    assert [(one["version"], one["timeout_seconds"]) for one in again] == [(1, 300), (2, 60), (1, 300)]
    assert "SERVER_RESTART host 1 300 s 3" in text(shell, "definitions", "install", "servers")


def test_a_job_is_enqueued_for_a_host_a_resource_or_what_its_payload_names(shell: Shell) -> None:
    shell.json("definitions", "install", "servers")
    host = rack(shell)
    lobby = shell.json("resources", "add", "lobby", "--host", "rack-1", "--kind", "server")
    enqueue = ("jobs", "enqueue", "anything", "--tenant", "acme")

    for name in ("rack-1", host["id"]):
        job = shell.json(*enqueue, "--host", name)
        assert (job["host_id"], job["resource_id"]) == (host["id"], None)
    for name in ("lobby", lobby["id"]):
        job = shell.json(*enqueue, "--resource", name)
        assert (job["host_id"], job["resource_id"]) == (host["id"], lobby["id"])
    start = ("jobs", "enqueue", "SERVER_START", "--tenant", "acme")
    job = shell.json(*start, '{"serverInstanceId": "lobby"}')
    assert (job["host_id"], job["resource_id"]) == (host["id"], lobby["id"])
    assert f"host {host['id']}" in text(shell, "jobs", "show", job["id"])
    assert "The agent of host rack-1 has never been seen." in text(shell, "jobs", "why", job["id"])

    assert shell.refused(*enqueue, "--host", "nobody") == "host_unknown"
    assert shell.refused(*enqueue, "--resource", "nobody") == "resource_unknown"
    line = json.dumps({"definition": "anything", "host_id": host["id"]})
    [made] = shell.json("jobs", "enqueue", "--tenant", "acme", "--file", "-", stdin=line)["items"]
    assert shell.json("jobs", "show", made["id"])["host_id"] == host["id"]
