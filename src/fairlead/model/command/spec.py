"""Commands: the programs that a worker may run, as its fairlead.toml lists them. This module neither runs nor parses them."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict

from fairlead.model.command.argv import Argv, AttemptFacts, FilledArgv, fill_argv
from fairlead.model.command.argv_shape import payload_schema
from fairlead.model.definition import Kind
from fairlead.model.outcome import Backoff


class SecretSource(msgspec.Struct, frozen=True):
    """Where the worker reads a secret when it starts the command: its own environment, or a file."""

    kind: Literal["env", "file"]
    name: str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Kernel limits for each process of the command; None keeps the worker's limit."""

    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    open_files: int | None = None
    processes: int | None = None
    file_bytes: int | None = None


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One command of the allowlist. `read_commands` reads and checks it."""

    key: str
    argv: Argv
    description: str | None = None
    timeout: int = 3600
    grace_seconds: float = 5.0
    # the environment: names of the worker's variables, fixed values, and secrets
    env: tuple[str, ...] = ()
    set_env: Mapping[str, str] = msgspec.field(default_factory=dict)
    secrets: Mapping[str, SecretSource] = msgspec.field(default_factory=dict)
    cwd: str | None = None
    umask: int = 0o077
    user: str | int | None = None
    group: str | int | None = None
    limits: Limits = Limits()
    # bytes of each stream that an attempt stores, and of output that a client can follow
    tail_bytes: int = 65_536
    max_log_bytes: int = 1_048_576
    success_exit_codes: frozenset[int] = frozenset({0})
    fatal_exit_codes: frozenset[int] = frozenset()
    # exit code → seconds
    snooze_exit_codes: Mapping[int, float] = msgspec.field(default_factory=dict)
    # these only go into the definition
    arg_schema: Mapping[str, Any] | None = None
    max_attempts: int | None = None
    max_running: int | None = None
    max_running_per_tenant: int | None = None
    default_priority: int | None = None
    retention_days: int | None = None
    backoff: Backoff | None = None


def build_command_argv(spec: CommandSpec, facts: AttemptFacts) -> list[str]:
    """The argv of one attempt; CommandRefused names each slot that cannot be filled, never a value."""
    return fill_command_argv(spec, facts).arguments


def fill_command_argv(spec: CommandSpec, facts: AttemptFacts) -> FilledArgv:
    """The argv and its paths: only at run time can links be checked against a path's root."""
    return fill_argv(spec.key, spec.argv, facts)


def derive_command_schema(spec: CommandSpec) -> dict[str, Any]:
    """JSON Schema, derived from the slots, for the payloads that the command can be run with."""
    return payload_schema(spec.argv.shape)


def build_command_definition(spec: CommandSpec) -> dict[str, Any]:
    """The command's definition to publish; options that the file does not set are left out."""
    said = {
        "key": spec.key,
        "kind": Kind.COMMAND.value,
        "description": spec.description,
        "arg_schema": derive_command_schema(spec) if spec.arg_schema is None else dict(spec.arg_schema),
        "timeout_seconds": spec.timeout,
        "max_attempts": spec.max_attempts,
        "max_running": spec.max_running,
        "max_running_per_tenant": spec.max_running_per_tenant,
        "default_priority": spec.default_priority,
        "retention_days": spec.retention_days,
        "backoff": asdict(spec.backoff) if spec.backoff else None,
    }
    return {name: value for name, value in said.items() if value is not None}
