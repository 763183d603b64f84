"""What tenants wrote does not give orders to the terminal of whoever reads it."""

import json
import re
import sys
from datetime import UTC, datetime
from uuid import uuid4

import click
import pytest
from rich.text import Text

from fairlead import Settings
from fairlead.cli import exits, logs, output
from fairlead.cli.dev import _print_running
from fairlead.errors import InvalidInput
from fairlead.model.log import Chunk
from tests.processes import run

CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x07"
HOSTILE = f"a{CLIPBOARD}b\x9b2Jc\x08\x7f\u202etxt.exe\u2066"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def test_tables_facts_and_errors_are_printed_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_table(["name"], [[HOSTILE], [Text(HOSTILE)]], empty="none")
    output.print_facts([("name", HOSTILE)])
    output.console().print(HOSTILE, markup=False)
    with pytest.raises(SystemExit):
        exits.exit_with_error(InvalidInput(f"There is no {HOSTILE}."), click.Command("x"), as_json=False)

    said, errors = capsys.readouterr()

    assert "]52;c;cm0gLXJmIC8=b" in said, "it can be seen, and does nothing"
    assert "invalid_input" in errors
    assert OBEYED.findall(said + errors) == []


def test_json_is_exact_and_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"name": HOSTILE})

    said, _ = capsys.readouterr()

    assert json.loads(said) == {"name": HOSTILE}
    assert OBEYED.findall(said) == []


def printed(capsys: pytest.CaptureFixture[str], text: str, *, strip: bool | None = None) -> str:
    printer = logs._Printer(strip, as_json=False)
    for part in (text[: len(text) // 2], text[len(text) // 2 :]):
        printer.print(Chunk(attempt_no=1, seq=1, stream="stdout", text=part, at=datetime.now(UTC)))
    printer.end()
    return capsys.readouterr().out


def test_of_a_log_a_terminal_gets_text_and_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = f"\x1b[1;31mred\x1b[0m\t{CLIPBOARD}\x1b[2J\x07ok\r\n50%\r100%\n"

    for strip in (None, False):
        assert printed(capsys, text, strip=strip) == "\x1b[1;31mred\x1b[0m\tok\n50%\n100%\n"
    assert printed(capsys, text, strip=True) == "red\tok\n50%100%\n"


def test_a_file_gets_all_of_a_log_if_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, f"{CLIPBOARD}ok\n", strip=False) == f"{CLIPBOARD}ok\n"


def test_a_correlation_id_cannot_write_into_the_clipboard(database_url: str) -> None:
    env = {"FAIRLEAD_DATABASE_URL": database_url}
    mark = uuid4().hex
    argv = ["greet", '{"name": "Ada"}', "--tenant", "acme", "--correlation-id", f"{mark}{CLIPBOARD}"]
    made = run("jobs", "enqueue", *argv, "--json", env=env)
    assert made.returncode == 0, made.stderr

    shown = run("jobs", "show", json.loads(made.stdout)["id"], env=env)

    assert mark in shown.stdout
    assert OBEYED.findall(shown.stdout) == []


def test_dev_without_the_demo_prints_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(database_url="postgresql://fairlead@db/jobs")
    secrets = {"password": "open sesame", "super_admin_token": "t"}
    for no_demo in (False, True):
        _print_running("http://x", "postgresql://db/jobs", settings, secrets, app=None, no_demo=no_demo)
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        names = ("or, for all tenants", "tenant ", "worker ")
        assert [name for name in names if any(one.startswith(name) for one in lines)] == [*names] * (
            not no_demo
        )
        assert not any(line.endswith("–") for line in lines)
