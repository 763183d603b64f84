"""Refusals in the words of the command line: what the actions call `cron_expr`, a person gave as `--cron`."""

import re

import click

from fairlead.errors import FairleadError, Fault

# What an option is called where its name differs from the field that it sets.
FIELDS = {
    "event": "event_name",
    "cron": "cron_expr",
    "every": "every_seconds",
    "definition": "definition_key",
    "payload": "payload_template",
    "window": "dedupe_window_seconds",
    "host": "host_id",
    "resource": "resource_id",
    "run": "workflow_run_id",
}


def in_options(error: FairleadError, command: click.Command) -> tuple[str, list[Fault]]:
    """The message and faults of a refusal, naming the options of this command instead of fields."""
    options = _options_of(command)
    faults = [Fault(options.get(fault.path, fault.path), fault.message) for fault in error.faults]
    message = _renamed(error.message, options)
    for fault in error.faults[:1]:  # a message of the form `…: weight must be …`, or that begins so
        option = options.get(fault.path)
        if option is not None:
            message = re.sub(rf"(^|: ){re.escape(fault.path)}(?=[: ])", rf"\1{option}", message, count=1)
    return message, faults


def _options_of(command: click.Command) -> dict[str, str]:
    """The options of a command by the fields that they set."""
    found = {}
    for param in command.params:
        if isinstance(param, click.Option) and param.name and not param.is_flag:
            option = next(name for name in param.opts if name.startswith("--"))
            found[param.name] = option
            found[FIELDS.get(option.removeprefix("--"), param.name)] = option
    return found


def _renamed(text: str, options: dict[str, str]) -> str:
    """Fields of more than one word are told from ordinary English by their underscore; others are left."""
    fields = [re.escape(name) for name in options if "_" in name]
    if not fields:
        return text
    return re.sub(rf"(?<![\w-])({'|'.join(fields)})(?!\w)", lambda found: options[found[1]], text)
