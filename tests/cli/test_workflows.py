"""`fairlead workflows`, as a person and a script use it."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from fairlead import Fairlead, Settings
from tests.cli.test_commands import Shell, text

NOBODY = "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"
ONBOARD: dict[str, Any] = {
    "key": "onboard",
    "description": "A new customer",
    "steps": [
        {"name": "create", "definition": "anything", "payload": {"email": "{{input.email}}"}},
        {"name": "greet", "definition": "greet", "payload": {"name": "{{input.name}}"}, "after": ["create"]},
        {
            "name": "mail",
            "definition": "anything",
            "for_each": ["a", "b"],
            "after": ["create"],
            "on_failure": "continue",
        },
    ],
}
ADA = '{"email": "ada@example.com", "name": "Ada"}'


def put(shell: Shell, *more: str, **changes: Any) -> Any:
    return shell.json("workflows", "put", "-", *more, stdin=json.dumps({**ONBOARD, **changes}))


def run_all(url: str, *, broken: bool = False) -> None:
    """Run what waits, and what follows from it."""
    fl = Fairlead(settings=Settings(database_url=url))
    fl.allow_engine()

    @fl.job(key="anything")
    async def anything(email: str = "") -> str:
        return f"made {email}"

    @fl.job(key="greet", max_attempts=1)
    async def greet(name: str) -> str:
        if broken:
            raise ValueError("nobody is there")
        return f"hello {name}"

    async def go() -> None:
        async with fl:
            while (await fl.tick(10)).ran:
                pass

    asyncio.run(go())


def test_a_workflow_is_put_listed_and_shown(shell: Shell, tmp_path: Path) -> None:
    assert "fairlead workflows put" in text(shell, "workflows", "list")
    file = tmp_path / "onboard.json"
    file.write_text(json.dumps(ONBOARD))
    assert text(shell, "workflows", "put", str(file)) == "published onboard version 1\n"
    assert text(shell, "workflows", "put", str(file)) == "unchanged onboard version 1\n"
    changed = put(shell, description="Changed")
    assert (changed["version"], changed["is_new"], changed["is_shared"]) == (2, True, True)
    own = put(shell, "--tenant", "acme")
    assert (own["version"], own["is_shared"]) == (1, False)

    both = shell.json("workflows", "list")["items"]
    assert [(one["key"], one["tenant"], one["version"], one["steps"]) for one in both] == [
        ("onboard", "global", 2, 3),
        ("onboard", "acme", 1, 3),
    ]
    assert [one["tenant"] for one in shell.json("workflows", "list", "--tenant", "acme")["items"]] == ["acme"]
    assert "onboard shared by all 2 3 " in text(shell, "workflows", "list", "--tenant", "umbrella")

    shown = text(shell, "workflows", "show", "onboard")
    assert "for every tenant" in shown
    assert "greet greet create – – stop " in shown
    assert 'mail anything create ["a","b"] – continue {}' in shown
    assert (
        shell.json("workflows", "show", "onboard", "--version", "1")["spec"]["description"]
        == "A new customer"
    )
    assert shell.json("workflows", "show", "onboard", "--tenant", "acme")["id"] == own["id"]
    spec = json.dumps(shell.json("workflows", "show", "onboard")["spec"])
    assert shell.json("workflows", "put", "-", stdin=spec)["is_new"] is False


def test_a_run_is_started_waited_for_and_shown(shell: Shell, database_url: str) -> None:
    put(shell)
    start = ("workflows", "start", "onboard", "--tenant", "acme")
    run = shell.json(*start, "--input", "-", "--key", "k", "--correlation-id", "c", stdin=ADA)
    assert (run["status"], run["correlation_id"], run["deduplicated"]) == ("running", "c", False)
    assert [one["definition_key"] for one in shell.json("jobs", "list", "--run", run["id"])["items"]] == [
        "anything"
    ]
    assert f"already exists: {run['id']}" in text(shell, *start, "--key", "k")
    assert shell.refused(*start, "--key", "k", "--wait", "--timeout", "0.01") == "result_timeout"

    now = text(shell, "workflows", "run", run["id"])
    assert "steps 1 running, 2 waiting" in now
    assert "greet waiting greet create – – – – – – –" in now
    run_all(database_url)
    told = shell.json(*start, "--key", "k", "--wait")
    assert (told["status"], told["output"]["greet"]) == ("succeeded", "hello Ada")
    assert 'succeeded: {"mail":["made ","made "],"greet":"hello Ada"}' in text(
        shell, *start, "--key", "k", "--wait"
    )
    over = text(shell, "workflows", "run", run["id"])
    assert "status succeeded" in over
    assert re.search(r"mail succeeded anything create 2/2 – \d+ s ago [\d.]+ s [\d.]+ s – –", over)
    document = shell.json("workflows", "run", run["id"], "--first", "2")
    assert [(step["name"], step["after"], step["items"]) for step in document["steps"]] == [
        ("mail", ["create"], 2)
    ]
    assert (document["counts"], document["next_first"]) == ({"succeeded": 3}, None)
    assert "secret_paths" not in document["run"]


def test_the_input_may_stand_by_its_place_or_its_name_and_not_both(shell: Shell) -> None:
    put(shell)
    start = ("workflows", "start", "onboard", "--tenant", "acme")

    by_place = shell.json(*start, ADA)
    by_name = shell.json(*start, "--input", ADA)
    from_stdin = shell.json(*start, "-", stdin=ADA)

    assert by_place["input"] == by_name["input"] == from_stdin["input"] == json.loads(ADA)
    assert shell.refused(*start, ADA, "--input", ADA) == "invalid_input"


def test_a_run_that_failed_says_why_first_and_goes_on_when_it_is_retried(
    shell: Shell, database_url: str
) -> None:
    put(shell)
    start = ("workflows", "start", "onboard", "--tenant", "acme", "--input", ADA)
    run = shell.json(*start, "--key", "k")
    run_all(database_url, broken=True)
    told = text(shell, "workflows", "run", run["id"])
    assert told.startswith("error step greet: ")
    assert "nobody is there" in told
    failed = shell(*start, "--key", "k", "--wait")
    assert failed.exit_code == 1
    assert "[workflow_run_failed]" in failed.stderr
    assert " failed 3 0 " in text(shell, "workflows", "runs")

    assert text(shell, "workflows", "retry", run["id"]) == f"resumed {run['id']}\n"
    run_all(database_url)
    assert shell.json("workflows", "run", run["id"])["run"]["status"] == "succeeded"
    assert shell.refused("workflows", "retry", run["id"]) == "workflow_run_not_retryable"
    assert shell.refused("workflows", "cancel", run["id"]) == "workflow_run_over"


def test_runs_are_narrowed_walked_and_canceled(shell: Shell) -> None:
    assert "fairlead workflows start" in text(shell, "workflows", "runs")
    put(shell)
    put(shell, key="other")
    made = [
        shell.json("workflows", "start", key, "--tenant", tenant, "--input", ADA)["id"]
        for key, tenant in (("onboard", "acme"), ("other", "acme"), ("onboard", "umbrella"))
    ]
    assert text(shell, "workflows", "cancel", made[0]) == f"canceled {made[0]}\n"
    assert shell.json("workflows", "cancel", made[0])["status"] == "canceled"

    def ids(*options: str) -> list[str]:
        return [one["id"] for one in shell.json("workflows", "runs", *options)["items"]]

    assert ids() == made[::-1]
    assert ids("--tenant", "acme") == made[1::-1]
    for option in ("--workflow", "--key"):
        assert ids(option, "onboard", "--limit", "1") == [made[2]]
    assert ids("--after", made[2]) == made[1::-1]
    assert ids("--status", "canceled") == [made[0]]
    assert ids("--status", "running") == [made[2], made[1]]


def test_what_cannot_be_is_refused_each_with_its_code(shell: Shell) -> None:
    assert shell.refused("workflows", "put", "-", stdin="{") == "invalid_input"
    circle = [{"name": name, "definition": "anything", "after": [after]} for name, after in ("ab", "ba")]
    told = shell("workflows", "put", "-", stdin=json.dumps({"key": "w", "steps": circle}))
    assert "/steps/0/after: these steps wait for each other: a → b → a" in told.stderr
    for command in ("run", "cancel", "retry"):
        assert shell.refused("workflows", command, NOBODY) == "workflow_run_unknown", command
    assert shell("workflows", "put", "/nowhere/x.json").exit_code == 2


def test_what_is_no_text_is_refused_plainly(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(b"\xff")
    put(shell)
    assert shell.refused("workflows", "put", str(file)) == "invalid_input"
    assert shell.refused("jobs", "enqueue", "--file", str(file)) == "invalid_input"
    assert shell.refused("events", "emit", "a.b", "\udcff", "--tenant", "acme") == "invalid_input"


def test_a_trigger_runs_a_workflow(shell: Shell, database_url: str) -> None:
    put(shell)
    run_all(database_url)  # ENGINE_RUN is there once a worker was
    add = ("triggers", "add", "--tenant", "acme", "--event", "user.created")
    assert "either --definition or --workflow" in shell(*add).stderr
    assert shell(*add, "--workflow", "onboard", "--definition", "anything").exit_code == 2
    template = '{"email": "{{event.email}}", "name": "{{event.name}}"}'

    made = shell.json(*add, "--workflow", "onboard", "--payload", template)
    missing = shell.json(*add, "--workflow", "offboard", "--disabled")

    assert (made["label"], made["definition_key"], made["warnings"]) == ("onboard", "ENGINE_RUN", [])
    assert made["payload_template"] == {"workflow": "onboard", "input": json.loads(template)}
    assert missing["warnings"] == [{"path": "/workflow", "message": "there is no workflow 'offboard' yet"}]
