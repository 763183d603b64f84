"""How a command ends that cannot go on."""

import os
import signal
import sys
from typing import NoReturn

import click
import msgspec

from fairlead.cli.option_names import rename_fields_to_options
from fairlead.errors import FairleadError, ProcessOutdated
from fairlead.model.ansi import escape_json

# The exit code of a process that the database's schema no longer admits: to start it again does not help.
OUTDATED = 3


def exit_on_closed_pipe() -> NoReturn:
    """Exit silently when the reader of our output has gone, such as `head`."""
    # Python flushes stdout at exit, which would fail again
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)


def exit_with_error(error: FairleadError, command: click.Command, *, as_json: bool) -> NoReturn:
    """Print an error with its faults, then exit with 1; with 3 if this version is too old for the database."""
    if as_json:
        click.echo(escape_json(msgspec.json.encode(error.as_dict()).decode()), err=True)
    else:
        _print_error(error, command)
    sys.exit(OUTDATED if isinstance(error, ProcessOutdated) else 1)


def _print_error(error: FairleadError, command: click.Command) -> None:
    # imported here, as every command imports this module, and a worker prints nothing that needs rich
    from rich.text import Text  # noqa: PLC0415

    from fairlead.cli import output  # noqa: PLC0415

    out = output.console(stderr=True)
    message, faults = rename_fields_to_options(error, command)
    out.print(Text.assemble(("error ", "bold red"), (f"[{error.code}] ", "dim"), message))
    if len(faults) > 1:  # the message names the first
        for fault in faults:
            out.print(Text(f"  {fault.path or '/'}: {fault.message}"))
