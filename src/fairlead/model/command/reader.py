"""Reading the allowlist of commands from a parsed fairlead.toml."""

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.errors import CommandInvalid, DefinitionInvalid, Fault
from fairlead.model.command import fields as words
from fairlead.model.command.argv_reader import ArgvReader
from fairlead.model.command.spec import CommandSpec, Limits, build_command_definition
from fairlead.model.definition import KEY, KEY_WORDS, MAX_RUNNING, DefinitionSpec, compile_schema
from fairlead.model.outcome import Backoff
from fairlead.model.template.path import Flaw, Path

_YEAR = 31_536_000
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "description": words.read_text,
    "timeout": words.integer_reader(1, 2_592_000),
    "grace_seconds": words.seconds_reader(0, 3600),
    "env": words.read_variable_names,
    "cwd": words.read_folder,
    "umask": words.read_umask,
    "user": words.read_account,
    "group": words.read_account,
    "tail_bytes": words.size_reader(0, 2**20),
    "max_log_bytes": words.size_reader(0, 2**30),
    "success_exit_codes": words.read_exit_codes,
    "fatal_exit_codes": words.read_exit_codes,
    "max_attempts": words.integer_reader(1, 1000),
    "max_running": words.integer_reader(1, MAX_RUNNING),
    "max_running_per_tenant": words.integer_reader(1, MAX_RUNNING),
    "default_priority": words.integer_reader(-1_000_000, 1_000_000),
    "retention_days": words.integer_reader(1, 36_500),
}
_LIMITS: dict[str, Callable[[Any], Any]] = {
    "memory_bytes": words.size_reader(2**20),
    "cpu_seconds": words.integer_reader(1, _YEAR),
    "open_files": words.integer_reader(8, 2**20),
    "processes": words.integer_reader(1, 2**22),
    "file_bytes": words.size_reader(0),
}
_BACKOFF = dict.fromkeys(Backoff.__struct_fields__, words.read_number)
_TABLES = ("argv", "set_env", "secrets", "limits", "snooze_exit_codes", "arg_schema", "backoff")
FIELDS = frozenset((*_PLAIN, *_TABLES))


def read_commands(document: Mapping[str, Any]) -> dict[str, CommandSpec]:
    """The commands of a parsed fairlead.toml, by key; CommandInvalid names every fault of every command."""
    tables = document.get("commands", {})
    if not isinstance(tables, Mapping):
        raise _invalid([Fault("commands", "must be a table of commands, such as [commands.sync-dropbox]")])
    faults: list[Fault] = []
    found = {key: _read_command(key, said, faults) for key, said in tables.items()}
    if faults:
        raise _invalid(faults)
    return {key: spec for key, spec in found.items() if spec}


def _read_command(key: str, said: Any, faults: list[Fault]) -> CommandSpec | None:
    reading = _CommandReader(str(Path(("commands", key))))
    spec = reading.command(key, said)
    faults += reading.faults
    return spec


class _CommandReader:
    def __init__(self, where: str) -> None:
        self.where = where
        self.faults: list[Fault] = []

    def command(self, key: str, said: Any) -> CommandSpec | None:
        if not KEY.fullmatch(key):
            self.refuse("", f"has an invalid key: it {KEY_WORDS}")
        if not isinstance(said, Mapping):
            self.refuse("", "must be a table")
            return None
        for name in sorted(said.keys() - FIELDS):
            self.refuse(name, f"is unknown; use one of {', '.join(sorted(FIELDS))}")
        values = self.read(said, "", _PLAIN)
        values |= {name: getattr(self, name)(said[name]) for name in _TABLES if name in said}
        if "argv" not in said:
            self.refuse("argv", "is missing: the executable and its arguments")
        self.outcomes(values)
        self.variables(values)
        if self.faults:
            return None
        spec = CommandSpec(key=key, **values)
        self.check_definition(spec)
        return spec

    # Fields that are tables

    def argv(self, said: Any) -> Any:
        reading = ArgvReader()
        argv = reading.argv(said, f"{self.where}.argv")
        self.faults += reading.faults
        return argv

    def set_env(self, said: Any) -> dict[str, str]:
        return self.read_named("set_env", said, words.read_variable_name, words.read_variable_value)

    def secrets(self, said: Any) -> dict[str, Any]:
        return self.read_named("secrets", said, words.read_variable_name, words.read_secret_source)

    def snooze_exit_codes(self, said: Any) -> dict[int, float]:
        return self.read_named(
            "snooze_exit_codes", said, words.read_exit_code, words.seconds_reader(0, _YEAR)
        )

    def limits(self, said: Any) -> Limits:
        return Limits(**self.read_known("limits", said, _LIMITS))

    def arg_schema(self, said: Any) -> Any:
        try:
            compile_schema(words.read_table(said))
        except Flaw as flaw:
            self.refuse("arg_schema", flaw.message)
        except DefinitionInvalid as error:
            self.refuse("arg_schema", error.faults[0].message)
        return said

    def backoff(self, said: Any) -> Backoff | None:
        values = self.read_known("backoff", said, _BACKOFF)
        try:
            return Backoff(**{name: value for name, value in values.items() if value is not None})
        except DefinitionInvalid as error:
            self.faults += [Fault(f"{self.where}.{path}", message) for path, message in error.faults]
            return None

    # Checks across fields

    def outcomes(self, values: Mapping[str, Any]) -> None:
        """Each exit code has one meaning, and at least one means success."""
        known = set(values.get("success_exit_codes", {0}) or ())
        if values.get("success_exit_codes") == set():
            self.refuse("success_exit_codes", "must have one exit code or more")
        for name in ("fatal_exit_codes", "snooze_exit_codes"):
            codes = set(values.get(name) or ())
            if twice := sorted(codes & known):
                self.refuse(name, f"has {twice[0]}, which another field also has")
            known |= codes

    def variables(self, values: Mapping[str, Any]) -> None:
        """Only one field sets each variable."""
        known = set(values.get("env") or ())
        for name in ("set_env", "secrets"):
            variables = set(values.get(name) or ())
            if twice := sorted(variables & known):
                self.refuse(f"{name}.{twice[0]}", "is also set by another field")
            known |= variables

    def check_definition(self, spec: CommandSpec) -> None:
        """Check the definition's rules now, before it is published."""
        try:
            DefinitionSpec(**{**build_command_definition(spec), "backoff": spec.backoff or Backoff()})
        except DefinitionInvalid as error:
            self.faults += [Fault(f"{self.where}.{path}", message) for path, message in error.faults]

    def read(
        self, said: Mapping[str, Any], prefix: str, readers: Mapping[str, Callable[[Any], Any]]
    ) -> dict[str, Any]:
        return {
            name: self.try_read(prefix + name, reader, said[name])
            for name, reader in readers.items()
            if name in said
        }

    def read_known(
        self, field: str, said: Any, readers: Mapping[str, Callable[[Any], Any]]
    ) -> dict[str, Any]:
        """Read a table that may have only these fields."""
        table = self.try_read(field, words.read_table, said) or {}
        for name in sorted(table.keys() - readers.keys()):
            self.refuse(f"{field}.{name}", f"is unknown; use one of {', '.join(readers)}")
        return self.read(table, f"{field}.", readers)

    def read_named(
        self, field: str, said: Any, name: Callable[[str], Any], value: Callable[[Any], Any]
    ) -> dict[Any, Any]:
        """Read a table of any names, each name and value by its reader."""
        table = self.try_read(field, words.read_table, said) or {}
        return {
            self.try_read(f"{field}.{key}", name, key): self.try_read(f"{field}.{key}", value, one)
            for key, one in table.items()
        }

    def try_read(self, field: str, read: Callable[[Any], Any], said: Any) -> Any:
        try:
            return read(said)
        except Flaw as flaw:
            self.refuse(field, flaw.message)
            return None

    def refuse(self, field: str, message: str) -> None:
        self.faults.append(Fault(f"{self.where}.{field}" if field else self.where, message))


def _invalid(faults: list[Fault]) -> CommandInvalid:
    first = faults[0]
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    return CommandInvalid(f"fairlead.toml is not valid: {first.path} {first.message}.{more}", faults)
