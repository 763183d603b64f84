"""Commands over several cells: they act in the cell of the tenant, and lists show all cells."""

import json

import pytest

from tests.cli.test_commands import Shell

pytestmark = pytest.mark.thorough


@pytest.fixture
def shell(database_url: str) -> Shell:
    """A shell over two cells: the tenant `far` lives in the cell `b`, with a job in each cell."""
    shell = Shell(database_url)
    shell.json("cells", "add", "b", database_url, "--schema", "cell_b")
    shell.json("tenants", "add", "far", "--cell", "b")
    return shell


def test_a_command_acts_in_the_cell_of_its_tenant(shell: Shell) -> None:
    far = shell.json("jobs", "enqueue", "anything", "--tenant", "far", "{}")["id"]
    near = shell.json("jobs", "enqueue", "anything", "--tenant", "acme", "{}")["id"]
    assert [one["id"] for one in shell.json("jobs", "list", "--tenant", "far")["items"]] == [far]
    # by id
    assert shell.json("jobs", "show", far)["tenant"] == "far"
    assert shell.json("jobs", "cancel", far)["status"] == "canceled"
    assert shell.refused("jobs", "show", "018f0000-0000-7000-8000-000000000000") == "job_unknown"
    assert shell.json("tenants", "set", "far", "--weight", "3")["weight"] == 3
    # lists
    assert {one["id"]: one["cell"] for one in shell.json("jobs", "list")["items"]} == {near: "home", far: "b"}
    assert [one["id"] for one in shell.json("--cell", "b", "jobs", "list")["items"]] == [far]
    cells = {one["slug"]: one["cell"] for one in shell.json("tenants", "list")["items"]}
    assert (cells["far"], cells["acme"]) == ("b", "home")
    table = shell("tenants", "list").output
    assert "cell" in table.splitlines()[0]
    assert json.loads(shell("status", "--json").stdout)["counts"]["queued"] == 1  # exit 1: there is no worker
    assert shell.json("usage")["totals"]["runs"] == 0
    for group in ("audit", "workers"):
        assert shell(group).exit_code == 0
    for group in ("errors", "events", "hosts", "hooks", "users", "tokens", "triggers", "resources"):
        assert shell(group, "list").exit_code == 0, group
    assert shell.refused("jobs", "list", "--cursor", near) == "invalid_input"
    assert shell.refused("--cell", "nowhere", "jobs", "list") == "cell_unknown"
