"""The files of deploy/, read: what they start, and whether the command line knows it."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from fairlead.cli.root import main

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def require_command(words: Sequence[str]) -> None:
    """Fail unless this is a command of `fairlead` with arguments and options that it takes."""
    command: click.Command = main
    rest = list(words)
    name = "fairlead"
    while isinstance(command, click.Group):
        assert rest, f"fairlead {' '.join(words)} needs one more word"
        context, name = click.Context(command), rest.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name!r} in {' '.join(words)}"
        command = found
    command.make_context(name, rest)  # it refuses what it does not know


def read_compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    services: dict[str, Any] = document["services"]
    return services


def read_dockerfile() -> list[tuple[str, str]]:
    """The instructions, each with what follows it."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


def read_list(text: str) -> list[str]:
    """The list form of a command: the only form that passes signals on."""
    found: list[str] = ast.literal_eval(text)
    return found


def read_unit(path: Path) -> dict[str, list[str]]:
    """The settings of a unit, all sections together."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", path.read_text("utf-8"), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found
