"""Rewrites error messages for the command line: the field `cron_expr` becomes the option `--cron`."""

import re

import click

from fairlead.errors import FairleadError, Fault

# Options whose names differ from the fields that they set.
FIELDS = {
    "event": "event_name",
    "cron": "cron_expr",
    "every": "every_seconds",
    "jitter": "jitter_seconds",
    "definition": "definition_key",
    "payload": "payload_template",
    "window": "dedupe_window_seconds",
    "host": "host_id",
    "resource": "resource_id",
    "run": "workflow_run_id",
}


def rename_fields_to_options(error: FairleadError, command: click.Command) -> tuple[str, list[Fault]]:
    """An error's message and faults, with this command's options instead of field names."""
    options = _find_options(command)
    faults = [Fault(options.get(fault.path, fault.path), fault.message) for fault in error.faults]
    message = rename_fields(error.message, options)
    for fault in error.faults[:1]:  # a message of the form `…: weight must be …` or `weight must be …`
        option = options.get(fault.path)
        if option is not None:
            message = re.sub(rf"(^|: ){re.escape(fault.path)}(?=[: ])", rf"\1{option}", message, count=1)
    return message, faults


def _find_options(command: click.Command) -> dict[str, str]:
    """The options of a command by the fields that they set."""
    found = {}
    for param in command.params:
        if isinstance(param, click.Option) and param.name and not param.is_flag:
            option = next(name for name in param.opts if name.startswith("--"))
            found[param.name] = option
            name = option.removeprefix("--")
            found[FIELDS.get(name, name.replace("-", "_"))] = option
    return found


def rename_fields(text: str, options: dict[str, str]) -> str:
    """Replace field names that contain an underscore; others could be ordinary words."""
    fields = [re.escape(name) for name in options if "_" in name]
    if not fields:
        return text
    return re.sub(rf"(?<![\w-])({'|'.join(fields)})(?!\w)", lambda found: options[found[1]], text)
