"""`fairlead`: every command, and the options that all of them share."""

import logging
from importlib import import_module
from pathlib import Path

import click

from fairlead.cli import log
from fairlead.cli.session import Session
from fairlead.version import __version__

# Each command, and the module that it is in.
COMMANDS = {
    "agent": "agent",
    "bench": "bench",
    "definitions": "definitions",
    "dev": "dev",
    "doctor": "doctor",
    "events": "events",
    "hosts": "hosts",
    "jobs": "jobs",
    "migrate": "database",
    "pause": "gates",
    "resources": "resources",
    "resume": "gates",
    "scheduler": "scheduler",
    "serve": "serve",
    "tenants": "tenants",
    "tokens": "tokens",
    "triggers": "triggers",
    "usage": "usage",
    "users": "users",
    "webhooks": "webhooks",
    "worker": "worker",
    "workflows": "workflows",
}


class _Commands(click.Group):
    """Commands that are imported when they are called: the server's alone take as long as all that the others need."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"fairlead.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fairlead")
@click.option("--database-url", metavar="URL", help="PostgreSQL to use [FAIRLEAD_DATABASE_URL].")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Where the embedded database lives [FAIRLEAD_DATA_DIR].",
)
@click.option("--schema", help="The schema with Fairlead's tables [FAIRLEAD_SCHEMA].")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens underneath.")
@click.pass_context
def main(
    context: click.Context,
    database_url: str | None,
    data_dir: Path | None,
    schema: str | None,
    *,
    verbose: bool,
) -> None:
    """Fairlead: a multi-tenant job system on PostgreSQL.

    Without a database URL an embedded PostgreSQL in the data folder is used.
    """
    # a command that ends says what went wrong itself; one that stays has only its log
    quiet = {
        "worker": logging.WARNING,
        "agent": logging.WARNING,
        "scheduler": logging.WARNING,
        "serve": logging.INFO,
    }.get(context.invoked_subcommand or "", logging.ERROR)
    context.obj = Session({"database_url": database_url, "data_dir": data_dir, "schema": schema})
    log.set_up(logging.INFO if verbose else quiet, context.obj)
