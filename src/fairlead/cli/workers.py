"""`fairlead workers`."""

import click
from rich.text import Text

from fairlead.actions import system
from fairlead.actions import workers as actions
from fairlead.actions.system import RegisteredWorker
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.model.labels import format_labels

MOST = 1000


@click.group(invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, MOST), default=100, show_default=True)
@click.option("--after", default="", metavar="ID", help="Continue after the worker with this id.")
@output.json_option
@click.pass_context
def workers(context: click.Context, *, limit: int, after: str, as_json: bool) -> None:
    """List workers: where they run, what they serve, how many jobs they run, and which are stale."""
    if context.invoked_subcommand is None:
        _list_workers(limit=limit, after=after, as_json=as_json)


@workers.command()
@click.argument("worker_id")
@output.json_option
@command
async def drain(session: CommandSession, *, worker_id: str, as_json: bool) -> None:
    """Ask a worker to claim no more jobs and to finish those that it runs. It stays until it is stopped or resumed."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.drain(tx, fl.principal, worker_id)
    seconds = fl.settings.lease_seconds / 3
    text = f"{found.worker_id} claims no more jobs within {seconds:.0f} s; it runs {found.running_count:,}"
    _print_worker(found, text, as_json=as_json)


@workers.command()
@click.argument("worker_id")
@output.json_option
@command
async def resume(session: CommandSession, *, worker_id: str, as_json: bool) -> None:
    """Let a worker that drains claim jobs again."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.resume(tx, fl.principal, worker_id)
    _print_worker(found, f"{found.worker_id} claims jobs again", as_json=as_json)


def _print_worker(found: RegisteredWorker, text: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(found)
    else:
        output.console().print(Text(text))


@list_command
async def _list_workers(session: CommandSession, *, limit: int, after: str, as_json: bool) -> None:
    async with session.open() as fl, fl.transaction() as tx:
        found = await system.list_workers(
            tx, fl.principal, lease_seconds=fl.settings.lease_seconds, after=after, limit=limit
        )
    if as_json:
        output.print_json({"items": found})
        return
    output.print_table(
        ("id", "state", "running", "last seen", "started", "version", "host", "labels", "tenant", "serving"),
        [_row(one) for one in found],
        empty="There are no workers. Start one with: fairlead worker APP",
    )


def _row(one: RegisteredWorker) -> tuple[object, ...]:
    alive = Text("alive", "green") if one.drain_requested_at is None else Text("draining", "yellow")
    if one.recycling.reason and one.drain_requested_at is None:
        alive = Text("being replaced", "yellow")
    state = Text("stale", "bold red") if one.stale else alive
    running = f"{one.running_count}/{one.concurrency}"
    serving = ", ".join(one.queues) or "everything"
    return (
        one.worker_id,
        state,
        running,
        one.last_seen_at,
        one.started_at,
        one.version,
        one.hostname,
        format_labels(one.labels) or None,
        one.tenant or "all",
        serving,
    )
