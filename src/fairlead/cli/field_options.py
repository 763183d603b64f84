"""Options that set fields of a struct: their names, types and help come from the struct."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import click
import msgspec

from fairlead.cli import output
from fairlead.cli.json_input import read_json
from fairlead.cli.option_names import FIELDS, rename_fields
from fairlead.model.input_fields import InputField, list_input_fields

_OPTIONS = {field: option for option, field in FIELDS.items()}


def field_options(
    struct: type[msgspec.Struct], *names: str, **help_texts: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add an option for each of these fields; `help_texts` replace descriptions."""
    options = {name: option_of(name) for name in names}

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            field = list_input_fields(struct)[name]
            text = help_texts.get(name) or rename_fields(field.description or "", options)
            metavar = "SECONDS" if name.endswith("_seconds") else None
            function = click.option(
                options[name], name, type=_option_type(field), metavar=metavar, help=text
            )(function)
        return function

    return add


def option_of(name: str) -> str:
    """The option that sets a field."""
    return f"--{_OPTIONS.get(name, name).replace('_', '-')}"


def read_field_options(struct: type[msgspec.Struct], says: Mapping[str, Any]) -> dict[str, Any]:
    """The given options as fields; those of JSON are decoded, and an empty time zone is the default one."""
    given = {name: value for name, value in says.items() if value is not None}
    for name, value in given.items():
        if list_input_fields(struct)[name].is_json:
            given[name] = read_json(value, _OPTIONS.get(name, name))
        elif name == "timezone":
            given[name] = value or None
    return given


def _option_type(field: InputField) -> Any:
    if field.type is datetime:
        return output.Moment()
    if field.is_json or field.type in (str, int):
        return str if field.is_json else field.type
    return output.enum_choice(field.type)
