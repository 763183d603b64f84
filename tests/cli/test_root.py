"""`fairlead` itself: its commands, found when they are called."""

import os
import subprocess
import sys
from pathlib import Path

import click

from fairlead.cli import main
from fairlead.cli.root import COMMANDS


def fairlead(*argv: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """As a process of its own: what this one has imported is imported."""
    return subprocess.run(
        [sys.executable, "-m", "fairlead.cli", *argv],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_command_is_where_it_is_said_to_be() -> None:
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None, name
        assert command.name == name
    assert main.get_command(context, "nosuch") is None


def test_help_is_given_whatever_the_settings_say(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "fairlead.toml")

    helped = fairlead("--help", FAIRLEAD_CONFIG=nowhere)
    refused = fairlead("jobs", "list", FAIRLEAD_CONFIG=nowhere)

    assert (helped.returncode, helped.stderr) == (0, "")
    assert all(f"\n  {name} " in helped.stdout for name in COMMANDS)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.split() == (
        f"error [setting_invalid] FAIRLEAD_CONFIG names {nowhere}, and there is no such file.".split()
    )


def test_a_command_imports_what_it_needs_and_no_server() -> None:
    code = (
        "import sys\nfrom fairlead.cli import main\nmain(['jobs', '--help'], standalone_mode=False)\n"
        "sys.exit(str(sorted({'fastapi', 'uvicorn', 'fairlead.bench', 'fairlead.server'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
