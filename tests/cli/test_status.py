"""`fairlead status`, as a person and a script use it."""

import pytest

from tests import given
from tests.cli.test_commands import Shell


@pytest.fixture
def shell(database_url: str) -> Shell:
    given.at(database_url, given.run_checks_now)
    return Shell(database_url)


def test_without_problems_it_says_so_and_exits_with_0(shell: Shell) -> None:
    found = shell("status")

    assert found.exit_code == 0
    assert found.output.startswith("Everything is fine")
    assert shell.json("status")["verdict"] == "ok"


def test_a_warning_exits_with_0_and_a_problem_with_1(shell: Shell) -> None:
    shell("pause", "--definition", "anything", "--note", "new disk")
    warned = shell("status")
    assert warned.exit_code == 0
    assert warned.output.startswith("1 warning\n")
    assert "new disk" in warned.output

    shell("jobs", "enqueue", "anything", "--tenant", "acme")

    failed = shell("status", "--tenant", "acme")
    assert failed.exit_code == 1
    assert failed.output.startswith("1 problem, 1 warning\n")
    assert "No worker is running (acme, 1 queued job, since" in failed.output
    assert shell("status", "--tenant", "umbrella", "--json").exit_code == 0


def test_an_unknown_tenant_is_refused(shell: Shell) -> None:
    found = shell("status", "--tenant", "nope")

    assert found.exit_code == 1
    assert "tenant_unknown" in found.output
