"""`fairlead hooks`, as a person and a script use it."""

from tests.cli.test_commands import Shell

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"  # noqa: S105
CREATE = ("hooks", "create", "github", "--scheme", "github", "--tenant")


def test_a_hook_is_created_listed_updated_rotated_tried_and_deleted(shell: Shell) -> None:
    assert "No hooks." in shell("hooks", "list").output
    made = shell.json(*CREATE, "acme")
    assert (made["path"], made["event_name"], len(made["secret"])) == (
        "/hooks/acme/github",
        "github.{type}",
        43,
    )
    [listed] = shell.json("hooks", "list", "--tenant", "acme")["items"]
    assert {**listed, "secret": made["secret"]} == made
    assert "/hooks/acme/github" in shell("hooks", "list").output.replace("\n", "")

    changes = ("--event", "code.{type}", "--unique-by", "body", "--tolerance-seconds", "60", "--disable")
    changed = shell.json("hooks", "update", "github", *changes)
    assert (changed["event_name"], changed["unique_by"], changed["tolerance_seconds"]) == (
        "code.{type}",
        "body",
        60,
    )
    assert changed["is_enabled"] is False
    assert shell.json("hooks", "update", made["id"], "--enable")["is_enabled"] is True

    rotated = shell.json("hooks", "rotate", "github", "--keep-seconds", "60")
    assert rotated["secret"] not in (None, made["secret"])
    assert rotated["old_secret_until"] is not None
    emitted = shell.json("hooks", "test", "github")
    assert shell.json("events", "show", emitted["id"])["name"] == "code.test"

    assert shell.json("hooks", "delete", "github")["id"] == made["id"]
    assert shell.refused("hooks", "delete", "github") == "hook_unknown"


def test_the_senders_secret_comes_from_standard_input_and_is_never_printed(shell: Shell) -> None:
    slack = ("hooks", "create", "slack", "--tenant", "acme", "--scheme", "slack")
    assert shell.refused(*slack) == "hook_invalid"
    assert shell.refused(*slack, "--secret-stdin", stdin="short\n") == "hook_invalid"
    told = shell(*slack, "--secret-stdin", stdin=f"{SECRET}\n")
    again = shell("hooks", "rotate", "slack", "--secret-stdin", stdin=f"{SECRET}2\n")
    assert (told.exit_code, again.exit_code) == (0, 0)
    assert SECRET not in told.output + again.output + shell("hooks", "list", "--json").output


def test_a_name_of_two_tenants_needs_the_tenant(shell: Shell) -> None:
    shell.json(*CREATE, "acme")
    theirs = shell.json(*CREATE, "umbrella")
    assert shell.refused(*CREATE, "acme") == "hook_exists"
    assert shell.refused("hooks", "test", "github") == "hook_invalid"
    assert shell.json("hooks", "delete", "github", "--tenant", "umbrella")["id"] == theirs["id"]
