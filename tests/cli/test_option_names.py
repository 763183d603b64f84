"""Refusals name the options that a person gave, and lists name tenants by slug."""

import json

from tests.cli.test_commands import Shell
from tests.tables import each_case

ADD = ("triggers", "add", "--tenant", "acme", "--definition", "anything")


@each_case(
    ("argv", "named", "unnamed"),
    [
        ((*ADD, "--cron", "@daily", "--start-at", "2026-02-16"), "--start-at", "start_at"),
        ((*ADD, "--every", "60", "--timezone", "Europe/Paris"), "--cron", "cron_expr"),
        ((*ADD, "--every", "60", "--cron", "@daily"), "--every", "every_seconds"),
        ((*ADD, "--every", "60", "--window", "-1"), "--window", "dedupe_window_seconds"),
        ((*ADD, "--event", "a.b", "--catch-up", "one"), "--catch-up", "catch_up"),
        (("tenants", "add", "initech", "--max-running", "-1"), "--max-running", "max_running"),
        (
            ("jobs", "enqueue", "anything", "--tenant", "acme", "--max-attempts", "0"),
            "--max-attempts",
            "max_attempts",
        ),
        (
            ("jobs", "enqueue", "anything", "--tenant", "acme", "--scheduled-for", "soon"),
            "--scheduled-for",
            "scheduled_for",
        ),
        (("definitions", "put", "x", "--timeout-seconds", "0"), "--timeout-seconds", "timeout_seconds"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_refusal_names_the_option_and_not_the_column(
    shell: Shell, argv: tuple[str, ...], named: str, unnamed: str
) -> None:
    refused = shell(*argv)
    assert refused.exit_code == 1
    assert named in refused.stderr
    assert unnamed not in refused.stderr
    # machines get the fields, as over HTTP
    assert unnamed in shell(*argv, "--json").stderr


def test_a_field_that_is_an_ordinary_word_is_replaced_only_where_the_message_begins_with_it(
    shell: Shell,
) -> None:
    refused = shell("tenants", "add", "initech", "--weight", "0")
    assert "--weight" in refused.stderr
    document = json.loads(shell("tenants", "add", "initech", "--weight", "0", "--json").stderr)
    assert document["errors"][0]["path"] == "weight"


def test_tenants_are_shown_by_slug_in_every_list(shell: Shell) -> None:
    shell.json("hosts", "add", "rack-7", "--tenant", "acme")
    shell.json("resources", "add", "s1", "--host", "rack-7", "--kind", "server", "--tenant", "acme")
    shell(
        "users",
        "add",
        "ada@example.com",
        "--role",
        "viewer",
        "--tenant",
        "acme",
        "--password-stdin",
        stdin="a long password\n",
    )
    shell.json("tokens", "create", "ci", "--role", "viewer", "--tenant", "acme")
    workflow = {"key": "w", "steps": [{"name": "one", "definition": "anything"}]}
    shell.json("workflows", "put", "-", "--tenant", "acme", stdin=json.dumps(workflow))
    acme = next(one["id"] for one in shell.json("tenants", "list")["items"] if one["slug"] == "acme")

    for argv in (
        ("hosts", "list"),
        ("hosts", "show", "rack-7"),
        ("resources", "list"),
        ("users", "list"),
        ("tokens", "list"),
        ("workflows", "list"),
        ("workflows", "show", "w", "--tenant", "acme"),
    ):
        said = shell(*argv)
        assert "acme" in said.output, (argv, said.output, said.stderr)
        assert acme not in said.output, argv
