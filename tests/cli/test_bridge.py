"""`fairlead bridge` and `fairlead definitions add`, as a person uses them."""

from pathlib import Path

import pytest

from tests.cli.test_commands import Shell
from tests.tables import each_case


@pytest.fixture
def shell(database_url: str, tmp_path: Path) -> Shell:
    shell = Shell(database_url)
    file = tmp_path / "fairlead.toml"
    file.touch()
    shell.env["FAIRLEAD_CONFIG"] = str(file)
    return shell


def test_a_definition_is_added_once_with_its_queue(shell: Shell) -> None:
    added = shell.json("definitions", "add", "resize", "--kind", "bullmq", "--queue", "org-{tenant}")
    assert (added["kind"], added["engine"], added["queue"]) == ("bullmq", None, "org-{tenant}")
    again = shell("definitions", "add", "resize", "--kind", "bullmq", "--json")
    assert again.exit_code == 1
    assert "definition_exists" in again.stderr
    assert shell.json("definitions", "put", "resize", "--queue", "all")["queue"] == "all"


def test_a_definition_for_an_engine_must_name_it(shell: Shell) -> None:
    told = shell("definitions", "add", "resize", "--kind", "delivered")
    assert told.exit_code == 1
    assert "engine must name an engine of fairlead.toml" in told.output


@each_case(
    ("document", "argv", "told"),
    [
        ("", (), "There are no engines in"),
        ("[engines]\nx = 1", (), "it has one table for each name"),
        ("[engines.post]\nurl = 'x'", (), "driver must be one of bullmq, cloud_tasks, nats, sqs"),
        ("[engines.post]\ndriver = 'pigeon'", (), "driver must be one of"),
        ("[engines.post]\ndriver = 'nats'", ("--engine", "other"), "There is no [engines.other] in"),
        (
            "[engines.post]\ndriver = 'bullmq'\nserver = 'x'",
            (),
            "[engines.post] in fairlead.toml is not valid: server is no option of bullmq, which has url, prefix, schema.",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_and_says_what_to_do(
    shell: Shell, document: str, argv: tuple[str, ...], told: str
) -> None:
    Path(shell.env["FAIRLEAD_CONFIG"]).write_text(document, encoding="utf-8")
    result = shell("bridge", *argv)
    assert result.exit_code == 1
    assert told in " ".join(result.output.split())
    assert "delivering" not in result.output
