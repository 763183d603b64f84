"""`fairlead`: every command, and the options that all of them share."""

import logging
from pathlib import Path

import click

from fairlead.cli import (
    agent,
    bench,
    database,
    definitions,
    dev,
    events,
    gates,
    hosts,
    jobs,
    log,
    resources,
    scheduler,
    serve,
    tenants,
    tokens,
    triggers,
    usage,
    users,
    webhooks,
    worker,
    workflows,
)
from fairlead.cli.session import Session
from fairlead.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
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


main.add_command(dev.dev)
main.add_command(serve.serve)
main.add_command(database.migrate)
main.add_command(database.doctor)
main.add_command(tenants.tenants)
main.add_command(tokens.tokens)
main.add_command(users.users)
main.add_command(definitions.definitions)
main.add_command(jobs.jobs)
main.add_command(hosts.hosts)
main.add_command(resources.resources)
main.add_command(triggers.triggers)
main.add_command(events.events)
main.add_command(workflows.workflows)
main.add_command(webhooks.webhooks)
main.add_command(usage.usage)
main.add_command(gates.pause)
main.add_command(gates.resume)
main.add_command(bench.bench)
main.add_command(worker.worker)
main.add_command(scheduler.scheduler)
main.add_command(agent.agent)
