"""`fairlead bullmq`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from fairlead.actions import definitions, tenants
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.errors import InvalidInput
from fairlead.integrations.configuration import ConnectionTable, load_driver, read_connections
from fairlead.integrations.engine import DRIVERS
from fairlead.library.app import Fairlead
from fairlead.model.request import unknown_definition, unknown_tenant
from fairlead.runtime.bridge import MAX_IN_FLIGHT
from fairlead.settings import config_file

DRIVER = "bullmq"


@click.group()
def bullmq() -> None:
    """Move from BullMQ to Fairlead."""


@bullmq.command("import")
@click.option("--queue", required=True, help="The BullMQ queue.")
@click.option("--tenant", required=True, help="The jobs' tenant: slug or id.")
@click.option("--definition", help="The jobs' definition: its key (default: the name of the queue).")
@click.option("--by-name", is_flag=True, help="Each job's name is the key of its definition.")
@click.option("--engine", default=DRIVER, show_default=True, help="A table [engines.NAME] of fairlead.toml.")
@click.option("--resume", is_flag=True, help="Resume the queue afterwards, even if it was paused before.")
@click.option("--dry-run", is_flag=True, help="Only count: change nothing.")
@output.json_option
@command
async def import_(
    session: CommandSession,
    *,
    queue: str,
    tenant: str,
    definition: str | None,
    by_name: bool,
    engine: str,
    resume: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move the jobs that wait in a BullMQ queue over to Fairlead, once each; repeat it after an interruption.

    The queue is paused meanwhile. Active jobs, job schedulers and the jobs of flows stay in BullMQ.
    """
    if by_name and definition is not None:
        raise InvalidInput("Give --definition or --by-name, not both.")
    key = None if by_name else definition or queue
    table = _find_table(engine)
    load_driver(table, DRIVERS)
    # needs the package
    from fairlead.integrations.bullmq.connection import open_queues  # noqa: PLC0415
    from fairlead.integrations.bullmq.importer import LEFT_REASONS, ImportPlan, Left, import_queue  # noqa: PLC0415

    async with session.open() as fl, open_queues(table) as queues:
        plan = ImportPlan(
            queue=queue,
            tenant=tenant,
            definition=key,
            default_priorities=await _read_priorities(fl, tenant, key),
            dry_run=dry_run,
            resume=resume,
        )
        with _open_progress_bar(as_json=as_json) as progress:
            result = await import_queue(queues, fl, plan, progress=progress)
    if as_json:
        output.print_json(result)
        return
    console = output.console()
    console.print(f"{'would import' if dry_run else 'imported'} {result.imported}")
    if result.imported_before:
        console.print(f"removed {result.imported_before} that an earlier import had enqueued")
    for reason, number in result.left.items():
        console.print(Text(f"left {number} in BullMQ: {LEFT_REASONS[Left(reason)]}"))
    for refusal in result.refusals:
        console.print(Text(f"  {refusal}"))
    if result.handed_over:
        console.print(f"skipped {result.handed_over} that fairlead bridge has handed over")
    if result.is_paused:
        console.print("the queue is paused: resume it in BullMQ, or with --resume")


def _find_table(engine: str) -> ConnectionTable:
    file = config_file()
    table = read_connections(file, "engines", DRIVERS).get(engine)
    if table is None:
        raise InvalidInput(
            f"There is no [engines.{engine}] in {file}. Describe BullMQ there, with its driver and url."
        )
    if table.driver != DRIVER:
        raise InvalidInput(
            f"{table.where} has the driver {table.driver}, not {DRIVER}. Name another with --engine."
        )
    return table._replace(
        options={name: value for name, value in table.options.items() if name != MAX_IN_FLIGHT}
    )


async def _read_priorities(fl: Fairlead, tenant: str, key: str | None) -> dict[str, int]:
    """The default priorities of all definitions; refuses an unknown tenant or definition."""
    async with fl.transaction() as tx:
        if await tenants.find(tx, fl.principal, tenant) is None:
            raise unknown_tenant(tenant)
        found = {one.key: one.default_priority for one in await definitions.list_all(tx, fl.principal)}
    if key is not None and key not in found:
        raise unknown_definition(key)
    return found


@contextmanager
def _open_progress_bar(*, as_json: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal; none with --json."""
    columns = (TextColumn("importing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = as_json or not sys.stderr.isatty()
    with Progress(*columns, console=output.console(stderr=True), disable=hidden) as bar:
        task = bar.add_task("importing", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
