"""`fairlead`: every command, and the options that all of them share."""

import difflib
import gc
import logging
from importlib import import_module
from pathlib import Path

import click

from fairlead.version import __version__

# Each command, its module, and its line in `fairlead --help`, which does not import the modules.
COMMANDS = {
    "agent": ("agent", "Run the jobs of this host, pulled from a server over HTTP."),
    "approvals": ("approvals", "List and answer what durable functions ask people for."),
    "audit": ("audit", "Show the audit log, export it signed, and verify exports."),
    "bench": ("bench", "Measure Fairlead on this machine."),
    "bridge": ("bridge", "Hand jobs to workers behind BullMQ, NATS, SQS or Cloud Tasks."),
    "bullmq": ("bullmq", "Move the jobs that wait in a BullMQ queue to Fairlead."),
    "cells": ("cells", "Cells: several databases that together hold all tenants."),
    "chaos": ("chaos", "Run Fairlead here under load and faults, and check every job."),
    "definitions": ("definitions", "The definitions: kinds of jobs that may be enqueued."),
    "dev": ("dev", "Run everything here, with a demo and your own module: start with this."),
    "doctor": ("doctor", "Check the database's health and advise how to fix problems."),
    "errors": ("errors", "Errors: failed jobs in groups, with a retry for a whole group."),
    "events": ("events", "Emit and list events; triggers create jobs from them."),
    "hooks": ("hooks", "Receive webhooks of other systems: each becomes an event."),
    "hosts": ("hosts", "Hosts: machines whose jobs only their own agents run."),
    "jobs": ("jobs", "Enqueue, list, cancel and retry jobs."),
    "keys": ("keys", "Encrypt secrets in the database, and rotate the keys."),
    "limits": ("limits", "Rates and limits by key: what is left, and what they hold back."),
    "mcp": ("mcp", "Serve tools to AI agents (MCP): read-only unless you allow writes."),
    "migrate": ("database", "Bring the database's schema up to date."),
    "pause": ("gates", "Stop claiming jobs: all, or those of one tenant, definition or host."),
    "resources": ("resources", "Resources: things on hosts that jobs act on, such as game servers."),
    "resume": ("gates", "Claim jobs again: all, or those of one tenant, definition or host."),
    "scheduler": ("scheduler", "Fire schedules and dispatch events, until SIGTERM or Ctrl-C."),
    "serve": ("serve", "Serve the HTTP API, until SIGTERM or Ctrl-C."),
    "sources": ("sources", "Sources: messages of NATS, SQS and Kafka become events."),
    "status": ("status", "Say whether everything is fine, what is slow and what is busy."),
    "tenants": ("tenants", "Add, change and pause tenants."),
    "tokens": ("tokens", "Tokens for programs that call the API."),
    "triggers": ("triggers", "Rules that create jobs: on an event or on a schedule."),
    "usage": ("usage", "Show usage: the number of runs, their run and wait times, their cost."),
    "users": ("users", "Users who sign in."),
    "webhooks": ("webhooks", "Notify a URL when jobs or workflow runs end."),
    "worker": ("worker", "Run the jobs of an application, such as jobs:fl."),
    "workers": ("workers", "List workers: what they serve, how many jobs they run, and which are stale."),
    "workflows": ("workflows", "Workflows (graphs of jobs) and their runs."),
}

# The sections of `fairlead --help`: what a newcomer needs comes first.
SECTIONS = {
    "Start here": ["dev"],
    "Jobs": ["jobs", "definitions", "workflows", "approvals", "errors", "limits", "pause", "resume", "usage"],
    "What creates jobs": ["triggers", "events", "hooks", "sources"],
    "Long-running processes": ["worker", "scheduler", "serve", "agent", "bridge", "mcp"],
    "Tenants and access": ["tenants", "users", "tokens", "audit", "webhooks"],
    "Machines": ["workers", "hosts", "resources", "cells"],
    "Database and health": ["migrate", "status", "doctor", "keys", "bench", "chaos", "bullmq"],
}


class _Commands(click.Group):
    """Imports a command's module when it is called: the server's imports alone take as long as all others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"fairlead.cli.{COMMANDS[cmd_name][0]}")
        if not gc.isenabled():  # disabled in start.py until the imports are done
            gc.freeze()
            gc.enable()
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command; refuses an unknown one with the one that was probably meant."""
        name = args[0]
        if name not in COMMANDS and (near := _find_near(name)):
            ctx.fail(f"No such command {name!r}. Did you mean: fairlead {near}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """The commands in their sections; all in one column."""
        longest = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), COMMANDS[name][1]) for name in names])


def _find_near(name: str) -> str | None:
    """The command that a wrong name probably means: `jobs` for job, `jobs enqueue` for enqueue."""
    from fairlead.cli.jobs import jobs  # noqa: PLC0415 - only a mistyped command needs it

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"jobs {name}" if name in jobs.commands else next(iter(near), None)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="fairlead")
@click.option("--database-url", metavar="URL", help="The PostgreSQL database [FAIRLEAD_DATABASE_URL].")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="The folder of the embedded database [FAIRLEAD_DATA_DIR].",
)
@click.option("--schema", help="The schema with Fairlead's tables [FAIRLEAD_SCHEMA].")
@click.option("--cell", metavar="NAME", help="Act in this cell (default: the tenant's, else the home cell).")
@click.option("-v", "--verbose", is_flag=True, help="Log more details.")
@click.pass_context
def main(
    context: click.Context,
    database_url: str | None,
    data_dir: Path | None,
    schema: str | None,
    cell: str | None,
    *,
    verbose: bool,
) -> None:
    """Fairlead: a multi-tenant job system on PostgreSQL.

    Without a database URL, Fairlead uses an embedded PostgreSQL in the data folder, .fairlead. `fairlead COMMAND --help` says
    more about a command.
    """
    from fairlead.cli import log  # noqa: PLC0415 - `fairlead --help` needs neither
    from fairlead.cli.session import CommandSession  # noqa: PLC0415

    # a short command prints its errors itself; a long-running one has only its log
    quiet = {
        "worker": logging.WARNING,
        "agent": logging.WARNING,
        "bridge": logging.WARNING,
        "scheduler": logging.WARNING,
        "sources": logging.WARNING,
        "serve": logging.INFO,
        "mcp": logging.WARNING,
    }.get(context.invoked_subcommand or "", logging.ERROR)
    context.obj = CommandSession({"database_url": database_url, "data_dir": data_dir, "schema": schema}, cell)
    log.set_up(logging.INFO if verbose else quiet, context.obj)
