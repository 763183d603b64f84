"""`fairlead`: every command, and the options that all of them share."""

import gc
import logging
from importlib import import_module
from pathlib import Path

import click

from fairlead.version import __version__

# Each command, the module that it is in, and its line in `fairlead --help`, which imports none of them.
COMMANDS = {
    "agent": ("agent", "Run the jobs of this host, pulled from a server over HTTP."),
    "audit": ("audit", "Show the audit log: who did what to which."),
    "bench": ("bench", "Measure Fairlead here, each figure beside a limit of the same run."),
    "definitions": ("definitions", "The kinds of work that may be enqueued."),
    "dev": ("dev", "Run everything here, with a demo and your own module: the way to begin."),
    "doctor": ("doctor", "Look for what is wrong with the database and say what to do about it."),
    "events": ("events", "Tell what happened; triggers make jobs of it."),
    "hosts": ("hosts", "Machines whose jobs only their own agents run."),
    "jobs": ("jobs", "Enqueue jobs and see what became of them."),
    "migrate": ("database", "Bring the database's schema up to date."),
    "pause": ("gates", "Stop claiming jobs: all, or those of one tenant, definition or host."),
    "resources": ("resources", "Things on hosts that jobs act on, such as game servers."),
    "resume": ("gates", "Claim jobs again: all, or those of one tenant, definition or host."),
    "scheduler": ("scheduler", "Fire schedules and dispatch events, until SIGTERM or Ctrl-C."),
    "serve": ("serve", "Serve the HTTP API, until SIGTERM or Ctrl-C."),
    "tenants": ("tenants", "The tenants whose work this system does."),
    "tokens": ("tokens", "Keys for programs that call the API."),
    "triggers": ("triggers", "Rules that make jobs: when something happens, or when it is time."),
    "usage": ("usage", "Show what runs used: how many, how long they took and waited, their cost."),
    "users": ("users", "People who sign in."),
    "webhooks": ("webhooks", "Tell a URL how jobs and runs of workflows end."),
    "worker": ("worker", "Run the jobs of an application, such as jobs:fl."),
    "workers": ("workers", "List workers: what they serve, how busy they are, and which are stale."),
    "workflows": ("workflows", "Graphs of jobs, and their runs."),
}


class _Commands(click.Group):
    """Commands that are imported when they are called: the server's alone take as long as all that the others need."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"fairlead.cli.{COMMANDS[cmd_name][0]}")
        if not gc.isenabled():  # it rests since the start, see there
            gc.freeze()
            gc.enable()
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """The list of commands, from the lines above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


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
    from fairlead.cli import log  # noqa: PLC0415 - `fairlead --help` needs neither
    from fairlead.cli.session import Session  # noqa: PLC0415

    # a command that ends says what went wrong itself; one that stays has only its log
    quiet = {
        "worker": logging.WARNING,
        "agent": logging.WARNING,
        "scheduler": logging.WARNING,
        "serve": logging.INFO,
    }.get(context.invoked_subcommand or "", logging.ERROR)
    context.obj = Session({"database_url": database_url, "data_dir": data_dir, "schema": schema})
    log.set_up(logging.INFO if verbose else quiet, context.obj)
