"""The tables of fairlead.toml that describe connections: [engines.NAME] and [sources.NAME], each with a `driver`."""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from fairlead.errors import Fault, SettingInvalid
from fairlead.handlers.commands import SecretMissing, read_secret
from fairlead.model.command.fields import read_secret_source
from fairlead.model.template.path import Flaw
from fairlead.settings import read_document

Options = TypeVar("Options", bound=msgspec.Struct)

SECRET_PREFIXES = ("env:", "file:/")


class Driver(NamedTuple):
    """Where a driver is: a module, and the extra that installs what it needs."""

    module: str
    extra: str


class ConnectionTable(NamedTuple):
    """A table of fairlead.toml: its section and name, its driver, and the driver's options."""

    section: str
    name: str
    driver: str
    options: Mapping[str, Any]

    @property
    def where(self) -> str:
        return f"[{self.section}.{self.name}]"

    def refuse(self, field: str, why: str) -> SettingInvalid:
        """The error for a value of this table."""
        return SettingInvalid(
            f"{self.where} in fairlead.toml is not valid: {field} {why}.",
            [Fault(f"{self.section}.{self.name}.{field}", why)],
        )


def read_connections(path: Path, section: str, drivers: Mapping[str, Driver]) -> dict[str, ConnectionTable]:
    """The tables of a section, by name."""
    tables = read_document(path).get(section, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SettingInvalid(f"[{section}] in {path} is not valid: it has one table for each name.")
    found = {}
    for name, table in tables.items():
        options = dict(table)
        driver = options.pop("driver", None)
        connection = ConnectionTable(section, name, str(driver), options)
        if driver not in drivers:
            raise connection.refuse("driver", f"must be one of {', '.join(sorted(drivers))}")
        found[name] = connection
    return found


def read_options(connection: ConnectionTable, options_type: type[Options]) -> Options:
    """The options of a connection. A text `env:NAME` or `file:/path` stands for the value of that variable or file."""
    known = options_type.__struct_fields__
    if unknown := [name for name in connection.options if name not in known]:
        raise connection.refuse(
            unknown[0], f"is no option of {connection.driver}, which has {', '.join(known)}"
        )
    values = {name: _resolve(connection, name, value) for name, value in connection.options.items()}
    try:
        return msgspec.convert(values, options_type)
    except msgspec.ValidationError as error:
        # the message names the field and its type, never its value
        raise connection.refuse("its options:", str(error)) from None


def _resolve(connection: ConnectionTable, name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_resolve(connection, name, one) for one in value]
    if isinstance(value, dict):
        return {key: _resolve(connection, f"{name}.{key}", one) for key, one in value.items()}
    if not isinstance(value, str) or not value.startswith(SECRET_PREFIXES):
        return value
    try:
        return read_secret(read_secret_source(value), os.environ)
    except (Flaw, SecretMissing) as error:
        raise connection.refuse(name, str(error)) from None


def load_driver(connection: ConnectionTable, drivers: Mapping[str, Driver]) -> Any:
    """The driver's module."""
    driver = drivers[connection.driver]
    try:
        return import_module(driver.module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fairlead"):
            raise
        raise SettingInvalid(
            f"{connection.where} needs the package {error.name}: pip install 'fairlead[{driver.extra}]'."
        ) from error
