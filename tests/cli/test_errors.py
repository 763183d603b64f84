"""`fairlead errors`, as a person and a script use it."""

import asyncio

import pytest

from fairlead import Fairlead, Settings
from fairlead.actions import error_groups
from tests import given
from tests.cli.test_commands import Shell

NOBODY = "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"


@pytest.fixture
def shell(database_url: str) -> Shell:
    asyncio.run(fail(database_url))
    return Shell(database_url)


async def fail(database_url: str) -> None:
    async with Fairlead(settings=Settings(database_url=database_url)) as fl, fl.transaction() as tx:
        for error in ("E: 1", "E: 2", "Other"):
            await given.failed_job(tx, error)
        while await error_groups.fold_failures(tx):
            pass


def test_errors_are_listed_shown_and_retried(shell: Shell) -> None:
    first, other = shell.json("errors", "list")["items"]
    assert (first["pattern"], first["dead_letter"], other["pattern"]) == ("E: <n>", 2, "Other")
    assert "E: <n>" in shell("errors", "list", "--tenant", "acme").output
    assert "No matching errors" in shell("errors", "list", "--tenant", "umbrella").output
    shown = shell.json("errors", "show", first["id"])
    assert (shown["sample"], len(shown["jobs"])) == ("E: 2", 2)
    assert "2 dead_letter, 0 failed" in shell("errors", "show", first["id"]).output

    assert shell.refused("errors", "retry", first["id"]) == "invalid_input"
    assert shell.json("errors", "retry", first["id"], "--since", "2999-01-01")["count"] == 0
    assert "queued again 2 jobs." in shell("errors", "retry", first["id"], "--since", "1h", "--yes").output
    assert [one["pattern"] for one in shell.json("errors", "list")["items"]] == ["Other"]
    assert shell.refused("errors", "show", NOBODY) == "error_group_unknown"


def test_an_error_is_muted_and_unmuted(shell: Shell) -> None:
    first, _ = shell.json("errors", "list")["items"]
    muted = shell.json("errors", "mute", first["id"], "--for", "12h", "--note", "known")
    assert (muted["is_muted"], muted["mute_note"]) == (True, "known")
    assert [one["id"] for one in shell.json("errors", "list", "--state", "muted")["items"]] == [first["id"]]
    assert "until" in shell("errors", "show", first["id"]).output
    assert shell("errors", "mute", first["id"], "--off").output == "no longer muted\n"
    assert shell.refused("errors", "mute", first["id"], "--for", "soon") == "invalid_input"
