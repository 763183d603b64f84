"""The commands that this worker may run: read from its own fairlead.toml and checked before any job runs."""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from fairlead.errors import CommandInvalid, Fault, SettingInvalid
from fairlead.handlers.supervisor import KERNEL_LIMITS, POSIX
from fairlead.model.command.argv_shape import Field
from fairlead.model.command.reader import read_commands
from fairlead.model.command.spec import CommandSpec, SecretSource, build_command_definition
from fairlead.model.definition import Validator, compile_schema
from fairlead.model.secrets.redact import mask_paths, secret_paths
from fairlead.settings import read_document

with contextlib.suppress(ImportError):  # Windows: see POSIX
    import grp
    import pwd
    import resource

_WRITABLE_BY_OTHERS = stat.S_IWOTH


class SecretMissing(Exception):
    """A secret is not available. The message names it and the cause, never its value."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command that this worker may run, with its resolved user, limits and schema."""

    spec: CommandSpec
    uid: int | None
    gid: int | None
    limits: dict[str, int]
    schema: Validator

    @property
    def key(self) -> str:
        return self.spec.key

    def environment(self, environ: Mapping[str, str] = os.environ) -> tuple[dict[str, str], list[str]]:
        """The command's environment variables, and which of their values are secrets."""
        secrets = {name: read_secret(source, environ) for name, source in self.spec.secrets.items()}
        passed = {name: environ[name] for name in self.spec.env if name in environ}
        return {**passed, **self.spec.set_env, **secrets}, list(secrets.values())


def load_commands(path: Path) -> dict[str, Command]:
    """The commands of a fairlead.toml, each checked; none if there is no file."""
    return {key: check_command(spec) for key, spec in load_command_specs(path).items()}


def load_command_specs(path: Path) -> dict[str, CommandSpec]:
    """The commands as the file defines them, without checking whether they can run here."""
    return read_commands(read_document(path))


def check_command(spec: CommandSpec) -> Command:
    """A command that can run here; raises CommandInvalid if it cannot."""
    if not POSIX:
        raise _invalid_command(spec, "argv", "commands run only on Linux and macOS")
    _check_executable(spec)
    uid, gid = _resolve_ids(spec)
    limits = {name: value for name, value in asdict(spec.limits).items() if value is not None}
    _check_limits(spec, limits, root=(os.getuid() if uid is None else uid) == 0)
    for name, source in spec.secrets.items():
        try:
            read_secret(source, os.environ)
        except SecretMissing as error:
            raise _invalid_command(spec, f"secrets.{name}", str(error)) from None
    if spec.cwd is not None and not Path(spec.cwd).is_dir():
        raise _invalid_command(spec, "cwd", f"{spec.cwd} is not a folder")
    schema = compile_schema(build_command_definition(spec)["arg_schema"])
    sample = _build_sample(spec.argv.shape)
    if mask_paths(sample, secret_paths(spec.arg_schema)) != sample:
        raise _invalid_command(
            spec,
            "argv",
            "a field that arg_schema marks as secret must not be in an argument, since every user of this machine can see arguments",
        )
    return Command(spec=spec, uid=uid, gid=gid, limits=limits, schema=schema)


def read_secret(source: SecretSource, environ: Mapping[str, str]) -> str:
    """A secret's current value."""
    if source.kind == "env":
        if source.name not in environ:
            raise SecretMissing(f"the variable {source.name} is not set")
        value = os.fsencode(environ[source.name])
    else:
        try:
            value = Path(source.name).read_bytes().rstrip(b"\n")
        except OSError as error:
            raise SecretMissing(f"the file {source.name} cannot be read: {error.strerror}") from None
    if b"\x00" in value:
        raise SecretMissing(f"{source.name} has NUL in it")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise SecretMissing(f"{source.name} is not UTF-8 text") from None


def check_secret(where: str, source: SecretSource) -> None:
    """Raise SettingInvalid for a missing secret when the worker starts, before the first job fails."""
    try:
        read_secret(source, os.environ)
    except SecretMissing as error:
        raise SettingInvalid(f"{where} cannot be used here: {error}.", [Fault(where, str(error))]) from None


def _check_limits(spec: CommandSpec, limits: Mapping[str, int], *, root: bool) -> None:
    if "processes" in limits and root:
        raise _invalid_command(
            spec, "limits.processes", "the kernel does not count root's processes: set a user for the command"
        )
    for name, value in limits.items():
        most = resource.getrlimit(getattr(resource, KERNEL_LIMITS[name]))[1]
        if os.getuid() != 0 and most != resource.RLIM_INFINITY and value > most:
            raise _invalid_command(spec, f"limits.{name}", f"is more than the worker's own limit of {most}")


def _build_sample(field: Field) -> Any:
    """A sample payload with the fields that the arguments use; None if they use none."""
    if field.fields:
        found = {name: _build_sample(one) for name, one in field.fields.items()}
        return {name: one for name, one in found.items() if one is not None}
    if field.items:
        return [_build_sample(field.items)]
    return "" if field.slots else None


def _check_executable(spec: CommandSpec) -> None:
    path = Path(spec.argv.executable)
    if not path.is_absolute():
        raise _invalid_command(spec, "argv[0]", "must be an absolute path")
    if not path.is_file():
        raise _invalid_command(spec, "argv[0]", f"{path} does not exist or is not a file")
    if not os.access(path, os.X_OK):
        raise _invalid_command(spec, "argv[0]", f"{path} is not executable")
    for place in _list_path_parts(path):
        mode = place.stat().st_mode
        # a user who may write to a folder may replace the files in it, unless the folder is sticky
        if mode & _WRITABLE_BY_OTHERS and not (place.is_dir() and mode & stat.S_ISVTX):
            raise _invalid_command(spec, "argv[0]", f"{place} is writable by every user: chmod o-w {place}")


def _list_path_parts(path: Path) -> Iterator[Path]:
    """The file and all folders on its path, also those of links: who can replace one of them can replace the file."""
    real = path.resolve()
    yield from (real, *real.parents)
    yield from path.parents
    while path.is_symlink():
        path = path.parent / path.readlink()
        yield from path.parents


def _resolve_ids(spec: CommandSpec) -> tuple[int | None, int | None]:
    if spec.user is None and spec.group is None:
        return None, None
    if os.getuid() != 0:
        raise _invalid_command(
            spec, "user", "only a worker that runs as root can run commands as another user"
        )
    try:
        user: Any = None
        if spec.user is not None:
            user = pwd.getpwuid(spec.user) if isinstance(spec.user, int) else pwd.getpwnam(spec.user)
        group = user.pw_gid if spec.group is None else spec.group
        gid = grp.getgrnam(group).gr_gid if isinstance(group, str) else group
    except KeyError as error:
        raise _invalid_command(spec, "user", f"unknown user or group: {error.args[0]}") from error
    return (None if user is None else user.pw_uid), gid


def _invalid_command(spec: CommandSpec, field: str, why: str) -> CommandInvalid:
    return CommandInvalid(
        f"The command {spec.key} cannot be run here: {field}: {why}.",
        [Fault(f"commands.{spec.key}.{field}", why)],
    )
