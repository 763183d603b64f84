"""The allowlist of a run's commands and secrets: the fairlead.toml of its workers and agents."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from fairlead.chaos import scenario
from fairlead.chaos.history import FOLDER_VARIABLE
from fairlead.chaos.load import command
from fairlead.chaos.load.secret_values import describe_secrets

GRACE_SECONDS = 1


def write_commands(folder: Path, environment: Mapping[str, str], secrets: Path) -> Path:
    """Write the file with the commands and secrets of the scenario; `environment` is set for each command."""
    plans = [plan for plan in scenario.DEFINITIONS if plan.runner in ("command", "agent")]
    file = folder / "fairlead.toml"
    commands = [_describe(plan, environment, secrets / scenario.COMMANDS_SECRET) for plan in plans]
    file.write_text("\n".join([*commands, describe_secrets(secrets)]), encoding="utf-8")
    file.chmod(0o644)
    return file


def _describe(plan: scenario.DefinitionPlan, environment: Mapping[str, str], secret: Path) -> str:
    options = [
        *(_option(name, "number" if name == "seconds" else "integer") for name in ("seconds", "fail")),
        *(_option(name, "integer") for name in ("snooze", "text")),
        # taken so that the payload may have them: they belong to the history
        '{ if = "payload.call", argv = [] }',
        '{ if = "payload.n", argv = [] }',
    ]
    argv = ", ".join([*map(json.dumps, [sys.executable, "-I", "-S", command.__file__]), *options])
    variables = {**environment, "CHAOS_DEFINITION": plan.key}
    set_env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in variables.items())
    passed = [] if FOLDER_VARIABLE in environment else [FOLDER_VARIABLE]
    return f"""
[commands.{json.dumps(plan.key)}]
argv = [{argv}]
env = {json.dumps(passed)}
set_env = {{ {set_env} }}
secrets = {{ CHAOS_SECRET = {json.dumps(f"file:{secret}")} }}
timeout = {int(plan.timeout_seconds)}
grace_seconds = {GRACE_SECONDS}
max_attempts = {plan.max_attempts}
snooze_exit_codes = {{ {command.SNOOZE_EXIT} = 0.2 }}
fatal_exit_codes = [{command.FATAL_EXIT}]
backoff = {{ base_seconds = 0.1, factor = 2, cap_seconds = 2, jitter = 0.5 }}
"""


def _option(name: str, kind: str) -> str:
    """The part of argv that hands a field of the payload to the program, if it is given."""
    return f'{{ if = "payload.{name}", argv = ["--{name}", "{{payload.{name}:{kind}}}"] }}'
