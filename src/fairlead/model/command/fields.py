"""Readers for the fields of a command in fairlead.toml: each returns the value, or raises a Flaw."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.model.command.slot import find_argument_flaw
from fairlead.model.command.spec import SecretSource
from fairlead.model.template.path import Flaw

LARGEST = 2**63 - 1

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?")
_OCTAL = re.compile(r"(?:0o)?([0-7]{1,4})")
_SIZE = re.compile(r"([0-9]{1,18}) ?(B|[kK]B|MB|GB|TB|KiB|MiB|GiB|TiB)")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_CODE = re.compile(r"0|[1-9][0-9]{0,2}")
_SECRET = "must be env:NAME or file:/absolute/path, not the secret itself"  # noqa: S105


def integer_reader(least: int, most: int) -> Callable[[Any], int]:
    """An integer in this range."""

    def read(said: Any) -> int:
        if type(said) is not int or not least <= said <= most:
            raise Flaw(f"must be an integer from {least} to {most}")
        return said

    return read


def seconds_reader(least: float, most: float) -> Callable[[Any], float]:
    """A number of seconds in this range."""

    def read(said: Any) -> float:
        if type(said) not in (int, float) or not least <= said <= most:
            raise Flaw(f"must be a number of seconds from {least:g} to {most:g}")
        return float(said)

    return read


def read_number(said: Any) -> float:
    """A number of any size."""
    if type(said) not in (int, float):
        raise Flaw("must be a number")
    return float(said)


def size_reader(least: int, most: int = LARGEST) -> Callable[[Any], int]:
    """A number of bytes: an integer, or text such as 512MB (of 1000s) or 512MiB (of 1024s)."""

    def read(said: Any) -> int:
        match = _SIZE.fullmatch(said) if isinstance(said, str) else None
        number = int(match[1]) * _UNITS[match[2].upper()] if match else said
        if type(number) is not int or not least <= number <= most:
            raise Flaw(f"must be {least} to {most} bytes: an integer, or text such as 512MB or 512MiB")
        return number

    return read


def read_text(said: Any) -> str:
    """Any text."""
    if not isinstance(said, str):
        raise Flaw("must be a string")
    return said


def read_table(said: Any) -> Mapping[str, Any]:
    """A table, as it is."""
    if not isinstance(said, Mapping):
        raise Flaw("must be a table")
    return said


def read_variable_names(said: Any) -> tuple[str, ...]:
    """Names of environment variables."""
    if not isinstance(said, list):
        raise Flaw("must be a list of names of environment variables")
    for one in said:
        read_variable_name(one)
    return tuple(dict.fromkeys(said))


def read_variable_name(said: Any) -> str:
    """The name of an environment variable."""
    if not isinstance(said, str) or not _NAME.fullmatch(said):
        raise Flaw("must be the name of a variable: letters, digits and _")
    return said


def read_variable_value(said: Any) -> str:
    """The value of an environment variable."""
    if not isinstance(said, str) or "\x00" in said:
        raise Flaw("must be a string without NUL")
    return said


def read_secret_source(said: Any) -> SecretSource:
    """Where to read a secret. The error never repeats the value, since it may be the secret."""
    match said.partition(":") if isinstance(said, str) else None:
        case ("env", _, variable) if _NAME.fullmatch(variable):
            return SecretSource("env", variable)
        case ("file", _, path) if path.startswith("/") and not find_argument_flaw(path):
            return SecretSource("file", path)
    raise Flaw(_SECRET)


def read_folder(said: Any) -> str:
    """An absolute path."""
    if not isinstance(said, str) or not said.startswith("/") or find_argument_flaw(said):
        raise Flaw("must be an absolute path")
    return said


def read_umask(said: Any) -> int:
    """A umask: octal text such as 027, or an integer such as 0o027."""
    match = _OCTAL.fullmatch(said) if isinstance(said, str) else None
    mask = int(match[1], 8) if match else said
    if type(mask) is not int or not 0 <= mask <= 0o777:
        raise Flaw('must be octal, such as "027" or 0o027')
    return mask


def read_account(said: Any) -> str | int:
    """A user or a group, by name or id."""
    if type(said) is int and 0 <= said < 2**32 - 1:
        return said
    if not isinstance(said, str) or not _ACCOUNT.fullmatch(said):
        raise Flaw("must be a name, or an id of 0 or more")
    return said


def read_exit_codes(said: Any) -> frozenset[int]:
    """A list of exit codes."""
    if not isinstance(said, list) or not all(type(one) is int and 0 <= one <= 255 for one in said):
        raise Flaw("must be a list of exit codes, 0 to 255")
    return frozenset(said)


def read_exit_code(said: str) -> int:
    """An exit code that is the name of a field."""
    if not _CODE.fullmatch(said) or int(said) > 255:
        raise Flaw("must be an exit code, 0 to 255")
    return int(said)
