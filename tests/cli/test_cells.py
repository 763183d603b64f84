"""`fairlead cells`, and the commands that look at every cell."""

import json

import pytest

from tests.cli.test_commands import Shell

pytestmark = pytest.mark.thorough

PASSWORD = "a-secret-of-the-url"  # noqa: S105 - of this test


@pytest.fixture
def cell_url(database_url: str) -> str:
    """The same server with a password in the URL, which it does not ask for."""
    return f"{database_url}{'&' if '?' in database_url else '?'}password={PASSWORD}"


def test_cells_are_added_listed_drained_and_removed(shell: Shell, cell_url: str) -> None:
    assert "only this database" in shell("cells", "list").output
    added = shell.json("cells", "add", "b", cell_url, "--schema", "cell_b")
    assert (added["name"], added["home"], added["schema"]) == ("b", False, "cell_b")
    listed = {one["name"]: one for one in shell.json("cells", "list")}
    assert {name: one["tenants"] for name, one in listed.items()} == {"b": 0, "home": 2}
    assert listed["home"]["home"]
    assert shell("cells", "drain", "b").exit_code == 0
    assert shell.json("cells", "list")[0]["state"] == "draining"
    assert shell("cells", "drain", "b", "--undo").exit_code == 0
    for one in (shell("cells", "list"), shell("cells", "list", "--json"), shell("-v", "cells", "list")):
        assert one.exit_code == 0
        assert PASSWORD not in one.output + one.stderr
    assert shell("cells", "remove", "b").exit_code == 0
    assert shell.json("cells", "list") == []


def test_bad_cells_are_refused(shell: Shell, cell_url: str, database_url: str) -> None:
    assert shell.refused("cells", "add", "B!", cell_url, "--schema", "cell_b") == "cell_invalid"
    assert shell.refused("cells", "add", "b", "env:NO_SUCH_VARIABLE") == "cell_invalid"
    nowhere = f"postgresql://fairlead:{PASSWORD}@127.0.0.1:1/jobs"
    result = shell("cells", "add", "b", nowhere)
    assert result.exit_code == 1
    assert PASSWORD not in result.output + result.stderr
    assert "or the cell's URL" in result.stderr
    assert shell.json("cells", "add", "eu-1", database_url)["home"]
    shell.json("cells", "add", "b", cell_url, "--schema", "cell_b")
    assert shell.refused("cells", "add", "b", cell_url, "--schema", "cell_c") == "cell_exists"
    assert shell.refused("cells", "add", "c", cell_url, "--schema", "cell_b") == "cell_exists"
    assert shell("cells", "remove", "eu-1").exit_code == 1
    assert shell("cells", "remove", "nowhere").exit_code == 1
    assert {one["name"]: one["home"] for one in shell.json("cells", "list")} == {"eu-1": True, "b": False}


def test_migrate_and_doctor_look_at_every_cell(shell: Shell, cell_url: str) -> None:
    shell.env["CELL_B"] = cell_url
    shell.json("cells", "add", "b", "env:CELL_B", "--schema", "cell_b")
    assert shell.json("migrate", "up") == {"applied": [], "cells": {"b": []}}
    assert "cell b: schema cell_b is current" in shell("migrate", "up").output
    assert shell("migrate", "check").exit_code == 0
    found = [json.loads(line) for line in shell("doctor", "--json").stdout.splitlines()]
    assert {one.get("cell") for one in found} == {None, "b"}
    assert {one["check"] for one in found if one.get("cell") == "b"} >= {"database", "schema", "consistency"}
